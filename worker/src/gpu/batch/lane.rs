//! One lane of the GPU: streams to decode, copy and compute on, and what is on its way on them.
//!
//! A batch is decoded by the engines while the batch before it is computed on. Events order the streams; the host
//! waits for a batch's last event alone, and memory is freed after that, so that its owner's stream waits for nothing.

use std::sync::Arc;

use cudarc::driver::sys::CUevent_flags;
use cudarc::driver::{CudaContext, CudaEvent, CudaSlice, CudaStream, DevicePtr};
use refmill::recipe::TensorSpec;

use super::derive::{Derive, Tensors};
use super::prepare::{Pixels, Prepared, Stored};
use super::reserve::Reserve;
use super::watch::Watch;
use crate::colour::{Kernel, Program};
use crate::gpu::error::GpuError;
use crate::gpu::programs::{Alpha, Rows};
use crate::gpu::ycc::Planes;
use crate::gpu::{Loaded, allocate, grow, nvjpeg, upload};
use crate::tensors::{Shape, Work};

/// Streams, tables and scratch memory of one lane.
#[derive(Debug)]
pub struct Lane {
    decoder: Option<nvjpeg::Batch>,
    rgb: CudaSlice<u8>,
    reserve: Reserve,
    derive: Derive,
    loaded: Arc<Loaded>,
    watch: Arc<Watch>,
    decode: Arc<CudaStream>,
    copy: Arc<CudaStream>,
    compute: Arc<CudaStream>,
    context: Arc<CudaContext>,
}

/// A batch on its way. Dropped unfinished, it waits for its work.
#[derive(Debug)]
pub struct Flight {
    images: Vec<Prepared>,
    tensors: Vec<Tensors>,
    /// What the streams read or write until `done`; the lane's again after that.
    memory: Vec<CudaSlice<u8>>,
    started: CudaEvent,
    decoded: CudaEvent,
    computing: CudaEvent,
    done: CudaEvent,
}

impl Drop for Flight {
    /// An error means that the context is lost, and then nothing is under way either.
    fn drop(&mut self) {
        self.done.synchronize().ok();
    }
}

impl Flight {
    /// The first image's stream, where the engines decode it.
    pub fn stream(&self) -> Option<&[u8]> {
        self.images.first().and_then(Prepared::stream).map(|(bytes, _)| bytes)
    }
}

impl Lane {
    /// A lane of its own streams.
    pub fn new(context: &Arc<CudaContext>, loaded: &Arc<Loaded>, watch: &Arc<Watch>) -> Result<Self, GpuError> {
        let stream = || context.new_stream().map_err(|error| GpuError::cuda("making a stream", error));
        let (decode, copy, compute) = (stream()?, stream()?, stream()?);
        Ok(Self {
            decoder: loaded.engine.as_ref().map(nvjpeg::Engine::batch).transpose()?,
            rgb: allocate(&compute, 1, "device memory")?,
            reserve: Reserve::default(),
            derive: Derive::new(&compute, loaded)?,
            loaded: Arc::clone(loaded),
            watch: Arc::clone(watch),
            decode,
            copy,
            compute,
            context: Arc::clone(context),
        })
    }

    /// Puts a batch on the streams.
    ///
    /// # Errors
    /// The images back, at rest: [`GpuError::Nvjpeg`] where the engines refused one of them.
    pub fn submit(
        &mut self,
        mut images: Vec<Prepared>,
        specs: &[TensorSpec],
    ) -> Result<Flight, (GpuError, Vec<Prepared>)> {
        match self.enqueue(&mut images, specs) {
            Ok(mut flight) => {
                flight.images = images;
                Ok(flight)
            }
            Err(error) => {
                // What was enqueued may read the images; an error here is the one that is returned already.
                for stream in [&self.decode, &self.copy, &self.compute] {
                    self.watch.stream_wait(stream).ok();
                }
                Err((error, images))
            }
        }
    }

    /// Waits for a batch and gives its images with their tensors.
    ///
    /// # Errors
    /// [`GpuError::Cuda`] where the work failed on the GPU.
    pub fn finish(&mut self, mut flight: Flight) -> Result<Vec<(Prepared, Tensors)>, GpuError> {
        self.watch.event_wait(&flight.done)?;
        self.watch.batch((&flight.started, &flight.decoded), (&flight.computing, &flight.done))?;
        self.reserve.give(std::mem::take(&mut flight.memory));
        let images = std::mem::take(&mut flight.images).into_iter();
        Ok(images.zip(std::mem::take(&mut flight.tensors)).collect())
    }

