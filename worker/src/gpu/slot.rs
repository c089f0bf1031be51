//! The ring of slots: all that one image needs while it is on its way to the GPU and back.

use std::sync::Arc;

use cudarc::driver::sys::CUevent_flags;
use cudarc::driver::{CudaContext, CudaEvent, CudaSlice, CudaStream};

use super::error::GpuError;
use super::pinned::Pinned;
use super::{allocate, upload};

/// Images that can be on their way at once.
pub(super) const SLOTS: usize = 2;
/// Pixels, alpha and tables of one image: a hundred megapixels with alpha fit.
const MOST_STAGED: usize = 512 << 20;
/// Tensors of one image.
const MOST_READ_BACK: usize = 1 << 30;

/// A fixed number of slots. A slot and its memory are made when they are first needed.
#[derive(Debug)]
pub(super) struct Ring {
    pub(super) free: Vec<Slot>,
    living: Arc<()>,
}

impl Ring {
    /// A ring whose slots are all still to be made.
    pub fn new() -> Self {
        Self { free: Vec::with_capacity(SLOTS), living: Arc::new(()) }
    }

    /// A slot whose memory is at rest.
    pub fn take(&mut self, context: &Arc<CudaContext>, copy: &Arc<CudaStream>) -> Result<Slot, GpuError> {
        if let Some(slot) = self.free.pop() {
            return Ok(slot);
        }
        if Arc::strong_count(&self.living) > SLOTS {
            return Err(GpuError::Busy { slots: SLOTS });
        }
        Slot::new(context, copy, Arc::clone(&self.living))
    }

    /// Gives back a slot whose work is finished.
    pub fn put(&mut self, slot: Slot) {
        self.free.push(slot);
    }

    /// Pinned and device bytes of the slots at rest.
    pub fn held(&self) -> (u64, u64) {
        let pinned = self.free.iter().map(|slot| slot.staging.held() + slot.readback.held()).sum::<usize>();
        let device = self.free.iter().map(|slot| slot.input.num_bytes()).sum::<usize>();
        (pinned as u64, device as u64)
    }
}

/// One slot: a pinned buffer and device memory for the way up, a pinned buffer for the way back, and the events
/// that tell how far the GPU is with them.
#[derive(Debug)]
pub(super) struct Slot {
    staging: Pinned,
    readback: Pinned,
    read: usize,
    input: CudaSlice<u8>,
    started: CudaEvent,
    uploaded: CudaEvent,
    done: CudaEvent,
    _alive: Arc<()>,
}

impl Slot {
    fn new(context: &Arc<CudaContext>, copy: &Arc<CudaStream>, alive: Arc<()>) -> Result<Self, GpuError> {
        let event = |flags| context.new_event(Some(flags)).map_err(|error| GpuError::cuda("making an event", error));
        Ok(Self {
            staging: Pinned::towards_device("pinned memory for an image", MOST_STAGED),
            readback: Pinned::from_device("pinned memory for tensors", MOST_READ_BACK),
            read: 0,
            input: allocate(copy, upload::ALIGNMENT, "device memory for an image")?,
            started: event(CUevent_flags::CU_EVENT_DEFAULT)?,
            uploaded: event(CUevent_flags::CU_EVENT_DEFAULT)?,
            // The one event that the host waits for: it sleeps meanwhile, since other workers need the core.
            done: event(CUevent_flags::CU_EVENT_BLOCKING_SYNC)?,
            _alive: alive,
        })
    }

    /// Pinned memory of `bytes` to stage an image in, with as much device memory behind it.
    pub fn stage(
        &mut self,
        context: &Arc<CudaContext>,
        copy: &Arc<CudaStream>,
        bytes: usize,
    ) -> Result<&mut [u8], GpuError> {
        self.staging.grow(context, bytes)?;
        if self.input.num_bytes() < bytes {
            self.input = allocate(copy, bytes, "device memory for an image")?;
        }
        self.staging.first(bytes)
    }

    /// Starts the one copy of the `bytes` staged bytes to the device.
    pub fn copy_up(&mut self, copy: &Arc<CudaStream>, bytes: usize) -> Result<(), GpuError> {
        let failed = |error| GpuError::cuda("copying pixels to the device", error);
        let have = self.input.num_bytes();
        let staged = self.staging.first(bytes)?;
        let mut input =
            self.input.try_slice_mut(..bytes).ok_or(GpuError::Bounds { what: "device input", need: bytes, have })?;
        self.started.record(copy).map_err(failed)?;
        copy.memcpy_htod(&*staged, &mut input).map_err(failed)
    }

    /// Lets the compute stream wait until the copy stream has the pixels on the device.
    pub fn hand_over(&self, copy: &CudaStream, compute: &CudaStream) -> Result<(), GpuError> {
        self.uploaded.record(copy).map_err(|error| GpuError::cuda("recording the upload", error))?;
        compute.wait(&self.uploaded).map_err(|error| GpuError::cuda("waiting for the upload", error))
    }

    /// What the copy brought to the device.
    pub fn input(&self) -> &CudaSlice<u8> {
        &self.input
    }

    /// Pinned memory for `bytes` of tensors.
    pub fn prepare_readback(&mut self, context: &Arc<CudaContext>, bytes: usize) -> Result<(), GpuError> {
        self.readback.grow(context, bytes)
    }

    /// Starts the copy of the first `bytes` of `tensors` back, after all that is on the compute stream.
    pub fn read_back(
        &mut self,
        compute: &Arc<CudaStream>,
        tensors: &CudaSlice<u8>,
        bytes: usize,
    ) -> Result<(), GpuError> {
        let failed = |error| GpuError::cuda("copying tensors to the host", error);
        let have = tensors.num_bytes();
        let made = tensors.try_slice(..bytes).ok_or(GpuError::Bounds { what: "tensors", need: bytes, have })?;
        compute.memcpy_dtoh(&made, self.readback.first(bytes)?).map_err(failed)?;
        self.read = bytes;
        self.done.record(compute).map_err(failed)
    }

    /// Waits for the tensors.
    pub fn wait(&mut self) -> Result<&[u8], GpuError> {
        self.done.synchronize().map_err(|error| GpuError::cuda("waiting for the tensors", error))?;
        Ok(self.readback.first(self.read)?)
    }

    /// Microseconds from the copy's start to its end, and from there to the tensors in pinned memory.
    pub fn times(&self) -> Result<(u64, u64), GpuError> {
        let between = |from: &CudaEvent, to: &CudaEvent| {
            from.elapsed_ms(to).map(micros).map_err(|error| GpuError::cuda("reading the time", error))
        };
        Ok((between(&self.started, &self.uploaded)?, between(&self.uploaded, &self.done)?))
    }
}

impl Drop for Slot {
    /// An unfinished slot may still be read and written by the GPU. An error here means that the context is lost,
    /// and then no copy is under way either.
    fn drop(&mut self) {
        for event in [&self.uploaded, &self.done] {
            event.synchronize().ok();
        }
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a time is not negative; it saturates")]
fn micros(milliseconds: f32) -> u64 {
    (f64::from(milliseconds) * 1e3) as u64
}
