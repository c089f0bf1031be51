//! Page-locked host memory that grows to the largest image seen and then stays. Locking pages is slow (a GiB takes
//! 0.4 s) and takes locks of the whole driver, so it is done in powers of two, and never for an image that fits.

use std::sync::Arc;

use cudarc::driver::sys::CU_MEMHOSTALLOC_WRITECOMBINED;
use cudarc::driver::{CudaContext, PinnedHostSlice};

use super::error::GpuError;

const SMALLEST: usize = 1 << 20;

/// One buffer, used in one direction.
#[derive(Debug)]
pub(super) struct Pinned {
    memory: Option<PinnedHostSlice<u8>>,
    flags: u32,
    what: &'static str,
    limit: usize,
}

impl Pinned {
    /// Towards the device: write-combined, so it is written once, in order, and never read on the host.
    pub fn towards_device(what: &'static str, limit: usize) -> Self {
        Self { memory: None, flags: CU_MEMHOSTALLOC_WRITECOMBINED, what, limit }
    }

    /// From the device: cached, since the host reads it.
    pub fn from_device(what: &'static str, limit: usize) -> Self {
        Self { memory: None, flags: 0, what, limit }
    }

    /// Bytes held.
    pub fn held(&self) -> usize {
        self.memory.as_ref().map_or(0, PinnedHostSlice::len)
    }

    /// Grows to at least `bytes`. No copy that uses the buffer may be under way.
    pub fn grow(&mut self, context: &Arc<CudaContext>, bytes: usize) -> Result<(), GpuError> {
        if bytes > self.limit {
            return Err(GpuError::TooLarge { what: self.what, bytes: bytes as u64, limit: self.limit as u64 });
        }
        if self.held() >= bytes {
            return Ok(());
        }
        let rounded = bytes.next_power_of_two().clamp(SMALLEST, self.limit);
        self.memory = None;
        // SAFETY: alloc_pinned_with_flags leaves the memory unset; every byte is set just below, before a slice of
        // it is made.
        let memory = unsafe { context.alloc_pinned_with_flags::<u8>(rounded, self.flags) };
        let mut memory = memory.map_err(|error| GpuError::cuda(self.what, error))?;
        let start = memory.as_mut_ptr().map_err(|error| GpuError::cuda(self.what, error))?;
        // SAFETY: write_bytes needs `rounded` writable bytes at `start`: the allocation just made has as many, and
        // nobody else knows of it yet.
        unsafe { start.write_bytes(0, rounded) };
        self.memory = Some(memory);
        Ok(())
    }

    /// The first `bytes` bytes. No copy that uses the buffer may be under way.
    pub fn first(&mut self, bytes: usize) -> Result<&mut [u8], GpuError> {
        let (what, have) = (self.what, self.held());
        let memory = match &mut self.memory {
            Some(memory) => memory.as_mut_slice().map_err(|error| GpuError::cuda(what, error))?,
            None => &mut [],
        };
        memory.get_mut(..bytes).ok_or(GpuError::Bounds { what, need: bytes, have })
    }
}
