//! GPUs by UUID without CUDA: only `/proc` and `/dev` are read, and nothing is opened that a driver answers.

use std::fmt;
use std::fs;
use std::io::Read;
use std::path::Path;

/// What was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    /// A GPU where one is listed, else the CPU.
    Auto,
    /// The CPU.
    Cpu,
    /// A GPU, or nothing.
    Cuda,
}

/// The UUID of a GPU or of a MIG instance, checked: it is safe in an environment variable and an argument.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GpuUuid(String);

/// The device that workers are started on, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// The GPU; the CPU without one.
    pub gpu: Option<GpuUuid>,
    /// Why this one, for the user and the report.
    pub reason: String,
    /// Whether the CPU takes over when the GPU does not start.
    pub may_fall_back: bool,
}

/// Why no device can be chosen.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    /// Not the form that NVIDIA's tools print.
    #[error(
        "gpu `{text}` is not a UUID of the form GPU-8-4-4-4-12 or MIG-8-4-4-4-12 hexadecimal digits; `nvidia-smi -L` lists them"
    )]
    Uuid {
        /// As typed.
        text: String,
    },
    /// `--gpu` beside `--device cpu`.
    #[error("--gpu names a GPU and --device cpu rules it out")]
    Contradiction,
    /// No sign of a GPU at all.
    #[error("--device cuda needs an NVIDIA GPU, none is listed under /proc/driver/nvidia/gpus")]
    NoGpu,
    /// There is a GPU, but its UUID cannot be seen.
    #[error(
        "an NVIDIA device is present but no UUID is listed under /proc/driver/nvidia/gpus; pass one with --gpu UUID (`nvidia-smi -L` lists them)"
    )]
    Unlisted,
}

impl GpuUuid {
    /// Reads `GPU-` or `MIG-` and a UUID.
    ///
    /// # Errors
    /// [`DeviceError::Uuid`] for any other form.
    pub fn parse(text: &str) -> Result<Self, DeviceError> {
        let refused = || DeviceError::Uuid { text: text.chars().take(80).collect() };
        let digits = text.strip_prefix("GPU-").or_else(|| text.strip_prefix("MIG-")).ok_or_else(refused)?;
        let groups: Vec<&str> = digits.split('-').collect();
        let lengths: Vec<usize> = groups.iter().map(|group| group.len()).collect();
        let hexadecimal = groups.iter().all(|group| group.bytes().all(|byte| byte.is_ascii_hexdigit()));
        if lengths == [8, 4, 4, 4, 12] && hexadecimal { Ok(Self(text.to_owned())) } else { Err(refused()) }
    }

    /// The text, prefix included.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether `other` names the same device; the prefix does not count, since CUDA does not tell it.
    #[must_use]
    pub fn is_same(&self, other: &str) -> bool {
        let bare = |text: &str| text.trim_start_matches("GPU-").trim_start_matches("MIG-").to_ascii_lowercase();
        bare(&self.0) == bare(other)
    }
}

impl fmt::Display for GpuUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Choice {
    /// The CPU, for `reason`.
    #[must_use]
    pub fn cpu(reason: impl Into<String>) -> Self {
        Self { gpu: None, reason: reason.into(), may_fall_back: false }
    }

    /// `cpu` or `cuda`.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        if self.gpu.is_some() { "cuda" } else { "cpu" }
    }
}

/// Chooses the device. `root` is `/`; tests pass another.
///
/// # Errors
/// A [`DeviceError`] where what was asked for cannot be had.
pub fn choose(wish: Wish, gpu: Option<GpuUuid>, root: &Path) -> Result<Choice, DeviceError> {
    match (wish, gpu) {
        (Wish::Cpu, Some(_)) => Err(DeviceError::Contradiction),
        (Wish::Cpu, None) => Ok(Choice::cpu("asked for")),
        (_, Some(gpu)) => Ok(Choice { gpu: Some(gpu), reason: "asked for".into(), may_fall_back: false }),
        (Wish::Cuda, None) => match listed(root).into_iter().next() {
            Some(gpu) => Ok(Choice { gpu: Some(gpu), reason: "first GPU listed".into(), may_fall_back: false }),
            None if present(root) => Err(DeviceError::Unlisted),
            None => Err(DeviceError::NoGpu),
        },
        (Wish::Auto, None) => Ok(automatic(root)),
    }
}

fn automatic(root: &Path) -> Choice {
    let gpus = listed(root);
    let count = gpus.len();
    match gpus.into_iter().next() {
        Some(gpu) => {
            Choice { gpu: Some(gpu), reason: format!("auto: first of {count} NVIDIA GPUs listed"), may_fall_back: true }
        }
        None if present(root) => {
            Choice::cpu("auto: an NVIDIA device is present but its UUID is not listed, pass it with --gpu")
        }
        None => Choice::cpu("auto: no NVIDIA GPU listed under /proc/driver/nvidia/gpus"),
    }
}

