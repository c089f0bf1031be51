//! The device that tensors are derived on: the CPU, or the one GPU that this process sees.

use refmill::beat::DeviceMemory;
use refmill::failure::{Code, Failure};
use refmill::recipe::TensorSpec;
use refmill::report;

use crate::colour::Unconverted;
use crate::gpu::Gpu;
use crate::gpu::batch::Refused;
use crate::pipeline::Run;
use crate::repair::Repaired;
use crate::srgb::SrgbImage;
use crate::tensors::cpu::CpuDevice;
use crate::tensors::{Derivation, Shape};

/// What the supervisor asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// A GPU if one starts, else the CPU.
    Auto,
    /// The CPU.
    Cpu,
    /// A GPU or nothing.
    Cuda,
}

impl Wanted {
    /// The kind of device that is prepared for: `cpu`, `cuda` or `auto`.
    #[must_use]
    pub fn kind(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Cpu => "cpu",
            Self::Cuda => "cuda",
        }
    }
}

/// What became of encoded bytes that were offered to the GPU.
pub(crate) enum Encoded {
    /// Tensors.
    Derived(Shape, Derivation),
    /// Nothing: the CPU has to decode, for this reason; none where there is no GPU.
    Cpu(String),
    /// A failure, and whether the device is lost with the job.
    Failed(Failure, bool),
}

/// A started device.
#[derive(Debug)]
pub enum Device {
    /// The CPU.
    Cpu(Box<CpuDevice>, report::Device),
    /// A GPU.
    Cuda(Box<Gpu>),
}

impl Device {
    /// Starts the device that is wanted, and no other GPU than `uuid` where one is named.
    ///
    /// # Errors
    /// [`refmill::failure::Code::Device`] where a GPU is wanted and does not start.
    pub fn start(wanted: Wanted, uuid: Option<&str>) -> Result<Self, Failure> {
        match wanted {
            Wanted::Cpu => Ok(Self::cpu("asked for")),
            Wanted::Cuda => Ok(Self::Cuda(Box::new(Gpu::start(uuid)?))),
            Wanted::Auto => Ok(match Gpu::start(uuid) {
                Ok(gpu) => Self::Cuda(Box::new(gpu)),
                Err(error) => Self::cpu(&format!("auto: no GPU started: {error}")),
            }),
        }
    }

    fn cpu(reason: &str) -> Self {
        let about = report::Device { kind: "cpu".into(), reason: reason.into(), ..report::Device::default() };
        Self::Cpu(Box::new(CpuDevice::new()), about)
    }

    /// What it is and why it was chosen.
    #[must_use]
    pub fn about(&self) -> report::Device {
        match self {
            Self::Cpu(_, about) => about.clone(),
            Self::Cuda(gpu) => gpu.device(),
        }
    }

    /// Derives the tensors of one image.
    ///
    /// # Errors
    /// [`refmill::failure::Code::Tensor`] or [`refmill::failure::Code::Device`]; the flag says whether the device is lost with the job.
    pub fn derive(&mut self, image: &SrgbImage, specs: &[TensorSpec]) -> Result<Derivation, (Failure, bool)> {
        match self {
            Self::Cpu(cpu, _) => cpu.derive(image, specs).map_err(|failure| (failure, false)),
            Self::Cuda(gpu) => gpu.derive(image, specs).map_err(|error| {
                let sticky = error.is_sticky();
                (Failure::from(error), sticky)
            }),
        }
    }

    /// Derives the tensors of a JPEG by the GPU's own decoder, where there is one and it can.
    pub(crate) fn derive_encoded(
        &mut self,
        run: &mut Run<'_>,
        repaired: &Repaired<'_>,
        specs: &[TensorSpec],
    ) -> Encoded {
        let Self::Cuda(gpu) = self else { return Encoded::Cpu(String::new()) };
        match gpu.derive_encoded(run, repaired, specs) {
            Ok((shape, derivation)) => Encoded::Derived(shape, derivation),
            Err(Refused::Cpu(reason)) => Encoded::Cpu(reason),
            Err(Refused::Limits(failure)) => Encoded::Failed(failure, false),
            Err(Refused::Device(error)) => {
                let sticky = error.is_sticky();
                Encoded::Failed(Failure::from(error), sticky)
            }
        }
    }

    /// Whether this device converts `image` itself.
    pub(crate) fn converts(&self, image: &Unconverted) -> bool {
        matches!(self, Self::Cuda(_)) && image.program().is_some()
    }

    /// Converts and derives in one go, on a device that [`Device::converts`] the image.
    ///
    /// # Errors
    /// As [`Device::derive`].
    pub(crate) fn derive_unconverted(
        &mut self,
        image: &Unconverted,
        background: [u8; 3],
        specs: &[TensorSpec],
    ) -> Result<Derivation, (Failure, bool)> {
        let Self::Cuda(gpu) = self else {
            return Err((Failure::new(Code::Internal, "the CPU was given pixels to convert by itself"), false));
        };
        gpu.derive_unconverted(image, background, specs).map_err(|error| {
            let sticky = error.is_sticky();
            (Failure::from(error), sticky)
        })
    }

    /// Page-locked memory, and memory on the GPU, as far as this side counts them.
    #[must_use]
    pub fn memory(&self) -> (u64, Option<DeviceMemory>) {
        match self {
            Self::Cpu(..) => (0, None),
            Self::Cuda(gpu) => gpu.memory(),
        }
    }

    /// Takes back the memory of tensors that were written.
    pub fn recycle(&mut self, derivation: Derivation) {
        match self {
            Self::Cpu(cpu, _) => cpu.recycle(derivation),
            Self::Cuda(gpu) => gpu.recycle(derivation),
        }
    }
}
