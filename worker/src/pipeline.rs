//! The stages in their order: the one place where the order is written.
//!
//! Each stage takes the previous one's type and gives its own, so that pixels which are not sRGB cannot be
//! uploaded: [`crate::srgb::SrgbImage`] comes out of the colour stage alone.

mod derive;
mod said;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufWriter;
use std::io::Write;
use std::time::Instant;

use refmill::failure::{Code, Failure, Stage};
use refmill::finding::{Finding, FindingCode};
use refmill::job::{Depth, ImageWanted, Job};
use refmill::recipe::Recipe;
use refmill::report::{Artifact, ArtifactKind, Image, MAX_FINDINGS, Report, Source, StageTime, Tensor};

use crate::colour::{ColourStage, Unconverted};
use crate::decode::{Decoded, Decoders};
use crate::device::Device;
use crate::open::{Encoded, Opened};
use crate::pulse::{Pulse, following};
use crate::region::Output;
use crate::srgb::SrgbImage;
use crate::tensors::{Derivation, Shape};
use crate::thumbnails::{self, Thumbnail};
use crate::{colour, container, encode, inspect, open, repair, rewrite};
use said::ProfilePlace;

/// A pixel buffer larger than this is given back to the system after its job.
const KEEP_BYTES: usize = 64 << 20;

/// Everything that lives from job to job.
#[derive(Debug)]
pub struct Pipeline {
    device: Device,
    decoders: Decoders,
    colour: ColourStage,
    pulse: Pulse,
    lost_device: bool,
}

/// The report while it grows, and the clock of its stages.
pub(crate) struct Run<'j> {
    pub job: &'j Job,
    pub report: Report,
    began: Instant,
    pulse: Pulse,
    profile: ProfilePlace,
}

impl<'j> Run<'j> {
    /// The first moment of a job on `bytes` of input, which tells `pulse` where it is.
    pub fn new(job: &'j Job, bytes: usize, pulse: Pulse) -> Self {
        let report = Report::new(Source { bytes: bytes as u64, ..Source::default() });
        Self { job, report, began: Instant::now(), pulse, profile: ProfilePlace::default() }
    }

    /// The report of a job that ended so.
    pub fn conclude(mut self, result: Result<(), Failure>) -> Report {
        match result {
            Ok(()) => {
                // A rewritten file's repairs are what was written, and no more.
                if self.job.image != ImageWanted::Lossless || self.job.recipe.is_some() {
                    said::decisions(&mut self.report);
                }
                self.report.conclude();
            }
            Err(failure) => {
                if failure.code == Code::Truncated {
                    self.report.find(said::truncated(self.report.source.bytes, &failure.message));
                }
                self.report.reject(failure);
            }
        }
        self.report
    }

    /// Ends a stage: its time is taken, and a failure is its own.
    pub fn stage<T>(&mut self, stage: Stage, result: Result<T, Failure>) -> Result<T, Failure> {
        let micros = u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.report.stages.push(StageTime { stage, micros });
        self.began = Instant::now();
        self.pulse.enter(following(stage, self.job));
        result.map_err(|failure| failure.at(stage))
    }
}

impl Pipeline {
    /// A pipeline on a started device. To be made before the confinement closes.
    #[must_use]
    pub fn new(device: Device) -> Self {
        Self {
            device,
            decoders: Decoders::default(),
            colour: ColourStage::new(),
            pulse: Pulse::default(),
            lost_device: false,
        }
    }

    /// What it runs on.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The same, to be tried out.
    pub(crate) fn device_mut(&mut self) -> &mut Device {
        &mut self.device
    }

    /// Tells how far the job in hand is.
    #[must_use]
    pub fn pulse(&self) -> Pulse {
        self.pulse.clone()
    }

    /// Whether the device failed in a way that outlives the job.
    #[must_use]
    pub fn lost_device(&self) -> bool {
        self.lost_device
    }