    fn enqueue(&mut self, images: &mut [Prepared], specs: &[TensorSpec]) -> Result<Flight, GpuError> {
        let context = Arc::clone(&self.context);
        let event = |flags| context.new_event(Some(flags)).map_err(|error| GpuError::cuda("making an event", error));
        let timed = CUevent_flags::CU_EVENT_DEFAULT;
        let (started, decoded, computing) = (event(timed)?, event(timed)?, event(timed)?);
        // The one event that the host waits for: it sleeps meanwhile, since other threads need the core.
        let done = event(CUevent_flags::CU_EVENT_BLOCKING_SYNC)?;
        let recorded = |error| GpuError::cuda("recording an event", error);
        started.record(&self.decode).map_err(recorded)?;
        let (planes, places) = self.decode(images)?;
        decoded.record(&self.decode).map_err(recorded)?;
        let uploads = self.upload(images)?;
        if !uploads.is_empty() {
            let uploaded = event(CUevent_flags::CU_EVENT_DISABLE_TIMING)?;
            uploaded.record(&self.copy).map_err(recorded)?;
            self.compute.wait(&uploaded).map_err(recorded)?;
        }
        self.compute.wait(&decoded).map_err(recorded)?;
        computing.record(&self.compute).map_err(recorded)?;
        let (mut places, mut raw) = (places.into_iter(), uploads.iter());
        let (mut tensors, mut targets) = (Vec::with_capacity(images.len()), Vec::new());
        for image in images.iter() {
            let work = Work::of(image.shape, specs);
            tensors.push(match &image.pixels {
                Pixels::Stream { conversion, .. } => {
                    let planes = places.next().ok_or(GpuError::Bounds { what: "planes", need: 1, have: 0 })?;
                    self.decoded(&planes, conversion, image.shape, &work)?
                }
                Pixels::Staged(staged) => {
                    let memory = raw.next().ok_or(GpuError::Bounds { what: "uploads", need: 1, have: 0 })?;
                    let converted = self.converted(memory, staged.stored(), image.shape)?;
                    let pixels = converted.as_ref().unwrap_or(memory);
                    let tensors = self.derive.run(pixels, 3 * image.shape.width as usize, image.shape, &work)?;
                    targets.extend(converted);
                    tensors
                }
            });
        }
        done.record(&self.compute).map_err(recorded)?;
        let memory = planes.into_iter().chain(uploads).chain(targets).collect();
        Ok(Flight { images: Vec::new(), tensors, memory, started, decoded, computing, done })
    }

    /// Lets the engines decode all streams of a batch.
    fn decode(&mut self, images: &[Prepared]) -> Result<(Option<CudaSlice<u8>>, Vec<Planes>), GpuError> {
        let streams: Vec<_> = images.iter().filter_map(Prepared::stream).collect();
        let Some(decoder) = self.decoder.as_mut().filter(|_| !streams.is_empty()) else {
            return Ok((None, Vec::new()));
        };
        let (starts, total) = upload::spread(streams.iter().map(|(_, layout)| layout.bytes))?;
        let memory = self.reserve.take(&self.decode, total, "device memory for planes")?;
        let (base, _guard) = memory.device_ptr(&self.decode);
        let planes: Result<Vec<Planes>, GpuError> = streams
            .iter()
            .zip(&starts)
            .map(|(&(_, &layout), &start)| Planes::new(base + start as u64, total - start, layout))
            .collect();
        let planes = planes?;
        let bytes: Vec<&[u8]> = streams.iter().map(|(bytes, _)| *bytes).collect();
        // SAFETY: the bytes belong to the images and the planes to `memory`; both go into the flight, which waits
        // for its work before they are dropped, or the streams are waited for where that fails.
        unsafe { decoder.decode(&bytes, &planes, &self.decode) }?;
        drop(_guard);
        Ok((Some(memory), planes))
    }

    /// Copies up what the CPU decoded, each image into memory of its own.
    fn upload(&mut self, images: &mut [Prepared]) -> Result<Vec<CudaSlice<u8>>, GpuError> {
        let failed = |error| GpuError::cuda("copying pixels to the device", error);
        let mut uploads = Vec::new();
        for image in images {
            let Pixels::Staged(staged) = &mut image.pixels else { continue };
            let pixels = staged.pixels()?;
            let mut memory = self.reserve.take(&self.copy, pixels.len(), "device memory for an image")?;
            let have = memory.num_bytes();
            let room = memory.try_slice_mut(..pixels.len());
            let mut room = room.ok_or(GpuError::Bounds { what: "an image's memory", need: pixels.len(), have })?;
            self.copy.memcpy_htod(pixels, &mut room).map_err(failed)?;
            self.watch.uploaded(pixels.len());
            uploads.push(memory);
        }
        Ok(uploads)
    }

