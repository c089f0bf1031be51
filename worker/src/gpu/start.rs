//! Finding the GPU, checking that it is the right one, and getting everything ready before confinement closes.

use std::sync::Arc;

use cudarc::driver::CudaContext;
use cudarc::driver::sys::{CUuuid, cuDriverGetVersion, is_culib_present};
use refmill::recipe::{Dtype, Filter, Layout, Normalise, Size, TensorSpec};
use refmill::report::Device;

use super::axes::Axes;
use super::batch::Single;
use super::error::GpuError;
use super::kernels::Kernels;
use super::pool::Pool;
use super::programs::Programs;
use super::slot::Ring;
use super::ycc::Convert;
use super::{Gpu, Loaded, WorkBuffers, allocate, nvjpeg};
use crate::orientation::Orientation;
use crate::srgb::SrgbImage;
use crate::tensors::Spares;

/// CUDA 12.0, the first whose drivers read PTX ISA 8.0.
const OLDEST_DRIVER: i32 = 12_000;
/// Freed device memory that is kept for the next images.
const KEPT_BYTES: u64 = 4 << 30;

impl Gpu {
    /// Takes the first visible GPU, which is the only one where the supervisor set `CUDA_VISIBLE_DEVICES`, and runs
    /// every kernel once: the driver translates PTX, opens files and starts threads until then, and never after.
    ///
    /// `expected_uuid` is the GPU's, as `GPU-` and 32 digits with hyphens. A `MIG-` UUID names a slice of a GPU:
    /// `cuDeviceGetUuid` gives the whole one's, so that the reason in [`Gpu::device`] says it was not compared.
    ///
    /// # Errors
    /// [`GpuError::is_absent`] tells a machine without GPU from one whose GPU does not work.
    pub fn start(expected_uuid: Option<&str>) -> Result<Self, GpuError> {
        check_driver()?;
        let context = CudaContext::new(0).map_err(|error| GpuError::cuda("opening the GPU", error))?;
        // SAFETY: disable_event_tracking asks that the caller orders all uses of device memory. Here each buffer
        // belongs to one stream, or to a slot whose events order the copy before the kernels and the kernels before
        // its next use (slot.rs). With tracking every launch would wait for and record two events per buffer.
        unsafe { context.disable_event_tracking() };
        let device = identify(&context, expected_uuid)?;
        let stream = || context.new_stream().map_err(|error| GpuError::cuda("making a stream", error));
        let (copy, compute) = (stream()?, stream()?);
        let buffer = || allocate(&compute, 1, "device memory");
        let work = WorkBuffers { tall: buffer()?, small: buffer()?, tensors: buffer()? };
        let kernels = Kernels::load(&context)?;
        let convert = Convert::load(&context)?;
        let named = std::env::var_os(nvjpeg::VARIABLE);
        let engine = nvjpeg::Engine::start(named.as_deref(), &compute, &convert);
        let device = with_decoder(device, &engine);
        let (ring, axes, spares) = (Ring::new(), Axes::default(), Spares::default());
        let (programs, pool) = (Programs::load(&context)?, Pool::keeping(&context, KEPT_BYTES)?);
        programs.warm_up(&compute)?;
        let loaded = Arc::new(Loaded { kernels, convert, programs, engine: engine.ok(), pool });
        let single = Single::new(&context, &loaded)?;
        let mut gpu = Self { ring, work, axes, spares, single, loaded, copy, compute, context, device };
        gpu.warm_up()?;
        Ok(gpu)
    }

    fn warm_up(&mut self) -> Result<(), GpuError> {
        let image = SrgbImage::claim(2, 2, vec![0; 12], Some(vec![0; 4]), Orientation::UPRIGHT);
        let specs = [Dtype::U8, Dtype::F16, Dtype::F32].map(|dtype| TensorSpec {
            name: "warm_up".into(),
            size: Size::Stretch { width: 3, height: 3 },
            filter: Filter::Bicubic,
            layout: Layout::Nchw,
            dtype,
            normalise: Normalise::None,
        });
        image.map_or(Ok(()), |image| self.derive(&image, &specs).map(drop))
    }
}

fn check_driver() -> Result<(), GpuError> {
    // SAFETY: is_culib_present opens libcuda by name; opening runs the library's initialisers, and libcuda's are
    // made for it.
    if !unsafe { is_culib_present() } {
        return Err(GpuError::NoDriver);
    }
    let mut version = 0;
    // SAFETY: cuDriverGetVersion writes one int to its argument, which lives here, and needs no cuInit; the library
    // is there, or cudarc would panic.
    let answer = unsafe { cuDriverGetVersion(&raw mut version) };
    answer.result().map_err(|error| GpuError::cuda("asking for the driver's version", error))?;
    if version < OLDEST_DRIVER { Err(GpuError::OldDriver { version }) } else { Ok(()) }
}

fn identify(context: &CudaContext, expected: Option<&str>) -> Result<Device, GpuError> {
    let asked = |error| GpuError::cuda("asking for the GPU's name", error);
    let name = context.name().map_err(asked)?;
    let found = uuid_text(context.uuid().map_err(asked)?);
    let reason = match expected {
        None => "the first visible GPU; no UUID was asked for",
        Some(expected) if expected.starts_with("MIG-") => {
            "the first visible GPU; a MIG UUID was asked for, which the driver's UUID of the whole GPU cannot confirm"
        }
        Some(expected) if expected.eq_ignore_ascii_case(&found) => "the GPU that was asked for by UUID",
        Some(expected) => return Err(GpuError::OtherDevice { expected: expected.into(), found }),
    };
    Ok(Device { kind: "cuda".into(), name, uuid: found, reason: reason.into() })
}

/// The device, with what decodes JPEG on it told in its reason.
fn with_decoder(device: Device, engine: &Result<Arc<nvjpeg::Engine>, String>) -> Device {
    let decoder = match engine {
        Ok(engine) => format!("JPEG by {}", engine.description()),
        Err(problem) => format!("JPEG on the CPU: {problem}"),
    };
    Device { reason: format!("{}; {decoder}", device.reason), ..device }
}

/// A UUID as `nvidia-smi -L` prints it.
fn uuid_text(uuid: CUuuid) -> String {
    let mut text = String::from("GPU");
    for (index, byte) in uuid.bytes.into_iter().enumerate() {
        if matches!(index, 0 | 4 | 6 | 8 | 10) {
            text.push('-');
        }
        for digit in [byte.cast_unsigned() >> 4, byte.cast_unsigned() & 0xf] {
            text.extend(char::from_digit(u32::from(digit), 16));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uuid_is_written_as_nvidia_smi_writes_it() {
        let bytes = [0x5d, -1, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13];
        assert_eq!(uuid_text(CUuuid { bytes }), "GPU-5dff0001-0203-0405-0607-08090a0b0c0d");
    }
}
