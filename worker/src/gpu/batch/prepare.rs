//! The host's part of an image: the verdict, then either a proved stream for the engines or pixels by the CPU.

use std::fmt;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use cudarc::driver::CudaContext;
use refmill::failure::{Code, Failure, Stage};
use refmill::job::Job;
use refmill::report::{Format, Report, Source};

use crate::baseline::{Sampling, Stream};
use crate::colour::{ColourStage, Program, Unconverted};
use crate::decode::Decoders;
use crate::gpu::error::GpuError;
use crate::gpu::nvjpeg::Engine;
use crate::gpu::pinned::Pinned;
use crate::gpu::upload::ALIGNMENT;
use crate::gpu::ycc::Layout;
use crate::orientation::Orientation;
use crate::pipeline::{self, Run};
use crate::pulse::Pulse;
use crate::repair::Repaired;
use crate::tensors::{Shape, Work};

/// Most pinned bytes of one image: a hundred megapixels with alpha.
const MOST_STAGED: usize = 512 << 20;

/// What all host threads share.
#[derive(Debug)]
pub struct Front {
    engine: Option<Arc<Engine>>,
    colour: Mutex<ColourStage>,
    blocks: Arc<Blocks>,
}

/// What a host thread has for itself.
#[derive(Debug, Default)]
pub struct Own {
    decoders: Decoders,
    colour: ColourStage,
}

/// Who is to decode.
#[derive(Debug, Clone, Copy)]
pub enum Way<'a> {
    /// The engines, if they can.
    Engines {
        /// Whether the stream is proved at once; else it is by whoever asked, before the pixels count.
        proved: bool,
    },
    /// The CPU, for this reason.
    Cpu(&'a str),
}

/// An image that a lane can take.
pub struct Prepared {
    /// Its number.
    pub index: usize,
    /// Its bytes, for the CPU where the engines refuse them.
    pub input: Arc<[u8]>,
    /// Its report so far.
    pub report: Report,
    /// Size and orientation.
    pub shape: Shape,
    /// What goes up.
    pub pixels: Pixels,
}

/// What goes up to the device.
pub enum Pixels {
    /// A proved stream, and what makes its pixels sRGB.
    Stream {
        /// The stream, rewritten.
        bytes: Vec<u8>,
        /// Where its planes lie.
        layout: Layout,
        /// What makes them sRGB.
        conversion: Arc<Program>,
    },
    /// Pixels in pinned memory, and what makes them sRGB.
    Staged(Staged),
}

impl fmt::Debug for Prepared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prepared").field("index", &self.index).field("shape", &self.shape).finish_non_exhaustive()
    }
}

impl Prepared {
    /// An image of which somebody else keeps the report.
    pub fn alone(shape: Shape, pixels: Pixels) -> Self {
        Self { index: 0, input: Arc::default(), report: Report::new(Source::default()), shape, pixels }
    }

    /// The stream for the engines, where it is one.
    pub fn stream(&self) -> Option<(&[u8], &Layout)> {
        match &self.pixels {
            Pixels::Stream { bytes, layout, .. } => Some((bytes, layout)),
            Pixels::Staged(_) => None,
        }
    }
}

impl Front {
    /// With at most `blocks` images in pinned memory.
    pub fn new(engine: Option<Arc<Engine>>, context: Arc<CudaContext>, blocks: usize) -> Self {
        Self { engine, colour: Mutex::new(ColourStage::new()), blocks: Arc::new(Blocks::new(context, blocks)) }
    }

    /// Judges an image and makes it ready.
    ///
    /// # Errors
    /// The report of an image that is rejected.
    pub fn prepare(
        &self,
        job: &Job,
        own: &mut Own,
        (index, input): (usize, Arc<[u8]>),
        way: Way<'_>,
    ) -> Result<Prepared, Box<Report>> {
        let mut run = Run::new(job, input.len(), Pulse::default());
        match self.pixels(&mut run, own, &input, way) {
            Ok((shape, pixels)) => Ok(Prepared { index, report: run.report, shape, pixels, input }),
            Err(failure) => Err(Box::new(run.conclude(Err(failure)))),
        }
    }