    /// Processes one image; artifacts are written to `region`.
    #[must_use]
    pub fn run(&mut self, job: &Job, input: &[u8], region: &File) -> Report {
        self.run_encoded(job, input.into(), region)
    }

    /// Processes one image of which perhaps not all was read; where it was not, the job asks for headers alone.
    #[must_use]
    pub fn run_encoded(&mut self, job: &Job, input: Encoded<'_>, region: &File) -> Report {
        self.pulse.enter(Stage::Open);
        let mut run = Run::new(job, input.bytes.len(), self.pulse.clone());
        run.report.device = Some(self.device.about());
        let result = self.stages(&mut run, input, region);
        run.conclude(result)
    }

    fn stages(&mut self, run: &mut Run<'_>, input: Encoded<'_>, region: &File) -> Result<(), Failure> {
        let job = run.job;
        let repaired = judge(run, input)?;
        let cut = repaired.container.cut.clone();
        if job.depth != Depth::Full {
            run.report.colour = Some(colour::about(&repaired.meaning, "", job.colour));
            let cut = cut.map(|what| Failure::new(Code::Truncated, what).at(Stage::Inspect));
            return cut.map_or(Ok(()), Err);
        }

        let mut output = Output::new(region, job.limits.output_bytes);
        if job.image == ImageWanted::Lossless {
            cut.map_or(Ok(()), |what| Err(Failure::new(Code::Truncated, what).at(Stage::Inspect)))?;
            lossless(run, &repaired, &mut output)?;
            if job.recipe.is_none() {
                return Ok(());
            }
        }

        if let (Some(recipe), ImageWanted::No | ImageWanted::Lossless) = (&job.recipe, job.image)
            && self.encoded(run, &repaired, recipe, &mut output)?
        {
            return Ok(());
        }
        let decoded = decode(run, &mut self.decoders, repaired)?;
        let before = (job.image == ImageWanted::Thumbnails).then(|| thumbnails::before(&decoded));
        let unconverted = plan(run, &mut self.colour, decoded)?;
        if let (Some(recipe), ImageWanted::No | ImageWanted::Lossless) = (&job.recipe, job.image)
            && self.device.converts(&unconverted)
        {
            return self.unconverted(run, unconverted, recipe, &mut output);
        }
        let image = run.stage(Stage::Colour, unconverted.into_srgb())?;
        if job.image == ImageWanted::ConvertedPng {
            let encoded = write_image(&image, &mut output);
            let artifact = run_stage_artifact(run, Stage::Encode, ArtifactKind::Image, 0, encoded)?;
            run.report.artifacts.push(artifact);
        }
        if let Some(before) = before {
            let before = before.map_err(|failure| failure.at(Stage::Encode))?;
            write_thumbnail(run, ArtifactKind::ThumbnailBefore, &before, &mut output)?;
            let after = thumbnails::after(&image).map_err(|failure| failure.at(Stage::Encode))?;
            write_thumbnail(run, ArtifactKind::ThumbnailAfter, &after, &mut output)?;
        }
        let image = match &job.recipe {
            Some(recipe) => self.tensors(run, image, recipe, &mut output)?,
            None => image,
        };
        let (rgb, _) = image.into_buffers();
        if rgb.capacity() <= KEEP_BYTES {
            self.decoders.recycle(rgb);
        }
        Ok(())
    }
}

/// Everything before a pixel is decoded: open, inspect, repair.
pub(crate) fn judge<'a>(run: &mut Run<'_>, input: impl Into<Encoded<'a>>) -> Result<repair::Repaired<'a>, Failure> {
    let input = input.into();
    let (job, mut findings) = (run.job, Vec::new());
    let opened = run.stage(Stage::Open, open::open(input.bytes, &job.limits))?;
    let opened = Opened { whole: input.whole, ..opened };
    run.report.not_looked_for = container::unseen(&opened);
    run.report.source.format = Some(opened.format);
    let inspected = inspect::inspect(opened, &job.extension, &job.limits, &mut findings);
    settle(run, Stage::Inspect, &mut findings)?;
    let inspected = run.stage(Stage::Inspect, inspected)?;
    let repaired = repair::repair(inspected, &mut findings, &mut run.report.repairs);
    settle(run, Stage::Repair, &mut findings)?;
    run.report.image = Some(describe(&repaired));
    run.profile = ProfilePlace::of(repaired.container.icc.as_ref());
    run.stage(Stage::Repair, Ok(repaired))
}

