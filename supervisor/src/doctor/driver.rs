//! The NVIDIA driver as the machine shows it: files and nodes alone, no call into it.

use std::fs;
use std::path::{Path, PathBuf};

use nix::unistd::{AccessFlags, access};

use super::Patient;
use super::check::{Check, Checked, Severity};
use crate::devices;

/// The first branch whose drivers read PTX ISA 8.0.
const OLDEST: u32 = 525;
/// Nodes that every GPU needs.
const NODES: [&str; 3] = ["nvidiactl", "nvidia-uvm", "nvidia-uvm-tools"];
/// Where libcuda lies, besides the folders of `LD_LIBRARY_PATH`.
const FOLDERS: [&str; 8] = [
    "usr/lib/x86_64-linux-gnu",
    "usr/lib64",
    "lib64",
    "usr/lib",
    "usr/local/nvidia/lib64",
    "usr/local/cuda/compat",
    "usr/lib/wsl/lib",
    "run/opengl-driver/lib",
];

/// All checks of this module.
pub(super) const CHECKS: &[Check] = &[
    Check::DriverModule,
    Check::DriverMatch,
    Check::DriverPtx,
    Check::DeviceNodes,
    Check::GpuListed,
    Check::VisibleDevices,
    Check::Mig,
    Check::Mps,
];

pub(super) fn check(patient: &Patient) -> Vec<Checked> {
    let root = &patient.root;
    let wanted = patient.choice.gpu.is_some();
    let there = root.join("proc/driver/nvidia").exists() || root.join("dev/nvidiactl").exists();
    if !wanted && !there {
        return CHECKS.iter().map(|check| Checked::new(*check, Severity::Skipped, "no GPU")).collect();
    }
    let module = module(root);
    let library = library(patient);
    vec![
        module_there(module.as_deref()),
        matching(module.as_deref(), library.as_ref()),
        reads_ptx(module.as_deref()),
        nodes(root),
        listed(patient),
        visible(patient.visible_devices.as_deref()),
        mig(patient),
        mps(patient),
    ]
}

fn module_there(module: Option<&str>) -> Checked {
    match module {
        Some(version) => Checked::new(Check::DriverModule, Severity::Ok, format!("version {version}")),
        None => Checked::new(Check::DriverModule, Severity::Failure, "/proc/driver/nvidia/version tells no version"),
    }
}

fn matching(module: Option<&str>, library: Option<&(PathBuf, String)>) -> Checked {
    let told = |severity, seen: String| Checked::new(Check::DriverMatch, severity, seen);
    let Some((path, version)) = library else {
        return told(Severity::Failure, "libcuda.so.1 is in none of the usual folders nor in LD_LIBRARY_PATH".into());
    };
    let place = path.display();
    match module {
        Some(module) if module == version => told(Severity::Ok, format!("{place} and the module are {version}")),
        Some(module) if path.components().any(|part| part.as_os_str() == "compat") => {
            told(Severity::Note, format!("{place} is {version}, for forward compatibility with the module's {module}"))
        }
        Some(module) => {
            told(Severity::Failure, format!("ABI mismatch: {place} is {version}, the kernel's module is {module}"))
        }
        None => told(Severity::Failure, format!("{place} is {version}, and there is no module")),
    }
}

fn reads_ptx(module: Option<&str>) -> Checked {
    let branch = module.and_then(|version| version.split('.').next()?.parse::<u32>().ok());
    let (severity, seen) = match branch {
        Some(branch) if branch < OLDEST => {
            (Severity::Failure, format!("driver {branch}, the kernels (PTX ISA 8.0) need {OLDEST} or later"))
        }
        Some(branch) => (Severity::Ok, format!("driver {branch} reads PTX ISA 8.0, as all from {OLDEST} on")),
        None => (Severity::Failure, "the driver's version is not known".into()),
    };
    Checked::new(Check::DriverPtx, severity, seen)
}

fn nodes(root: &Path) -> Checked {
    let dev = root.join("dev");
    let gpus = fs::read_dir(&dev).into_iter().flatten().flatten().filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        let number = name.strip_prefix("nvidia")?;
        (!number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())).then_some(name)
    });
    let gpus: Vec<String> = gpus.collect();
    let mut faults: Vec<String> = Vec::new();
    if gpus.is_empty() {
        faults.push("no /dev/nvidia0 or other GPU node".into());
    }
    for name in NODES.into_iter().map(str::to_owned).chain(gpus.iter().cloned()) {
        let path = dev.join(&name);
        if !path.exists() {
            faults.push(format!("/dev/{name} is missing"));
        } else if let Err(error) = access(&path, AccessFlags::R_OK | AccessFlags::W_OK) {
            faults.push(format!("/dev/{name} cannot be read and written: {error}"));
        }
    }
    if faults.is_empty() {
        return Checked::new(Check::DeviceNodes, Severity::Ok, format!("{} GPU nodes and the common ones", gpus.len()));
    }
    Checked::new(Check::DeviceNodes, Severity::Failure, faults.join("; "))
}