    fn pixels(&self, run: &mut Run<'_>, own: &mut Own, input: &[u8], way: Way<'_>) -> Result<(Shape, Pixels), Failure> {
        let repaired = pipeline::judge(run, input)?;
        let stream = match way {
            Way::Engines { proved } => self.stream(run, &repaired, proved),
            Way::Cpu(reason) => Err(reason.to_owned()),
        };
        let reason = match stream {
            Ok((shape, pixels)) => {
                run.report.decoder = "nvjpeg".into();
                check_size(run.job, shape)?;
                return Ok((shape, run.stage(Stage::Decode, Ok(pixels))?));
            }
            Err(reason) => reason,
        };
        run.report.decoder = format!("cpu: {reason}");
        let decoded = pipeline::decode(run, &mut own.decoders, repaired)?;
        let mut image = pipeline::plan(run, &mut own.colour, decoded)?;
        let background = run.job.recipe.as_ref().map(|recipe| recipe.background).unwrap_or_default();
        pipeline::note_alpha(run, image.shape().alpha, background)?;
        let converted = image.program().is_none();
        if converted {
            let mut srgb = run.stage(Stage::Colour, image.into_srgb())?;
            srgb.composite(background);
            image = Unconverted::from_srgb(srgb);
        }
        let shape = image.shape();
        check_size(run.job, shape)?;
        // What was composited on the CPU is not composited again.
        let staged = self.blocks.stage(&image, if converted { None } else { Some(background) });
        let staged = staged.map_err(|error| Failure::from(error).at(Stage::Upload))?;
        own.decoders.recycle(image.into_buffer());
        Ok((shape, Pixels::Staged(staged)))
    }

    /// A stream that the engines may have, or why they may not.
    fn stream(&self, run: &mut Run<'_>, repaired: &Repaired<'_>, proved: bool) -> Result<(Shape, Pixels), String> {
        let engine = self.engine.as_ref().ok_or("no JPEG engines")?;
        let (stream, conversion) = eligible(engine, &self.colour, run, repaired)?;
        if proved {
            stream.prove().map_err(|refusal| refusal.to_string())?;
        }
        Ok(encoded(&stream, conversion, repaired.orientation))
    }
}

/// Holds the tensors to their limit before memory for them is taken.
pub fn check_size(job: &Job, shape: Shape) -> Result<(), Failure> {
    let specs = job.recipe.as_ref().map(|recipe| recipe.tensors.as_slice()).unwrap_or_default();
    let bytes = Work::of(shape, specs).targets.iter().map(|target| target.bytes() as u64).sum();
    let limit = job.limits.output_bytes;
    job.limits.check("size of the tensors in bytes", bytes, limit).map_err(|failure| failure.at(Stage::Tensors))
}

/// A stream as the engines get it.
pub fn encoded(stream: &Stream<'_>, conversion: Arc<Program>, orientation: Orientation) -> (Shape, Pixels) {
    let mut bytes = Vec::new();
    stream.rewrite(&mut bytes);
    let (width, height) = (stream.width, stream.height);
    let layout = Layout::new(width, height, stream.sampling);
    (Shape { width, height, orientation, alpha: false }, Pixels::Stream { bytes, layout, conversion })
}

/// The stream of an image whose header the engines take, unproved, and what makes its pixels sRGB.
///
/// # Errors
/// Why the CPU has to decode it.
pub fn eligible<'a>(
    engine: &Engine,
    colour: &Mutex<ColourStage>,
    run: &mut Run<'_>,
    repaired: &Repaired<'a>,
) -> Result<(Stream<'a>, Arc<Program>), String> {
    if repaired.opened.format != Format::Jpeg {
        return Err("not JPEG".into());
    }
    let stream = Stream::read(repaired.opened.bytes).map_err(|refusal| refusal.to_string())?;
    if (stream.width, stream.height) != (repaired.header.width, repaired.header.height) {
        return Err("frame header".into());
    }
    if !engine.is_proved(stream.sampling) {
        return Err("a sampling in which the engines differ".into());
    }
    let gray = stream.sampling == Sampling::Gray;
    let mut colour = colour.lock().unwrap_or_else(PoisonError::into_inner);
    let conversion = colour.on_device(&repaired.meaning, gray, run.job.colour);
    let (conversion, about) = conversion.ok_or("colours that the CPU converts")?;
    run.report.colour = Some(about);
    Ok((stream, conversion))
}

