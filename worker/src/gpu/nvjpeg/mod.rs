//! JPEG by the GPU's own engines, through nvJPEG. What they give equals libjpeg-turbo's planes sample for sample on
//! the cards that were tried, which [`Engine::start`] does not believe but checks, for each sampling, before the
//! confinement closes. nvJPEG's other decoders, on CUDA cores, are up to one code off in each plane and three in R,
//! G and B, and are not used: what the engines do not take is the CPU's.
//!
//! They are given [`crate::baseline::Stream`]s alone, rewritten.

mod library;
mod trial;

use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;

use cudarc::driver::CudaStream;

use super::error::GpuError;
use super::ycc::{Convert, Planes};
use crate::baseline::Sampling;
use library::{Calls, Destination, Object};
use trial::Verdict;

/// The environment variable that names the library, a folder with it, or `off`.
pub const VARIABLE: &str = "REFMILL_NVJPEG";

/// The open library and its decoder.
#[derive(Debug)]
struct Opened {
    calls: Calls,
    handle: Object,
}

// SAFETY: nvJPEG's handle may be used by several threads at once where each has a state of its own (nvJPEG's
// documentation, "Thread safety"), and nothing else here changes after the start.
unsafe impl Send for Opened {}
// SAFETY: as above.
unsafe impl Sync for Opened {}

impl Drop for Opened {
    fn drop(&mut self) {
        self.calls.destroy(self.handle);
    }
}

/// The GPU's JPEG engines. Threads share them; what they decode with is a [`Batch`] each.
#[derive(Debug)]
pub struct Engine {
    opened: Opened,
    version: [i32; 3],
    engines: u32,
    verdict: Verdict,
}

impl Engine {
    /// Finds and opens nvJPEG, and tries it on one picture of each sampling.
    ///
    /// # Errors
    /// In words, why there is none: for the reason in the report. Never a failure of the device.
    pub fn start(named: Option<&OsStr>, stream: &Arc<CudaStream>, convert: &Convert) -> Result<Arc<Self>, String> {
        if named == Some(OsStr::new("off")) {
            return Err(format!("{VARIABLE} is off"));
        }
        let (mut problem, mut partial) = (None, None);
        for place in library::places(named) {
            match Self::open(&place).and_then(|engine| engine.tried(stream, convert)) {
                Ok(engine) if engine.verdict.refused.is_empty() => return Ok(Arc::new(engine)),
                Ok(engine) => partial = partial.or(Some(engine)),
                // The first place is the one that was named, or what the loader knows.
                Err(met) => problem = problem.or(Some(format!("{}: {met}", place.display()))),
            }
        }
        // What is right in one that is not right in all is used: the rest is the CPU's.
        let none =
            || problem.unwrap_or_else(|| format!("no libnvjpeg.so of version 11 to 13 in what {VARIABLE} names"));
        partial.map(Arc::new).ok_or_else(none)
    }

    fn open(place: &Path) -> Result<Self, String> {
        let calls = Calls::open(place)?;
        let version = calls.version();
        let handle = calls.create().map_err(|status| format!("opening the JPEG engines gives {}", name(status)))?;
        let opened = Opened { calls, handle };
        let engines = opened.calls.engines(handle).map_err(|status| format!("no JPEG engines: {}", name(status)))?;
        if engines == 0 {
            return Err("the GPU has no JPEG engine".into());
        }
        Ok(Self { opened, version, engines, verdict: Verdict::default() })
    }

    /// Keeps what the trial said of each sampling.
    ///
    /// # Errors
    /// In words, where no sampling's picture came out right.
    fn tried(self, stream: &Arc<CudaStream>, convert: &Convert) -> Result<Self, String> {
        let mut engine = Arc::new(self);
        let verdict = trial::judge(&engine, stream, convert);
        if verdict.proved.is_empty() {
            return Err(format!("pixels are not libjpeg-turbo's: {}", verdict.problems()));
        }
        // The trial's own batch is gone, so that this is the only owner.
        let alone = Arc::get_mut(&mut engine).ok_or("a trial that has not ended")?;
        alone.verdict = verdict;
        Arc::into_inner(engine).ok_or_else(|| "a trial that has not ended".into())
    }