fn listed(patient: &Patient) -> Checked {
    let listed = devices::listed(&patient.root);
    let told = |severity, seen: String| Checked::new(Check::GpuListed, severity, seen);
    let names: Vec<String> = listed.iter().map(ToString::to_string).collect();
    match &patient.choice.gpu {
        Some(gpu) if gpu.as_str().starts_with("MIG-") => told(Severity::Note, format!("{gpu} is an instance: see mig")),
        Some(gpu) if listed.iter().any(|one| one.is_same(gpu.as_str())) => {
            told(Severity::Ok, format!("{gpu} is listed"))
        }
        Some(gpu) => told(Severity::Failure, format!("{gpu} is not among {}", names.join(", "))),
        None if names.is_empty() => {
            told(Severity::Warning, "the driver lists no UUID under /proc/driver/nvidia/gpus".into())
        }
        None => told(Severity::Note, format!("listed and not used: {}", names.join(", "))),
    }
}

fn visible(value: Option<&str>) -> Checked {
    let told = |severity, seen: String| Checked::new(Check::VisibleDevices, severity, seen);
    match value {
        None => told(Severity::Ok, "CUDA_VISIBLE_DEVICES is not set".into()),
        Some("") => told(Severity::Note, "CUDA_VISIBLE_DEVICES is empty: it hides all GPUs".into()),
        Some(text) if text.split(',').all(|part| part.starts_with("GPU-") || part.starts_with("MIG-")) => {
            told(Severity::Ok, format!("CUDA_VISIBLE_DEVICES={text}"))
        }
        Some(text) => told(Severity::Warning, format!("CUDA_VISIBLE_DEVICES={text} has indexes")),
    }
}

fn mig(patient: &Patient) -> Checked {
    let told = |severity, seen: String| Checked::new(Check::Mig, severity, seen);
    let instances = instances(&patient.root.join("proc/driver/nvidia/capabilities"));
    let wants = patient.choice.gpu.as_ref().is_some_and(|gpu| gpu.as_str().starts_with("MIG-"));
    match (instances, wants) {
        (0, true) => told(Severity::Failure, "a MIG instance was asked for, and the driver shows none".into()),
        (0, false) => told(Severity::Ok, "no MIG instances".into()),
        (count, true) => told(Severity::Ok, format!("{count} MIG instances")),
        (count, false) => {
            told(Severity::Warning, format!("{count} MIG instances, and no instance was named with --gpu"))
        }
    }
}

/// GPU instances below `capabilities/gpuN/mig/giN`.
fn instances(folder: &Path) -> usize {
    let entries = |path: PathBuf| fs::read_dir(path).into_iter().flatten().flatten();
    let is_instance = |entry: &fs::DirEntry| entry.file_name().to_string_lossy().starts_with("gi");
    entries(folder.to_owned()).map(|gpu| entries(gpu.path().join("mig")).filter(is_instance).count()).sum()
}

fn mps(patient: &Patient) -> Checked {
    let folder = patient.mps_folder.clone().unwrap_or_else(|| patient.root.join("tmp/nvidia-mps"));
    if folder.join("control").exists() {
        let seen = format!("an MPS daemon's pipe is in {}", folder.display());
        return Checked::new(Check::Mps, Severity::Warning, seen);
    }
    Checked::new(Check::Mps, Severity::Ok, "no MPS daemon")
}

/// The version in `NVRM version: NVIDIA UNIX ... 580.95.05  Release Build ...`.
fn module(root: &Path) -> Option<String> {
    let text = fs::read_to_string(root.join("proc/driver/nvidia/version")).ok()?;
    let line = text.lines().find(|line| line.starts_with("NVRM version"))?;
    line.split_whitespace().find(|word| is_version(word)).map(str::to_owned)
}

/// libcuda, by the version in the name of the file that its link leads to.
fn library(patient: &Patient) -> Option<(PathBuf, String)> {
    let folders = patient.library_path.iter().cloned().chain(FOLDERS.iter().map(|folder| patient.root.join(folder)));
    folders.into_iter().find_map(|folder| {
        let link = folder.join("libcuda.so.1");
        let file = fs::canonicalize(&link).ok()?;
        let version = file.file_name()?.to_str()?.strip_prefix("libcuda.so.")?.to_owned();
        is_version(&version).then_some((link, version))
    })
}

fn is_version(word: &str) -> bool {
    word.contains('.') && word.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
}