/// The UUIDs that the driver lists, in PCI bus order. What cannot be read is not listed.
#[must_use]
pub fn listed(root: &Path) -> Vec<GpuUuid> {
    let Ok(entries) = fs::read_dir(root.join("proc/driver/nvidia/gpus")) else { return Vec::new() };
    let mut folders: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    folders.sort();
    folders.iter().filter_map(|folder| uuid_of(&folder.join("information"))).collect()
}

fn uuid_of(information: &Path) -> Option<GpuUuid> {
    let mut text = String::new();
    fs::File::open(information).ok()?.take(16 << 10).read_to_string(&mut text).ok()?;
    let value = text.lines().find_map(|line| line.strip_prefix("GPU UUID:"))?;
    GpuUuid::parse(value.trim()).ok()
}

fn present(root: &Path) -> bool {
    root.join("dev/nvidia0").exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "GPU-0a1b2c3d-0000-1111-2222-333344445555";
    const B: &str = "GPU-ffffffff-0000-1111-2222-333344445555";

    fn machine(gpus: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        gpus.iter().for_each(|(bus, uuid)| {
            let folder = root.path().join("proc/driver/nvidia/gpus").join(bus);
            fs::create_dir_all(&folder).unwrap();
            let text = format!("Model: \t\t NVIDIA H200\nIRQ:   \t\t 5\nGPU UUID: \t {uuid}\nBus Type: \t PCIe\n");
            fs::write(folder.join("information"), text).unwrap();
        });
        root
    }

    #[test]
    fn gpus_are_listed_in_bus_order() {
        let root = machine(&[("0000:09:00.0", B), ("0000:01:00.0", A)]);
        assert_eq!(listed(root.path()), [GpuUuid::parse(A).unwrap(), GpuUuid::parse(B).unwrap()]);
    }

    #[test]
    fn gpu_with_a_hidden_uuid_is_not_listed() {
        let root = machine(&[("0000:01:00.0", "GPU-????????-????-????-????-????????????")]);
        assert_eq!(listed(root.path()), []);
    }

    #[test]
    fn auto_with_a_gpu_takes_the_first_and_may_fall_back() {
        let root = machine(&[("0000:01:00.0", A)]);
        let choice = choose(Wish::Auto, None, root.path()).unwrap();
        assert_eq!((choice.kind(), choice.may_fall_back), ("cuda", true));
    }

    #[test]
    fn auto_without_a_gpu_is_the_cpu() {
        let root = machine(&[]);
        let choice = choose(Wish::Auto, None, root.path()).unwrap();
        assert_eq!(choice, Choice::cpu("auto: no NVIDIA GPU listed under /proc/driver/nvidia/gpus"));
    }

    #[test]
    fn auto_with_an_unlisted_device_is_the_cpu_and_says_how_to_name_it() {
        let root = machine(&[]);
        fs::create_dir(root.path().join("dev")).unwrap();
        fs::write(root.path().join("dev/nvidia0"), "").unwrap();
        let choice = choose(Wish::Auto, None, root.path()).unwrap();
        assert!(choice.reason.contains("--gpu"), "{}", choice.reason);
        assert_eq!(choose(Wish::Cuda, None, root.path()), Err(DeviceError::Unlisted));
    }

    #[test]
    fn cuda_without_a_gpu_is_refused() {
        assert_eq!(choose(Wish::Cuda, None, machine(&[]).path()), Err(DeviceError::NoGpu));
    }

    #[test]
    fn named_gpu_is_taken_as_it_is() {
        let uuid = GpuUuid::parse("MIG-0a1b2c3d-0000-1111-2222-333344445555").unwrap();
        let choice = choose(Wish::Auto, Some(uuid.clone()), machine(&[]).path()).unwrap();
        assert_eq!((choice.gpu, choice.may_fall_back), (Some(uuid), false));
    }

    #[test]
    fn named_gpu_beside_the_cpu_is_refused() {
        let uuid = GpuUuid::parse(A).unwrap();
        assert_eq!(choose(Wish::Cpu, Some(uuid), machine(&[]).path()), Err(DeviceError::Contradiction));
    }

    #[test]
    fn index_is_not_a_uuid() {
        assert!(matches!(GpuUuid::parse("0"), Err(DeviceError::Uuid { .. })));
        assert!(matches!(GpuUuid::parse("GPU-0a1b2c3d-0000-1111-2222-33334444555g"), Err(DeviceError::Uuid { .. })));
    }

    #[test]
    fn prefix_and_case_do_not_make_another_gpu() {
        assert!(GpuUuid::parse(A).unwrap().is_same(&A.replace("GPU-", "MIG-").to_uppercase()));
        assert!(!GpuUuid::parse(A).unwrap().is_same(B));
    }
}
