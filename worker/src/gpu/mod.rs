//! The one GPU that this process was given: pixels go up once, every tensor of the recipe comes back.
//!
//! Two streams and no device-wide wait: the copy stream takes one image's pixels and tables from a pinned slot, an
//! event tells the compute stream, whose kernels resample, turn, normalise and lay out; the results come back
//! through the slot's second pinned buffer, and only its own event is waited for. While one image is on the GPU the
//! next can be submitted from another slot.
//!
//! It calls the driver and launches kernels, so it may use `unsafe`; every block says what upholds it.
#![allow(unsafe_code, reason = "the CUDA driver's calls and kernel launches have no safe form")]

mod axes;
pub mod batch;
mod error;
mod examine;
mod kernels;
mod nvjpeg;
mod pinned;
mod pool;
mod programs;
mod slot;
mod start;
#[cfg(test)]
mod tests;
mod upload;
mod ycc;

use std::sync::Arc;
use std::time::Instant;

use cudarc::driver::{CudaContext, CudaSlice, CudaStream};
use refmill::beat::DeviceMemory;
use refmill::recipe::TensorSpec;
use refmill::report::Device;

use crate::colour::Unconverted;
use crate::pipeline::Run;
use crate::repair::Repaired;
use crate::srgb::SrgbImage;
use crate::tensors::{Derivation, Derived, Shape, Spares, Target, Work};

use axes::Axes;
pub use batch::Watch;
use batch::{Refused, Single};
pub use error::GpuError;
use kernels::{Kernels, Source, Weights};
use pool::Pool;
pub use pool::PoolUse;
use programs::Programs;
use slot::{Ring, Slot};
use upload::Staged;
use ycc::Convert;

/// A context on the one visible GPU, its streams, kernels and buffers. Buffers grow to the largest image seen.
#[derive(Debug)]
pub struct Gpu {
    // Fields drop in this order: a slot waits for its own work, and all go before the context.
    ring: Ring,
    work: WorkBuffers,
    axes: Axes,
    spares: Spares,
    single: Single,
    loaded: Arc<Loaded>,
    copy: Arc<CudaStream>,
    compute: Arc<CudaStream>,
    context: Arc<CudaContext>,
    device: Device,
}

/// What was loaded before the confinement closed, for all threads.
#[derive(Debug)]
struct Loaded {
    kernels: Kernels,
    convert: Convert,
    programs: Programs,
    engine: Option<Arc<nvjpeg::Engine>>,
    pool: Pool,
}

/// Device memory that only the compute stream touches, in the order of its work.
#[derive(Debug)]
struct WorkBuffers {
    tall: CudaSlice<u8>,
    small: CudaSlice<u8>,
    tensors: CudaSlice<u8>,
}

/// Memory that a [`Gpu`] holds between images.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    /// Page-locked host memory, in bytes.
    pub pinned: u64,
    /// Device memory, in bytes, without the context itself.
    pub device: u64,
}

/// An image whose tensors are being made on the GPU. Dropped unfinished, it waits for that work and frees the slot.
#[derive(Debug)]
pub struct Pending {
    slot: Slot,
    targets: Vec<Target>,
    places: Vec<usize>,
    uploads: u32,
    staging_micros: u64,
}

impl Gpu {
    /// What this is, for the report.
    #[must_use]
    pub fn device(&self) -> Device {
        self.device.clone()
    }

    /// What the driver's memory pool holds for this process.
    ///
    /// # Errors
    /// [`GpuError::Cuda`].
    pub fn pool(&self) -> Result<PoolUse, GpuError> {
        self.loaded.pool.holds()
    }

    /// What was done and waited for with images whose colours or bytes the GPU works on: atomics, to be read from any
    /// thread at any time.
    #[must_use]
    pub fn watch(&self) -> Arc<Watch> {
        self.single.watch()
    }

    /// Memory held between images.
    #[must_use]
    pub fn held(&self) -> Held {
        let (pinned, input) = self.ring.held();
        let work = [&self.work.tall, &self.work.small, &self.work.tensors];
        let device = work.iter().map(|buffer| buffer.num_bytes() as u64).sum::<u64>() + input;
        Held { pinned, device }
    }