/// Pinned blocks that go round: as many as were first needed at once, and never more than so many.
#[derive(Debug)]
pub(super) struct Blocks {
    context: Arc<CudaContext>,
    free: Mutex<Free>,
    returned: Condvar,
    most: usize,
}

#[derive(Debug, Default)]
struct Free {
    blocks: Vec<Pinned>,
    made: usize,
}

impl Blocks {
    /// None yet, and never more than `most`.
    pub fn new(context: Arc<CudaContext>, most: usize) -> Self {
        Self { context, free: Mutex::default(), returned: Condvar::new(), most }
    }

    /// A block with an image's pixels, and its alpha behind them. Without a background nothing is composited.
    pub fn stage(self: &Arc<Self>, image: &Unconverted, background: Option<[u8; 3]>) -> Result<Staged, GpuError> {
        let (pixels, alpha) = (image.bytes(), image.alpha().unwrap_or_default());
        let start = if alpha.is_empty() { pixels.len() } else { pixels.len().next_multiple_of(ALIGNMENT) };
        let bytes = start.saturating_add(alpha.len());
        let none = GpuError::Bounds { what: "a program", need: 1, have: 0 };
        let program = Arc::clone(image.program().ok_or(none)?);
        let pitch = pixels.len().checked_div(image.shape().height as usize).unwrap_or(0);
        let stored = Stored { program, pitch, alpha: start, background };
        let mut staged = Staged { block: Some(self.take()), bytes, stored, home: Arc::clone(self) };
        let block = staged.block.as_mut().ok_or(GpuError::Bounds { what: "a pinned block", need: bytes, have: 0 })?;
        block.grow(&self.context, bytes)?;
        let room = block.first(bytes)?;
        for (place, part) in [(0, &*pixels), (start, alpha)] {
            let end = place.saturating_add(part.len());
            let have = room.len();
            let to = room.get_mut(place..end).ok_or(GpuError::Bounds { what: "staging", need: end, have })?;
            to.copy_from_slice(part);
        }
        Ok(staged)
    }

    fn take(&self) -> Pinned {
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let none = |free: &mut Free| free.blocks.is_empty() && free.made >= self.most;
        let mut free = self.returned.wait_while(free, none).unwrap_or_else(PoisonError::into_inner);
        free.blocks.pop().unwrap_or_else(|| {
            free.made += 1;
            Pinned::towards_device("pinned memory for an image", MOST_STAGED)
        })
    }
}

/// What the pixels of a block are.
#[derive(Debug)]
pub struct Stored {
    /// What makes them sRGB.
    pub program: Arc<Program>,
    /// Bytes of a row.
    pub pitch: usize,
    /// Where alpha begins, if there is any.
    pub alpha: usize,
    /// What transparent pixels are put on; `None` where that was done.
    pub background: Option<[u8; 3]>,
}

/// Pixels in a pinned block, which goes back when this is dropped.
#[derive(Debug)]
pub struct Staged {
    block: Option<Pinned>,
    bytes: usize,
    stored: Stored,
    home: Arc<Blocks>,
}

impl Staged {
    /// What the pixels are.
    pub fn stored(&self) -> &Stored {
        &self.stored
    }

    /// The pixels. No copy of them may be under way.
    pub fn pixels(&mut self) -> Result<&[u8], GpuError> {
        let none = GpuError::Bounds { what: "a pinned block", need: self.bytes, have: 0 };
        self.block.as_mut().ok_or(none)?.first(self.bytes).map(|pixels| &*pixels)
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        let mut free = self.home.free.lock().unwrap_or_else(PoisonError::into_inner);
        free.blocks.extend(self.block.take());
        drop(free);
        self.home.returned.notify_one();
    }
}

/// For the report of an image that the GPU failed.
pub fn failed(report: Report, error: &GpuError) -> Report {
    let mut report = report;
    report.reject(Failure::new(Code::Device, error.to_string()).at(Stage::Tensors));
    report
}
