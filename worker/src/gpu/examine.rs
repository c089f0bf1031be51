//! What can be wrong with a GPU, each tried alone, in a worker that is confined: driver calls that jobs make as well.

use cudarc::driver::DevicePtr;
use refmill::examine::{Outcome, Trial, Tried};
use refmill::recipe::{Dtype, Filter, Layout, Normalise, Size, TensorSpec};

use super::error::GpuError;
use super::pinned::Pinned;
use super::{Gpu, allocate, upload};
use crate::orientation::Orientation;
use crate::srgb::SrgbImage;
use crate::tensors::cpu::CpuDevice;

const MIB: usize = 1 << 20;
/// Device memory that is taken and given back, in bytes.
const TAKEN: usize = 64 * MIB;
/// Bytes that go up and come back.
const COPIED: usize = 8 * MIB;
/// Images whose waits are counted.
const IMAGES: u64 = 4;

type Seen = Result<(Outcome, String), String>;

impl Gpu {
    /// Tries everything but the built-in image, and tells the free memory afterwards.
    pub(crate) fn examine(&mut self, expected: Option<&str>) -> (Vec<Tried>, Option<u64>) {
        let seen: [(Trial, Seen); 9] = [
            (Trial::Identity, Ok(self.identity(expected))),
            (Trial::Context, told(self.context_answers())),
            (Trial::Allocation, told(self.allocation())),
            (Trial::Alignment, self.alignment().map_err(|error| error.to_string())),
            (Trial::Copy, self.copies().map_err(|error| error.to_string())),
            (Trial::Kernel, self.kernels_agree()),
            (Trial::Pool, self.pool_gives_back().map_err(|error| error.to_string())),
            (Trial::Waits, self.waits()),
            (Trial::Decoder, Ok(self.decoder())),
        ];
        let tried = seen.into_iter().map(|(trial, seen)| match seen {
            Ok((outcome, text)) => Tried::new(trial, outcome, text),
            Err(problem) => Tried::new(trial, Outcome::Failed, problem),
        });
        let free = self.context.mem_get_info().ok().map(|(free, _)| free as u64);
        (tried.collect(), free)
    }

    /// The start compared the two already, and would not have come this far.
    fn identity(&self, expected: Option<&str>) -> (Outcome, String) {
        let found = &self.device.uuid;
        match expected {
            None => (Outcome::Doubtful, format!("{found} is the first visible GPU; none was asked for by its UUID")),
            Some(expected) if expected.starts_with("MIG-") => {
                (Outcome::Passed, format!("an instance of {found}; the driver does not tell {expected} itself"))
            }
            Some(expected) => (Outcome::Passed, format!("{found} was asked for as {expected}")),
        }
    }

    fn context_answers(&self) -> Result<String, GpuError> {
        let asked = |error| GpuError::cuda("asking the context", error);
        let (free, total) = self.context.mem_get_info().map_err(asked)?;
        let (major, minor) = self.context.compute_capability().map_err(asked)?;
        let name = &self.device.name;
        Ok(format!("{name}, compute capability {major}.{minor}, {} of {} MiB free", free / MIB, total / MIB))
    }

    fn allocation(&self) -> Result<String, GpuError> {
        let memory = allocate(&self.compute, TAKEN, "device memory")?;
        drop(memory);
        self.wait()?;
        Ok(format!("{} MiB taken, zeroed and given back", TAKEN / MIB))
    }

    fn alignment(&self) -> Result<(Outcome, String), GpuError> {
        let mut odd = 0;
        for bytes in [1, 300, 70_000, MIB] {
            let memory = allocate(&self.compute, bytes, "device memory")?;
            let (address, _guard) = memory.device_ptr(&self.compute);
            odd += u32::from(address % upload::ALIGNMENT as u64 != 0);
        }
        let outcome = if odd == 0 { Outcome::Passed } else { Outcome::Failed };
        let even = 4 - odd;
        Ok((outcome, format!("{even} of 4 allocations begin at a multiple of {} bytes", upload::ALIGNMENT)))
    }

    fn copies(&self) -> Result<(Outcome, String), GpuError> {
        let copied = |error| GpuError::cuda("copying through page-locked memory", error);
        let mut up = Pinned::towards_device("pinned memory", COPIED);
        up.grow(&self.context, COPIED)?;
        let bytes: Vec<u8> = (0..COPIED).map(|at| u8::try_from(at % 251).unwrap_or(0)).collect();
        let staged = up.first(COPIED)?;
        staged.copy_from_slice(&bytes);
        let mut memory = allocate(&self.compute, COPIED, "device memory")?;
        self.compute.memcpy_htod(&*staged, &mut memory).map_err(copied)?;
        let back = self.compute.clone_dtoh(&memory).map_err(copied)?;
        self.wait()?;
        let same = back.get(..COPIED) == Some(bytes.as_slice());
        let outcome = if same { Outcome::Passed } else { Outcome::Failed };
        let how = if same { "as they went" } else { "changed" };
        Ok((outcome, format!("{} MiB went up from page-locked memory and came back {how}", COPIED / MIB)))
    }