    /// What a heartbeat tells: page-locked memory, and memory on this GPU.
    #[must_use]
    pub fn memory(&self) -> (u64, Option<DeviceMemory>) {
        let Held { pinned, device } = self.held();
        // Buffers are taken whole and kept: all that is reserved is in use, and it was never more.
        let memory = DeviceMemory { reserved: device, used: device, high_water: device, context: None };
        (pinned, Some(memory))
    }

    /// Derives all tensors of `specs`, and a mask of the image's alpha where it has any: byte for byte what
    /// [`crate::tensors::cpu::CpuDevice`] makes.
    ///
    /// # Errors
    /// [`GpuError::TooLarge`] for an image or tensors over the fixed bounds; [`GpuError::Cuda`] where the driver
    /// fails, and then [`GpuError::is_sticky`] tells whether this process can go on.
    pub fn derive(&mut self, image: &SrgbImage, specs: &[TensorSpec]) -> Result<Derivation, GpuError> {
        let pending = self.submit(image, specs)?;
        self.finish(pending)
    }

    /// Derives all tensors of `specs` from a JPEG that the GPU's own engines decode.
    ///
    /// # Errors
    /// Why they did not: see [`Refused`].
    pub(crate) fn derive_encoded(
        &mut self,
        run: &mut Run<'_>,
        repaired: &Repaired<'_>,
        specs: &[TensorSpec],
    ) -> Result<(Shape, Derivation), Refused> {
        self.single.derive(run, repaired, specs, &mut self.spares)
    }

    /// Converts pixels that the CPU decoded, puts what is transparent on `background`, and derives all tensors of
    /// `specs`. The pixels have to be ones that a GPU converts: [`Unconverted::program`].
    ///
    /// # Errors
    /// As [`Gpu::derive`].
    pub(crate) fn derive_unconverted(
        &mut self,
        image: &Unconverted,
        background: [u8; 3],
        specs: &[TensorSpec],
    ) -> Result<Derivation, GpuError> {
        self.single.derive_unconverted(image, background, specs, &mut self.spares)
    }

    /// Starts on an image and returns when its pixels are staged: they may be dropped or changed then.
    ///
    /// # Errors
    /// As [`Gpu::derive`], and [`GpuError::Busy`] where every slot is taken by an unfinished image.
    pub fn submit(&mut self, image: &SrgbImage, specs: &[TensorSpec]) -> Result<Pending, GpuError> {
        let started = Instant::now();
        let work = Work::new(image, specs);
        let mut slot = self.ring.take(&self.context, &self.copy)?;
        match self.enqueue(&mut slot, image, &work, started) {
            Ok((places, uploads, staging_micros)) => {
                Ok(Pending { slot, targets: work.targets, places, uploads, staging_micros })
            }
            Err(error) => {
                self.settle(slot);
                Err(error)
            }
        }
    }

    /// Waits for an image's tensors and copies them out of pinned memory.
    ///
    /// # Errors
    /// [`GpuError::Cuda`] where the work failed on the GPU.
    pub fn finish(&mut self, pending: Pending) -> Result<Derivation, GpuError> {
        let Pending { mut slot, targets, places, uploads, staging_micros } = pending;
        let result = collect(&mut slot, &targets, &places, &mut self.spares);
        let times = slot.times();
        self.ring.put(slot);
        let (tensors, copied_micros) = result?;
        let (upload_micros, derive_micros) = times?;
        Ok(Derivation {
            tensors,
            uploads,
            upload_micros: staging_micros.saturating_add(upload_micros),
            derive_micros: derive_micros.saturating_add(copied_micros),
        })
    }

    /// Takes tensors back that are no longer needed, so that the next image's need no fresh memory.
    pub fn recycle(&mut self, derivation: Derivation) {
        self.spares.give(derivation);
    }