/// Pixels as stored, by the CPU.
pub(crate) fn decode<'a>(
    run: &mut Run<'_>,
    decoders: &mut Decoders,
    repaired: repair::Repaired<'a>,
) -> Result<Decoded<'a>, Failure> {
    let mut findings = Vec::new();
    let cut = repaired.container.cut.clone();
    let decoded = decoders.decode(repaired, &run.job.limits, &mut findings);
    // Decoders call the same thing by many names.
    let decoded = decoded.map_err(|failure| cut.map_or(failure, |what| Failure::new(Code::Truncated, what)));
    settle(run, Stage::Decode, &mut findings)?;
    let decoded = run.stage(Stage::Decode, decoded)?;
    said::linear_evidence(&mut run.report, &decoded);
    Ok(decoded)
}

/// Pixels and what makes them sRGB.
pub(crate) fn plan(run: &mut Run<'_>, stage: &mut ColourStage, decoded: Decoded<'_>) -> Result<Unconverted, Failure> {
    let mut findings = Vec::new();
    let planned = stage.bind(decoded, run.job.colour, &mut findings, &mut run.report.repairs);
    run.profile.name_in(&mut findings);
    settle(run, Stage::Colour, &mut findings)?;
    let image = planned.map_err(|failure| failure.at(Stage::Colour))?;
    run.report.colour = Some(image.colour().clone());
    if let Some(about) = &mut run.report.image {
        about.alpha = image.shape().alpha;
    }
    Ok(image)
}

/// Says that what is transparent is put on the recipe's background.
pub(crate) fn note_alpha(run: &mut Run<'_>, alpha: bool, [r, g, b]: [u8; 3]) -> Result<(), Failure> {
    if !alpha {
        return Ok(());
    }
    let found = format!("background {r}, {g}, {b}");
    settle(run, Stage::Tensors, &mut vec![Finding::new(FindingCode::AlphaComposited, "", found)])
}

/// Moves findings into the report, each as the policy has it; the first that it rejects ends the job.
fn settle(run: &mut Run<'_>, stage: Stage, findings: &mut Vec<Finding>) -> Result<(), Failure> {
    for finding in findings.drain(..) {
        let original = finding.clone();
        match run.job.policy.apply(finding) {
            Ok(finding) => run.report.find(finding),
            Err(failure) => {
                run.report.find(original);
                return Err(failure.at(stage));
            }
        }
    }
    Ok(())
}

fn run_stage_artifact(
    run: &mut Run<'_>,
    stage: Stage,
    kind: ArtifactKind,
    offset: u64,
    bytes: Result<u64, Failure>,
) -> Result<Artifact, Failure> {
    let bytes = run.stage(stage, bytes)?;
    Ok(Artifact { kind, offset, bytes, blake3: String::new(), path: String::new() })
}

fn write_image(image: &SrgbImage, output: &mut Output<'_>) -> Result<u64, Failure> {
    let before = output.written();
    let encoded = encode::png(image, BufWriter::with_capacity(1 << 18, &mut *output));
    encoded.map_err(|failure| output.overflow().unwrap_or(failure))?;
    Ok(output.written() - before)
}

fn write_thumbnail(
    run: &mut Run<'_>,
    kind: ArtifactKind,
    thumbnail: &Thumbnail,
    output: &mut Output<'_>,
) -> Result<(), Failure> {
    let offset = output.written();
    let encoded = thumbnail.write(&mut *output).map_err(|failure| output.overflow().unwrap_or(failure));
    let written = encoded.map(|()| output.written() - offset);
    let artifact = run_stage_artifact(run, Stage::Encode, kind, offset, written)?;
    run.report.artifacts.push(artifact);
    Ok(())
}