    /// Stored pixels to sRGB, with alpha behind them where there is any: in place (`None`) or in memory that
    /// the batch has to keep.
    fn converted(
        &mut self,
        memory: &CudaSlice<u8>,
        stored: &Stored,
        shape: Shape,
    ) -> Result<Option<CudaSlice<u8>>, GpuError> {
        let (program, size) = (&*stored.program, (shape.width, shape.height));
        let (width, area) = (shape.width as usize, shape.width as usize * shape.height as usize);
        let composited = stored.background.is_none() || !shape.alpha;
        if program.kernel == Kernel::Plain && !program.deep && composited {
            return Ok(None);
        }
        let tables = match program.reads() {
            0 => None,
            _ => Some(self.derive.profile(&program.tables)?),
        };
        let at = tables.as_ref().map_or(Rows { address: 0, pitch: 0, room: 0 }, |tables| rows_of(tables, 0, 0));
        let plane = Rows { room: area, ..rows_of(memory, stored.alpha, width) };
        let alpha = stored.background.filter(|_| shape.alpha);
        let alpha = alpha.map(|background| Alpha { rows: plane, background });
        let source = Rows { room: stored.pitch * shape.height as usize, ..rows_of(memory, 0, stored.pitch) };
        if program.kernel.channels() == 3 && !program.deep {
            self.loaded.programs.convert(&self.compute, (program, at), (source, source), size, alpha)?;
            return Ok(None);
        }
        let behind = (3 * area).next_multiple_of(upload::ALIGNMENT);
        let end = if shape.alpha { behind + area } else { 3 * area };
        let mut target = self.reserve.take(&self.compute, end, "device memory for converted pixels")?;
        let rows = Rows { room: 3 * area, ..rows_of(&target, 0, 3 * width) };
        self.loaded.programs.convert(&self.compute, (program, at), (source, rows), size, alpha)?;
        if shape.alpha {
            let (from, have) = (memory.try_slice(stored.alpha..stored.alpha + area), memory.num_bytes());
            let from = from.ok_or(GpuError::Bounds { what: "alpha", need: stored.alpha + area, have })?;
            let to = target.try_slice_mut(behind..end);
            let mut to = to.ok_or(GpuError::Bounds { what: "converted pixels", need: end, have: end })?;
            let failed = |error| GpuError::cuda("copying alpha", error);
            self.compute.memcpy_dtod(&from, &mut to).map_err(failed)?;
        }
        Ok(Some(target))
    }

    /// Planes to sRGB, and to tensors.
    fn decoded(&mut self, planes: &Planes, program: &Program, shape: Shape, work: &Work) -> Result<Tensors, GpuError> {
        let pitch = planes.layout().rgb_pitch();
        grow(&mut self.rgb, &self.compute, pitch * shape.height as usize, "device memory for pixels")?;
        let (target, _guard) = self.rgb.device_ptr(&self.compute);
        // SAFETY: the planes are kept by the flight until the compute stream is done; `rgb` is the lane's own, and
        // only the compute stream uses it.
        unsafe { self.loaded.convert.run(&self.compute, planes, target, self.rgb.num_bytes()) }?;
        drop(_guard);
        if program.kernel != Kernel::Plain {
            let tables = self.derive.profile(&program.tables)?;
            let (rows, tables) = (rows_of(&self.rgb, 0, pitch), rows_of(&tables, 0, 0));
            let size = (shape.width, shape.height);
            self.loaded.programs.convert(&self.compute, (program, tables), (rows, rows), size, None)?;
        }
        self.derive.run(&self.rgb, pitch, shape, work)
    }
}

/// Rows of `pitch` bytes in `memory` from `start` on. Whoever uses them keeps the memory until its stream is done.
fn rows_of(memory: &CudaSlice<u8>, start: usize, pitch: usize) -> Rows {
    Rows::of(memory, start, pitch, memory.stream())
}

/// Memory whose every byte that is read later is written first.
pub(super) fn unset(stream: &Arc<CudaStream>, bytes: usize, what: &'static str) -> Result<CudaSlice<u8>, GpuError> {
    // SAFETY: bytes have no invalid values, and what the callers read of it they have written: planes by the
    // engines, pixels by a copy, tensors by the kernels.
    unsafe { stream.alloc(bytes) }.map_err(|error| GpuError::cuda(what, error))
}