    /// What it is, and what it is not used for, for people.
    pub fn description(&self) -> String {
        let [major, minor, patch] = self.version;
        let about = format!("nvJPEG {major}.{minor}.{patch}, {} engines", self.engines);
        if self.verdict.refused.is_empty() { about } else { format!("{about}, without {}", self.verdict.problems()) }
    }

    /// Whether pictures of this sampling came out as libjpeg-turbo's.
    pub fn is_proved(&self, sampling: Sampling) -> bool {
        self.verdict.proved.contains(&sampling)
    }

    /// A new state.
    pub fn batch(self: &Arc<Self>) -> Result<Batch, GpuError> {
        let state = self
            .opened
            .calls
            .make_state(self.opened.handle)
            .map_err(|status| failed("making a decoder's state", status))?;
        Ok(Batch { engine: Arc::clone(self), state, images: 0 })
    }
}

/// What one batch at a time is decoded with.
#[derive(Debug)]
pub struct Batch {
    engine: Arc<Engine>,
    state: Object,
    images: usize,
}

// SAFETY: a state belongs to one thread at a time, and `&mut self` sees to that.
unsafe impl Send for Batch {}

impl Batch {
    /// Puts the decoding of `streams` into `planes`, one for each, on `stream`.
    ///
    /// # Errors
    /// [`GpuError::Nvjpeg`], and then nothing can be said about any of the planes.
    ///
    /// # Safety
    /// The bytes of `streams` and the memory of `planes` stay alive until `stream` has done the work.
    pub unsafe fn decode(&mut self, streams: &[&[u8]], planes: &[Planes], stream: &CudaStream) -> Result<(), GpuError> {
        let opened = &self.engine.opened;
        let bind = stream.context().bind_to_thread();
        bind.map_err(|error| GpuError::cuda("binding the context", error))?;
        if self.images != streams.len() || streams.len() != planes.len() {
            self.images = 0;
            let prepared = opened.calls.initialize(opened.handle, self.state, streams.len());
            prepared.map_err(|status| failed("preparing a batch", status))?;
            self.images = streams.len();
        }
        let mut destinations: Vec<Destination> = planes.iter().map(destination).collect();
        if destinations.len() != self.images {
            return Err(GpuError::Bounds { what: "planes of a batch", need: self.images, have: destinations.len() });
        }
        let (objects, raw) = ((opened.handle, self.state), stream.cu_stream().cast());
        // SAFETY: the caller keeps bytes and memory alive; `Planes` holds that its memory has room for its layout;
        // `initialize` was told this many images, and there are as many of both.
        unsafe { opened.calls.decode(objects, streams, &mut destinations, raw) }
            .map_err(|status| failed("decoding JPEG", status))
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        self.engine.opened.calls.end_state(self.state);
    }
}

fn destination(planes: &Planes) -> Destination {
    let layout = planes.layout();
    let (luma, chroma) = (layout.luma_pitch, layout.chroma_pitch);
    let [y, cb, cr] = planes.addresses();
    match layout.sampling {
        Sampling::Gray => Destination { planes: [y, 0, 0, 0], pitches: [luma, 0, 0, 0] },
        _ => Destination { planes: [y, cb, cr, 0], pitches: [luma, chroma, chroma, 0] },
    }
}

fn failed(what: &'static str, status: i32) -> GpuError {
    GpuError::Nvjpeg { what, status: name(status) }
}

/// `nvjpegStatus_t`, nvJPEG 2.3.2.
fn name(status: i32) -> &'static str {
    match status {
        1 => "NOT_INITIALIZED",
        2 => "INVALID_PARAMETER",
        3 => "BAD_JPEG",
        4 => "JPEG_NOT_SUPPORTED",
        5 => "ALLOCATOR_FAILURE",
        6 => "EXECUTION_FAILED",
        7 => "ARCH_MISMATCH",
        8 => "INTERNAL_ERROR",
        9 => "IMPLEMENTATION_NOT_SUPPORTED",
        10 => "INCOMPLETE_BITSTREAM",
        _ => "an unknown status",
    }
}