    /// Puts one image's whole work on the two streams.
    fn enqueue(
        &mut self,
        slot: &mut Slot,
        image: &SrgbImage,
        work: &Work,
        started: Instant,
    ) -> Result<(Vec<usize>, u32, u64), GpuError> {
        let (places, total) = upload::spread(work.targets.iter().map(Target::bytes))?;
        slot.prepare_readback(&self.context, total)?;
        let passes = self.axes.passes(work);
        let staged = Staged::write(slot, &self.context, &self.copy, image, &passes, work)?;
        let staging_micros = micros(started);
        let uploads = staged.upload(slot, &self.copy)?;
        slot.hand_over(&self.copy, &self.compute)?;
        let (tall, small) = staged.needs();
        grow(&mut self.work.tall, &self.compute, tall, "device memory for one pass")?;
        grow(&mut self.work.small, &self.compute, small, "device memory for resampled pixels")?;
        grow(&mut self.work.tensors, &self.compute, total, "device memory for tensors")?;
        self.run(slot, &staged, work, &places)?;
        slot.read_back(&self.compute, &self.work.tensors, total)?;
        Ok((places, uploads, staging_micros))
    }

    /// Launches the kernels: each resampling, then the tensors made from it.
    fn run(&mut self, slot: &Slot, staged: &Staged, work: &Work, places: &[usize]) -> Result<(), GpuError> {
        let WorkBuffers { tall, small, tensors } = &mut self.work;
        for (index, placed) in staged.passes.iter().enumerate() {
            let memory = slot.input();
            let source = Source { memory, start: placed.pixels, pitch: placed.pitch, rows: placed.rows };
            let weights = |placed| Weights { memory, placed };
            let axes = (placed.vertical.as_ref().map(weights), placed.horizontal.as_ref().map(weights));
            self.loaded.kernels.resample(&self.compute, source, &placed.pass, axes, (&mut *tall, &mut *small))?;
            let made = work.targets.iter().zip(&staged.tables).zip(places);
            for ((target, &table), &place) in made.filter(|((target, _), _)| target.resampling == index) {
                let put = kernels::Put { target, orientation: staged.orientation, table, place };
                self.loaded.kernels.put(&self.compute, small, slot.input(), tensors, &put)?;
            }
        }
        Ok(())
    }

    /// After a failed submission: waits for what was already on the streams, so that the slot's memory is at rest.
    fn settle(&mut self, slot: Slot) {
        let copied = self.copy.synchronize();
        let computed = self.compute.synchronize();
        if copied.is_ok() && computed.is_ok() {
            self.ring.put(slot);
        }
        // Otherwise the context is lost and the slot with it; the error that is returned already tells.
    }
}

/// Copies the tensors of finished work out of the slot, and tells how long the copying took.
fn collect(
    slot: &mut Slot,
    targets: &[Target],
    places: &[usize],
    spares: &mut Spares,
) -> Result<(Vec<Derived>, u64), GpuError> {
    let read_back = slot.wait()?;
    let started = Instant::now();
    let mut tensors = Vec::with_capacity(targets.len());
    for (target, &place) in targets.iter().zip(places) {
        let (need, have) = (place.saturating_add(target.bytes()), read_back.len());
        let tensor = read_back.get(place..need).ok_or(GpuError::Bounds { what: "readback", need, have })?;
        let mut bytes = spares.take(tensor.len());
        bytes.copy_from_slice(tensor);
        let (spec, plan) = (target.spec.clone(), target.plan);
        tensors.push(Derived { spec, plan, shape: target.shape(), bytes });
    }
    Ok((tensors, micros(started)))
}

/// Makes a work buffer at least `bytes` long. Freeing is in the compute stream's order, so earlier work is safe.
fn grow(
    buffer: &mut CudaSlice<u8>,
    stream: &Arc<CudaStream>,
    bytes: usize,
    what: &'static str,
) -> Result<(), GpuError> {
    if buffer.num_bytes() < bytes {
        *buffer = allocate(stream, bytes, what)?;
    }
    Ok(())
}

/// Device memory of at least `bytes`, rounded up to a power of two so that growing is rare. Zeroed in the stream's
/// order: it may have held another process's data, and the gaps between tensors are copied back as well.
fn allocate(stream: &Arc<CudaStream>, bytes: usize, what: &'static str) -> Result<CudaSlice<u8>, GpuError> {
    let rounded = bytes.next_power_of_two().max(upload::ALIGNMENT);
    stream.alloc_zeros(rounded).map_err(|error| GpuError::cuda(what, error))
}

fn micros(started: Instant) -> u64 {
    u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX)
}
