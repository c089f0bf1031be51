//! The driver's pool that all device memory here comes from, stream-ordered: what it keeps, and what it holds.

use cudarc::driver::CudaContext;
use cudarc::driver::sys::{
    CUmemPool_attribute_enum as Attribute, CUmemoryPool, cuDeviceGetDefaultMemPool, cuMemPoolGetAttribute,
    cuMemPoolSetAttribute, cuMemPoolTrimTo,
};

use super::error::GpuError;

/// What the pool holds, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PoolUse {
    /// Taken from the device.
    pub reserved: u64,
    /// In use.
    pub used: u64,
    /// Most that was ever taken.
    pub reserved_high: u64,
    /// Most that was ever in use.
    pub used_high: u64,
}

/// The default pool of a context's device.
#[derive(Debug, Clone, Copy)]
pub struct Pool(CUmemoryPool);

// SAFETY: the handle names the device's own pool, which lives as long as the driver does; its calls may be made from
// any thread.
unsafe impl Send for Pool {}
// SAFETY: as above.
unsafe impl Sync for Pool {}

impl Pool {
    /// The pool of `context`'s device, told to keep up to `bytes` of freed memory: giving it back to the device and
    /// taking it again would cost each wait of the host a call into the kernel.
    ///
    /// # Errors
    /// [`GpuError::Cuda`] on a device without pools.
    pub fn keeping(context: &CudaContext, bytes: u64) -> Result<Self, GpuError> {
        let mut pool = std::ptr::null_mut();
        // SAFETY: the call writes one handle to its first argument, which lives here; the device is the context's.
        let answer = unsafe { cuDeviceGetDefaultMemPool(&raw mut pool, context.cu_device()) };
        answer.result().map_err(|error| GpuError::cuda("asking for the device's memory pool", error))?;
        let mut bytes = bytes;
        let value = (&raw mut bytes).cast();
        // SAFETY: this attribute is a 64-bit number, which lives here and is only read.
        let answer = unsafe { cuMemPoolSetAttribute(pool, Attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, value) };
        answer.result().map_err(|error| GpuError::cuda("setting the memory pool's threshold", error))?;
        Ok(Self(pool))
    }

    /// What it holds now.
    ///
    /// # Errors
    /// [`GpuError::Cuda`].
    pub fn holds(self) -> Result<PoolUse, GpuError> {
        Ok(PoolUse {
            reserved: self.get(Attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)?,
            used: self.get(Attribute::CU_MEMPOOL_ATTR_USED_MEM_CURRENT)?,
            reserved_high: self.get(Attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH)?,
            used_high: self.get(Attribute::CU_MEMPOOL_ATTR_USED_MEM_HIGH)?,
        })
    }

    /// Gives back to the device all that is reserved and not in use.
    ///
    /// # Errors
    /// [`GpuError::Cuda`].
    pub fn trim(self) -> Result<(), GpuError> {
        // SAFETY: the handle is the device's own pool, which the driver keeps; memory in use is not touched.
        let answer = unsafe { cuMemPoolTrimTo(self.0, 0) };
        answer.result().map_err(|error| GpuError::cuda("trimming the memory pool", error))
    }

    fn get(self, attribute: Attribute) -> Result<u64, GpuError> {
        let mut bytes = 0_u64;
        // SAFETY: the four attributes asked for are 64-bit numbers; one is written here.
        let answer = unsafe { cuMemPoolGetAttribute(self.0, attribute, (&raw mut bytes).cast()) };
        answer.result().map_err(|error| GpuError::cuda("asking for the memory pool's use", error))?;
        Ok(bytes)
    }
}
