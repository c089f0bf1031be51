//! The machine: memory, limits, the container, and what the kernel lets be made.

use std::fs;

use nix::sys::resource::{Resource, getrlimit};

use super::Patient;
use super::check::{Check, Checked, Severity};
use crate::memory::OutputRegion;
use crate::pool::spawn::Namespaces;
use crate::pool::{cgroup, namespaces};

const MIB: u64 = 1 << 20;
/// Fewest descriptors that a supervisor and its workers do with.
const DESCRIPTORS: u64 = 1024;
/// Longest TMPDIR: a socket's path has 107 bytes, of which folders and names below take some 40.
const LONGEST: usize = 64;

/// All checks of this module.
pub(super) const CHECKS: &[Check] = &[
    Check::Container,
    Check::Memory,
    Check::Descriptors,
    Check::Memlock,
    Check::SharedMemory,
    Check::TemporaryFolder,
    Check::Namespaces,
    Check::Cgroup,
];

pub(super) fn check(patient: &Patient) -> Vec<Checked> {
    vec![
        container(patient),
        memory(patient),
        descriptors(getrlimit(Resource::RLIMIT_NOFILE).map_or(0, |(soft, _)| soft)),
        memlock(getrlimit(Resource::RLIMIT_MEMLOCK).map_or(0, |(soft, _)| soft)),
        shared_memory(patient),
        temporary_folder(patient),
        own_namespaces(),
        own_cgroup(),
    ]
}

fn container(patient: &Patient) -> Checked {
    let marks = [(".dockerenv", "Docker"), ("run/.containerenv", "Podman")];
    let mark = marks.iter().find(|(file, _)| patient.root.join(file).exists()).map(|(_, name)| *name);
    let told = |severity, seen: String| Checked::new(Check::Container, severity, seen);
    let Some(name) = mark.or(patient.in_kubernetes.then_some("Kubernetes")) else {
        return told(Severity::Ok, "no sign of a container".into());
    };
    match patient.driver_capabilities.as_deref() {
        Some(list) if patient.choice.gpu.is_some() && !list.split(',').any(|one| matches!(one, "all" | "video")) => {
            told(
                Severity::Warning,
                format!("{name}, with NVIDIA_DRIVER_CAPABILITIES={list}: no video, so no JPEG engines"),
            )
        }
        _ => told(Severity::Note, name.into()),
    }
}

fn memory(patient: &Patient) -> Checked {
    let text = fs::read_to_string(patient.root.join("proc/meminfo")).unwrap_or_default();
    let kib = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:")?.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    let needed = patient.plan.confinement.memory_bytes;
    let told = |severity, seen: String| Checked::new(Check::Memory, severity, seen);
    let Some(available) = kib.map(|kib| kib.saturating_mul(1024)) else {
        return told(Severity::Warning, "/proc/meminfo does not tell what is available".into());
    };
    let seen = format!("{} MiB available, a worker may take {} MiB", available / MIB, needed / MIB);
    told(if available < needed { Severity::Warning } else { Severity::Ok }, seen)
}

fn descriptors(limit: u64) -> Checked {
    let severity = if limit < DESCRIPTORS { Severity::Warning } else { Severity::Ok };
    Checked::new(Check::Descriptors, severity, format!("{limit} descriptors"))
}

fn memlock(limit: u64) -> Checked {
    match limit {
        u64::MAX => Checked::new(Check::Memlock, Severity::Ok, "no limit"),
        bytes => Checked::new(Check::Memlock, Severity::Note, format!("{} KiB", bytes / 1024)),
    }
}

fn shared_memory(patient: &Patient) -> Checked {
    match OutputRegion::new(patient.plan.output_bytes) {
        Ok(region) => {
            Checked::new(Check::SharedMemory, Severity::Ok, format!("{} MiB made and sealed", region.len() / MIB))
        }
        Err(error) => Checked::new(Check::SharedMemory, Severity::Failure, format!("no sealed memory: {error}")),
    }
}

fn temporary_folder(patient: &Patient) -> Checked {
    let folder = &patient.temporary;
    let told = |severity, seen: String| Checked::new(Check::TemporaryFolder, severity, seen);
    let length = folder.as_os_str().len();
    match tempfile::Builder::new().prefix("refmill-").tempdir_in(folder) {
        Err(error) => told(Severity::Failure, format!("{} cannot be written: {error}", folder.display())),
        Ok(_) if length > LONGEST => {
            told(Severity::Failure, format!("{} has {length} bytes, {LONGEST} can be used", folder.display()))
        }
        Ok(_) => told(Severity::Ok, format!("{} can be written", folder.display())),
    }
}

fn own_namespaces() -> Checked {
    match namespaces::available() {
        Ok(Namespaces::WithUser) => Checked::new(Check::Namespaces, Severity::Ok, "user namespaces can be made"),
        Ok(Namespaces::WithoutUser) => {
            Checked::new(Check::Namespaces, Severity::Warning, "namespaces can be made, but no user namespaces")
        }
        Err(why) => Checked::new(Check::Namespaces, Severity::Warning, why),
    }
}

fn own_cgroup() -> Checked {
    match cgroup::parent() {
        Ok(_) => Checked::new(Check::Cgroup, Severity::Ok, "a cgroup can be made for each worker"),
        Err(why) => Checked::new(Check::Cgroup, Severity::Warning, why),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_descriptors_are_a_warning_and_locked_memory_is_worth_a_note() {
        assert_eq!([1023, 1024].map(|limit| descriptors(limit).severity), [Severity::Warning, Severity::Ok]);
        assert_eq!([8 << 20, u64::MAX].map(|limit| memlock(limit).severity), [Severity::Note, Severity::Ok]);
    }
}