    fn kernels_agree(&mut self) -> Seen {
        let (image, specs) = sample()?;
        let ours = self.derive(&image, &specs).map_err(|error| error.to_string())?;
        let cpu = CpuDevice::new().derive(&image, &specs).map_err(|failure| failure.message)?;
        let bytes = |tensors: &[crate::tensors::Derived]| -> Vec<u8> {
            tensors.iter().flat_map(|tensor| tensor.bytes.iter().copied()).collect()
        };
        let (ours, cpu) = (bytes(&ours.tensors), bytes(&cpu.tensors));
        let other = ours.iter().zip(&cpu).filter(|(ours, cpu)| ours != cpu).count();
        if other > 0 || ours.len() != cpu.len() {
            return Err(format!("{other} of {} bytes of the tensors are not the CPU's", cpu.len()));
        }
        Ok((Outcome::Passed, format!("{} bytes of tensors are the CPU's", cpu.len())))
    }

    /// What is reserved in the driver's pool and not in use stays up to the threshold: other processes do not get it,
    /// and a figure of the device counts it. It has to go where it is asked for.
    fn pool_gives_back(&self) -> Result<(Outcome, String), GpuError> {
        drop(allocate(&self.compute, TAKEN, "device memory")?);
        self.wait()?;
        let kept = self.pool()?;
        self.loaded.pool.trim()?;
        let left = self.pool()?;
        let mib = |bytes: u64| bytes >> 20;
        let text = format!(
            "{} MiB reserved with {} MiB in use; {} MiB after the pool was told to give back the rest",
            mib(kept.reserved),
            mib(kept.used),
            mib(left.reserved)
        );
        let fell = left.reserved < kept.reserved;
        Ok((if fell { Outcome::Passed } else { Outcome::Failed }, text))
    }

    /// Passes only where each image's wait was counted: a path that counts none has shown nothing.
    fn waits(&mut self) -> Seen {
        let (image, specs) = sample()?;
        let before = self.watch().counts();
        for _ in 0..IMAGES {
            let derivation = self.derive(&image, &specs).map_err(|error| error.to_string())?;
            self.recycle(derivation);
        }
        let after = self.watch().counts();
        let streams = after.stream_waits.saturating_sub(before.stream_waits);
        let events = after.event_waits.saturating_sub(before.event_waits);
        let outcome = match (streams, events >= IMAGES) {
            (0, true) => Outcome::Passed,
            (0, false) => Outcome::Skipped,
            _ => Outcome::Doubtful,
        };
        let text = format!("{IMAGES} images; counted were {events} waits for an event, {streams} for a whole stream");
        Ok((outcome, text))
    }

    fn decoder(&self) -> (Outcome, String) {
        match &self.loaded.engine {
            Some(engine) => (Outcome::Passed, format!("{}; its pictures are libjpeg-turbo's", engine.description())),
            // The reason stands behind the choice of the GPU.
            None => (Outcome::Doubtful, self.device.reason.rsplit("; ").next().unwrap_or_default().to_owned()),
        }
    }

    fn wait(&self) -> Result<(), GpuError> {
        self.compute.synchronize().map_err(|error| GpuError::cuda("waiting for the GPU", error))
    }
}

fn told(result: Result<String, GpuError>) -> Seen {
    result.map(|text| (Outcome::Passed, text)).map_err(|error| error.to_string())
}

/// A small picture of waves with alpha, turned, and tensors of three types of it.
fn sample() -> Result<(SrgbImage, Vec<TensorSpec>), String> {
    let wave = |count: usize| (0..count).map(|at| u8::try_from(at * 7 % 256).unwrap_or(0)).collect::<Vec<u8>>();
    let image = SrgbImage::claim(53, 37, wave(53 * 37 * 3), Some(wave(53 * 37)), Orientation::UPRIGHT);
    let image = image.ok_or("the built-in picture is none")?;
    let spec = |dtype| TensorSpec {
        name: "examined".into(),
        size: Size::Cover { width: 24, height: 31 },
        filter: Filter::Lanczos3,
        layout: Layout::Nchw,
        dtype,
        normalise: Normalise::None,
    };
    Ok((image, [Dtype::U8, Dtype::F16, Dtype::F32].map(spec).into()))
}