/// Writes the losslessly repaired file. Nothing was turned or converted by that: what was written is all that is
/// reported as a repair, unless pixels are wanted too.
fn lossless(run: &mut Run<'_>, repaired: &repair::Repaired<'_>, output: &mut Output<'_>) -> Result<(), Failure> {
    let job = run.job;
    let written = rewrite::rewrite(repaired, job.strip).and_then(|rewritten| {
        let bytes = rewritten.write(output).map_err(|failure| output.overflow().unwrap_or(failure))?;
        Ok((bytes, rewritten.repairs))
    });
    let (bytes, repairs) = run.stage(Stage::Encode, written)?;
    let (kind, blake3, path) = (ArtifactKind::Repaired, String::new(), String::new());
    run.report.artifacts.push(Artifact { kind, offset: 0, bytes, blake3, path });
    if job.recipe.is_none() {
        run.report.repairs.clear();
        run.report.colour = Some(colour::about(&repaired.meaning, "", job.colour));
    }
    let dropped = repairs.iter().filter(|repair| repair.code == FindingCode::MetadataStripped);
    let dropped: Vec<&str> = dropped.map(|repair| repair.before.as_str()).collect();
    if !dropped.is_empty() {
        let finding = Finding::new(FindingCode::MetadataStripped, "", dropped.join("; "));
        settle(run, Stage::Encode, &mut vec![finding])?;
    }
    run.report.repairs.extend(repairs);
    run.report.repairs.truncate(MAX_FINDINGS);
    Ok(())
}

/// Tensors begin at a multiple of 64 bytes.
fn align(output: &mut Output<'_>) -> Result<u64, Failure> {
    let padding = usize::try_from(output.written().next_multiple_of(64) - output.written()).unwrap_or(0);
    output
        .write_all([0; 64].get(..padding).unwrap_or_default())
        .map_err(|error| Failure::new(Code::OverLimit, error.to_string()))?;
    Ok(output.written())
}

fn describe(repaired: &repair::Repaired<'_>) -> Image {
    let header = repaired.header;
    let (width, height) = repaired.orientation.size(header.width, header.height);
    Image {
        stored: [header.width, header.height],
        upright: [width, height],
        orientation: repaired.orientation.exif(),
        bits: header.bits,
        model: header.model,
        alpha: header.alpha,
        frames: header.frames,
    }
}

fn about_tensor(derived: &crate::tensors::Derived) -> Tensor {
    Tensor {
        name: derived.spec.name.clone(),
        shape: derived.shape,
        layout: derived.spec.layout,
        dtype: derived.spec.dtype,
        plan: derived.plan,
    }
}

/// What the safetensors file says about itself: strings alone, as its format wants.
fn metadata(run: &Run<'_>, shape: Shape, recipe: &Recipe, derivation: &Derivation) -> BTreeMap<String, String> {
    let (width, height) = shape.orientation.size(shape.width, shape.height);
    let mut map = BTreeMap::from([
        ("refmill_version".to_owned(), env!("CARGO_PKG_VERSION").to_owned()),
        ("recipe".to_owned(), recipe.name.clone()),
        ("colour_space".to_owned(), "sRGB".to_owned()),
        ("source_blake3".to_owned(), run.job.source_hash.clone()),
        ("source_size".to_owned(), format!("{width}x{height}")),
        ("orientation_applied".to_owned(), shape.orientation.exif().to_string()),
    ]);
    for tensor in &derivation.tensors {
        let area = tensor.plan.source_box(width, height);
        let text = format!("{},{},{},{}", area.left, area.top, area.width, area.height);
        map.insert(format!("crop_box.{}", tensor.spec.name), text);
    }
    map
}
