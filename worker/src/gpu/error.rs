//! Why the GPU could not do what was asked, and whether this process can go on.

use cudarc::driver::DriverError;
use cudarc::driver::sys::CUresult;
use refmill::failure::{Code, Failure};

/// What went wrong with the GPU.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GpuError {
    /// No driver library on this machine.
    #[error("the CUDA driver library (libcuda.so.1) is not on this machine")]
    NoDriver,
    /// The driver does not read the kernels' PTX.
    #[error("the driver speaks CUDA {}.{}, the kernels (PTX ISA 8.0) need 12.0, which is driver 525 or later",
        version / 1000, version % 1000 / 10)]
    OldDriver {
        /// As `cuDriverGetVersion` gives it.
        version: i32,
    },
    /// The visible GPU is not the one that was asked for.
    #[error("asked for {expected}, the visible GPU is {found}")]
    OtherDevice {
        /// The UUID asked for.
        expected: String,
        /// The UUID found.
        found: String,
    },
    /// Memory for one image over its fixed bound.
    #[error("{what} is {bytes} bytes, the limit is {limit}")]
    TooLarge {
        /// What the memory is for.
        what: &'static str,
        /// How much is needed.
        bytes: u64,
        /// How much is allowed.
        limit: u64,
    },
    /// Every slot is taken by an image that was submitted and not finished.
    #[error("all {slots} staging slots are taken by unfinished images")]
    Busy {
        /// How many there are.
        slots: usize,
    },
    /// A kernel would leave its buffer; it was not launched.
    #[error("{what} needs {need} bytes, its buffer has {have}")]
    Bounds {
        /// The buffer.
        what: &'static str,
        /// Bytes needed.
        need: usize,
        /// Bytes there.
        have: usize,
    },
    /// nvJPEG refused.
    #[error("{what}: nvJPEG says {status}")]
    Nvjpeg {
        /// What was attempted.
        what: &'static str,
        /// Its status, as nvjpeg.h names it.
        status: &'static str,
    },
    /// A driver call failed.
    #[error("{what}: {source:?}")]
    Cuda {
        /// What was attempted.
        what: &'static str,
        /// The driver's answer.
        source: DriverError,
    },
}

impl GpuError {
    pub(super) fn cuda(what: &'static str, source: DriverError) -> Self {
        Self::Cuda { what, source }
    }

    /// Whether the error outlives the call that met it: every later call in this process fails as well, or its
    /// results cannot be trusted, and only a new process helps.
    #[must_use]
    pub fn is_sticky(&self) -> bool {
        use CUresult as E;
        let Self::Cuda { source: DriverError(result), .. } = self else { return false };
        matches!(
            result,
            E::CUDA_ERROR_DEINITIALIZED
                | E::CUDA_ERROR_DEVICE_UNAVAILABLE
                | E::CUDA_ERROR_ECC_UNCORRECTABLE
                | E::CUDA_ERROR_NVLINK_UNCORRECTABLE
                | E::CUDA_ERROR_ILLEGAL_ADDRESS
                | E::CUDA_ERROR_LAUNCH_TIMEOUT
                | E::CUDA_ERROR_CONTEXT_IS_DESTROYED
                | E::CUDA_ERROR_ASSERT
                | E::CUDA_ERROR_HARDWARE_STACK_ERROR
                | E::CUDA_ERROR_ILLEGAL_INSTRUCTION
                | E::CUDA_ERROR_MISALIGNED_ADDRESS
                | E::CUDA_ERROR_INVALID_ADDRESS_SPACE
                | E::CUDA_ERROR_INVALID_PC
                | E::CUDA_ERROR_LAUNCH_FAILED
                | E::CUDA_ERROR_MPS_CLIENT_TERMINATED
                | E::CUDA_ERROR_EXTERNAL_DEVICE
                | E::CUDA_ERROR_UNKNOWN
        )
    }

    /// Whether there is no GPU to be had here at all, which a machine without one is expected to answer.
    #[must_use]
    pub fn is_absent(&self) -> bool {
        use CUresult as E;
        match self {
            Self::NoDriver => true,
            Self::Cuda { source: DriverError(result), .. } => {
                matches!(result, E::CUDA_ERROR_NO_DEVICE | E::CUDA_ERROR_STUB_LIBRARY)
            }
            _ => false,
        }
    }
}

impl From<GpuError> for Failure {
    fn from(error: GpuError) -> Self {
        match error {
            GpuError::TooLarge { what, bytes, limit } => Self::over_limit(what, bytes, limit),
            GpuError::Busy { .. } | GpuError::Bounds { .. } => Self::new(Code::Internal, error.to_string()),
            _ => Self::new(Code::Device, error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn illegal_address_is_sticky_and_out_of_memory_is_not() {
        let error = |result| GpuError::cuda("launching a kernel", DriverError(result));
        assert!(error(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS).is_sticky());
        assert!(!error(CUresult::CUDA_ERROR_OUT_OF_MEMORY).is_sticky());
    }

    #[test]
    fn missing_driver_is_absence() {
        assert!(GpuError::NoDriver.is_absent() && !GpuError::NoDriver.is_sticky());
    }

    #[test]
    fn old_driver_is_named_with_what_it_takes() {
        let text = GpuError::OldDriver { version: 11080 }.to_string();
        assert_eq!(
            text,
            "the driver speaks CUDA 11.8, the kernels (PTX ISA 8.0) need 12.0, which is driver 525 or later"
        );
    }

    #[test]
    fn too_large_is_blamed_on_the_limits() {
        let failure = Failure::from(GpuError::TooLarge { what: "staging of one image", bytes: 9, limit: 8 });
        assert_eq!(
            (failure.code, failure.message.as_str()),
            (Code::OverLimit, "staging of one image is 9, the limit is 8")
        );
    }
}
