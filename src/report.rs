//! The report: what was found, what was decided, what was produced and how long it took. Its JSON form is
//! published as `docs/report.schema.json`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::failure::{Failure, Stage};
use crate::finding::{Finding, FindingCode, Repair, Severity};
use crate::geometry::Plan;
use crate::job::ColourOptions;
use crate::recipe::{Dtype, Layout};

/// Version of the report's form; a change that breaks a reader raises it.
pub const REPORT_VERSION: u32 = 1;
/// Most findings in a report; further ones are counted in [`Report::findings_omitted`].
pub const MAX_FINDINGS: usize = 64;

/// How a job ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Nothing was wrong with the image.
    Ok,
    /// The pixels are sound; the metadata was defective or contradictory, and the report says what was decided.
    OkWithRepair,
    /// No artifacts; [`Report::error`] says why.
    Reject,
}

impl Outcome {
    /// The outcome as it stands in reports.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::OkWithRepair => "ok_with_repair",
            Self::Reject => "reject",
        }
    }
}

/// The answer to one job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Report {
    /// [`REPORT_VERSION`].
    pub version: u32,
    /// How the job ended.
    pub outcome: Outcome,
    /// Why, if it was rejected.
    pub error: Option<Failure>,
    /// The input.
    pub source: Source,
    /// The picture, once its header was read.
    pub image: Option<Image>,
    /// How its colours were read, once that was decided.
    pub colour: Option<Colour>,
    /// What the pixels say, where linear light is declared for 8 bits and they were decoded.
    #[serde(default)]
    pub linear_evidence: Option<LinearEvidence>,
    /// What was found, in the order of the stages.
    pub findings: Vec<Finding>,
    /// Findings that were not looked for, or not everywhere: pixels were not read. Empty unless headers alone were asked
    /// for.
    #[serde(default)]
    pub not_looked_for: Vec<FindingCode>,
    /// How many findings did not fit.
    pub findings_omitted: u32,
    /// What was decided because of them.
    pub repairs: Vec<Repair>,
    /// What was produced.
    pub artifacts: Vec<Artifact>,
    /// The derived tensors.
    pub tensors: Vec<Tensor>,
    /// What it ran on.
    pub device: Option<Device>,
    /// What decoded the pixels: `nvjpeg`, or `cpu` and, on a GPU, why not its engines. Empty where nothing was decoded.
    #[serde(default)]
    pub decoder: String,
    /// Uploads of pixels to the device: at most one an image, whatever the recipe asks for.
    pub uploads: u32,
    /// Time spent in each stage that was reached, in their order.
    pub stages: Vec<StageTime>,
}

/// The input of a job.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Source {
    /// Path or name, as the supervisor was given it.
    pub name: String,
    /// Length in bytes.
    pub bytes: u64,
    /// BLAKE3-256, hexadecimal; empty after an inspection that was not asked for it.
    pub blake3: String,
    /// Format by signature, once recognised.
    pub format: Option<Format>,
}

/// Image formats, by signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// JPEG (ITU-T T.81), any colour model.
    Jpeg,
    /// PNG and APNG.
    Png,
    /// WebP.
    Webp,
    /// TIFF and BigTIFF.
    Tiff,
    /// GIF.
    Gif,
    /// Windows bitmap.
    Bmp,
    /// AVIF.
    Avif,
    /// HEIC and other HEIF with HEVC.
    Heic,
}

impl Format {
    /// File name extensions in use for the format, the usual one first.
    #[must_use]
    pub fn extensions(self) -> &'static [&'static str] {
        match self {
            Self::Jpeg => &["jpg", "jpeg", "jpe", "jfif"],
            Self::Png => &["png", "apng"],
            Self::Webp => &["webp"],
            Self::Tiff => &["tif", "tiff"],
            Self::Gif => &["gif"],
            Self::Bmp => &["bmp", "dib"],
            Self::Avif => &["avif", "avifs"],
            Self::Heic => &["heic", "heif", "hif"],
        }
    }
}

/// The picture as stored, and upright.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Image {
    /// Width and height as stored, in pixels.
    pub stored: [u32; 2],
    /// Width and height upright, in pixels.
    pub upright: [u32; 2],
    /// The EXIF orientation, 1 to 8, that was applied to what the decoder gives.
    pub orientation: u8,
    /// Bits a channel as stored.
    pub bits: u8,
    /// The colour model of the stored pixels.
    pub model: Model,
    /// Whether there is an alpha channel or a transparent colour.
    pub alpha: bool,
    /// Frames or pages.
    pub frames: u32,
}

/// Colour models of stored pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Model {
    /// One channel.
    Gray,
    /// Three channels (YCbCr and palettes included).
    Rgb,
    /// Four channels (YCCK included).
    Cmyk,
    /// CIE L*a*b*.
    Lab,
}

/// How the colours were read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Colour {
    /// What the stored numbers mean: `srgb`, `icc`, `adobe_rgb`, `gama`, `gama_chrm`, `cicp`, `cmyk_naive`, `lab`.
    pub interpretation: String,
    /// The profile's description, or the figures that stand for one.
    pub description: String,
    /// The primaries, where there are three.
    #[serde(default)]
    pub primaries: Option<Primaries>,
    /// What converted them: `none`, `naive` (CMYK), `table` (gray), `matrix`, `grid` (lookup tables), `hdr` or `lcms2`;
    /// empty after an inspection.
    pub engine: String,
    /// Intent and black point compensation.
    pub options: ColourOptions,
}

/// Chromaticities, CIE 1931 x and y, seen under the colour space's own white.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Primaries {
    /// White.
    pub white: [f64; 2],
    /// Red.
    pub red: [f64; 2],
    /// Green.
    pub green: [f64; 2],
    /// Blue.
    pub blue: [f64; 2],
}

/// How the codes of 8-bit pixels are spread: what speaks for or against the linear light that is declared for them.
/// A picture of a scene has its median near L* 50 under the right reading, and far from it under the wrong one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LinearEvidence {
    /// Pixels in each sixteenth of the codes, by luma, in thousandths of all.
    pub permille: [u16; 16],
    /// The median code, by luma.
    pub median_code: u8,
    /// CIE L* of the median, were it linear light, 0 to 100.
    pub lightness_as_linear: u8,
    /// CIE L* of the median, were it sRGB, 0 to 100.
    pub lightness_as_srgb: u8,
}

/// Something produced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Artifact {
    /// What it is.
    pub kind: ArtifactKind,
    /// Offset in the output region, in bytes.
    #[serde(default)]
    pub offset: u64,
    /// Length in bytes.
    pub bytes: u64,
    /// BLAKE3-256, hexadecimal; filled in by the supervisor when it publishes.
    pub blake3: String,
    /// Where it was published.
    pub path: String,
}

/// Kinds of artifact.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ArtifactKind {
    /// The repaired image, converted: PNG.
    Image,
    /// The repaired file: its own format, pixels untouched.
    Repaired,
    /// The tensors, safetensors.
    Tensors,
    /// The pixels as stored, small: PNG.
    ThumbnailBefore,
    /// The pixels upright in sRGB, small: PNG.
    ThumbnailAfter,
}

/// One derived tensor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Tensor {
    /// Its key.
    pub name: String,
    /// Its shape in the order of `layout`.
    pub shape: [u32; 4],
    /// Order of the axes.
    pub layout: Layout,
    /// Element type.
    pub dtype: Dtype,
    /// Where its pixels come from.
    pub plan: Plan,
}

/// What a worker runs on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Device {
    /// `cpu` or `cuda`.
    pub kind: String,
    /// Its name, such as the GPU's.
    pub name: String,
    /// The GPU's UUID; empty for `cpu`.
    pub uuid: String,
    /// Why this one was chosen.
    pub reason: String,
}

/// Time spent in one stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StageTime {
    /// The stage.
    pub stage: Stage,
    /// Wall time, in microseconds.
    pub micros: u64,
}

impl Report {
    /// An empty report on `source`.
    #[must_use]
    pub fn new(source: Source) -> Self {
        Self {
            version: REPORT_VERSION,
            outcome: Outcome::Ok,
            error: None,
            source,
            image: None,
            colour: None,
            linear_evidence: None,
            findings: Vec::new(),
            not_looked_for: Vec::new(),
            findings_omitted: 0,
            repairs: Vec::new(),
            artifacts: Vec::new(),
            tensors: Vec::new(),
            device: None,
            decoder: String::new(),
            uploads: 0,
            stages: Vec::new(),
        }
    }

    /// A report that says only why nothing was done.
    #[must_use]
    pub fn rejected(source: Source, failure: Failure) -> Self {
        let mut report = Self::new(source);
        report.reject(failure);
        report
    }

    /// Adds a finding, or counts it where there is no room.
    pub fn find(&mut self, finding: Finding) {
        if self.findings.len() < MAX_FINDINGS {
            self.findings.push(finding);
        } else {
            self.findings_omitted = self.findings_omitted.saturating_add(1);
        }
    }

    /// Ends the report with a failure: nothing that was produced counts.
    pub fn reject(&mut self, failure: Failure) {
        self.outcome = Outcome::Reject;
        self.error = Some(failure);
        self.artifacts.clear();
        self.tensors.clear();
    }

    /// Ends the report of a job that produced what was asked, by the worst finding.
    pub fn conclude(&mut self) {
        let defect = self.findings.iter().any(|finding| finding.severity >= Severity::Defect);
        self.outcome = if defect { Outcome::OkWithRepair } else { Outcome::Ok };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Code;

    #[test]
    fn outcome_text_matches_its_serialised_form() {
        let text = |outcome: Outcome| (serde_json::to_string(&outcome).unwrap(), format!("\"{}\"", outcome.as_str()));
        let all = [Outcome::Ok, Outcome::OkWithRepair, Outcome::Reject].map(text);
        assert!(all.iter().all(|(serialised, text)| serialised == text), "{all:?}");
    }

    #[test]
    fn report_with_an_informative_finding_is_ok() {
        let mut report = Report::new(Source::default());
        report.find(Finding::new(FindingCode::IccAbsentAssumedSrgb, "", ""));
        report.conclude();
        assert_eq!(report.outcome, Outcome::Ok);
    }

    #[test]
    fn report_with_a_defect_is_ok_with_repair() {
        let mut report = Report::new(Source::default());
        report.find(Finding::new(FindingCode::IccCorrupt, "", ""));
        report.conclude();
        assert_eq!(report.outcome, Outcome::OkWithRepair);
    }

    #[test]
    fn rejected_report_names_no_artifact() {
        let mut report = Report::new(Source::default());
        report.artifacts.push(Artifact {
            kind: ArtifactKind::Image,
            offset: 0,
            bytes: 1,
            blake3: String::new(),
            path: String::new(),
        });
        report.reject(Failure::new(Code::Corrupt, "x"));
        assert!(report.artifacts.is_empty());
    }

    #[test]
    fn finding_beyond_the_room_is_counted() {
        let mut report = Report::new(Source::default());
        (0..=MAX_FINDINGS).for_each(|_| report.find(Finding::new(FindingCode::ExifCorrupt, "", "")));
        assert_eq!((report.findings.len(), report.findings_omitted), (MAX_FINDINGS, 1));
    }
}
