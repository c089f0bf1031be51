//! Landlock, twice: what a device needs to start, then what jobs need. The first set of rules is in force before the
//! driver starts threads of its own, so it holds for them as well; the second only takes away from it.

use std::env;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, LandlockStatus, PathBeneath, PathFd, RestrictSelfAttr,
    RestrictionStatus, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetStatus, Scope,
};

use super::SandboxError;

/// The newest ABI whose rights are handled; each kernel enforces those that it knows.
const KNOWN: ABI = ABI::V7;
/// Where the CUDA driver's libraries and its description of itself lie. No user keeps files there.
const LIBRARIES: [&str; 8] = [
    "/usr/lib",
    "/usr/lib64",
    "/usr/local",
    "/usr/share/nvidia",
    "/lib",
    "/lib64",
    "/etc/ld.so.cache",
    "/run/opengl-driver",
];
/// What the driver reads about the machine, as driver 580 was seen to. Nothing of other processes is among it.
const MACHINE: [&str; 8] = [
    "/proc/cpuinfo",
    "/proc/devices",
    "/proc/driver/nvidia",
    "/proc/meminfo",
    "/proc/modules",
    "/proc/sys/vm",
    "/sys/devices",
    "/sys/module",
];

/// What holds from before the device's start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Started {
    /// ABI of the rules; 0 on a kernel without Landlock.
    pub abi: u32,
    /// The GPUs' nodes. Found before: the rules let nobody list `/dev`.
    nodes: Vec<PathBuf>,
}

/// What holds for jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Closed {
    /// ABI of the rules; 0 on a kernel without Landlock.
    pub abi: u32,
    /// Whether threads that ran before are held too.
    pub all_threads: bool,
}

/// What a rule allows below a path.
struct Allowed {
    path: PathBuf,
    rights: BitFlags<AccessFs>,
}

/// The rules under which a device of `kind` starts; for the CPU, which opens nothing, none at all.
pub fn begin(kind: &str) -> Result<Started, SandboxError> {
    let nodes = device_nodes();
    let status = restrict(if kind == "cpu" { Vec::new() } else { for_driver(&nodes) }, false)?;
    Ok(Started { abi: abi(&status), nodes })
}

/// The rules for jobs: no file, no TCP port, no signal to others. A GPU's device nodes stay, since the driver opens
/// them again when it creates memory.
pub fn close(started: &Started, kind: &str) -> Result<Closed, SandboxError> {
    let nodes = if kind == "cuda" { driven(&started.nodes).collect() } else { Vec::new() };
    let status = restrict(nodes, true)?;
    Ok(Closed { abi: abi(&status), all_threads: status.all_threads })
}

fn restrict(allowed: Vec<Allowed>, all_threads: bool) -> Result<RestrictionStatus, SandboxError> {
    let refused = |error: landlock::RulesetError| SandboxError::Landlock(error.to_string());
    let mut ruleset = Ruleset::default()
        .handle_access(AccessFs::from_all(KNOWN))
        .and_then(|ruleset| ruleset.handle_access(AccessNet::from_all(KNOWN)))
        .and_then(|ruleset| ruleset.scope(Scope::from_all(KNOWN)))
        .and_then(|ruleset| ruleset.create())
        .and_then(|ruleset| ruleset.all_threads(all_threads))
        .map_err(refused)?;
    for Allowed { path, rights } in allowed {
        // What is not there needs no rule.
        let Ok(file) = PathFd::new(&path) else { continue };
        let rights = if path.is_dir() { rights } else { rights & AccessFs::from_file(KNOWN) };
        ruleset = ruleset.add_rule(PathBeneath::new(file, rights)).map_err(refused)?;
    }
    ruleset.restrict_self().map_err(refused)
}

fn abi(status: &RestrictionStatus) -> u32 {
    match status.landlock {
        LandlockStatus::Available { effective_abi, kernel_abi } if status.ruleset != RulesetStatus::NotEnforced => {
            kernel_abi.and_then(|abi| u32::try_from(abi).ok()).unwrap_or(effective_abi as u32)
        }
        _ => 0,
    }
}

fn for_driver(nodes: &[PathBuf]) -> Vec<Allowed> {
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let readable = LIBRARIES.iter().chain(&MACHINE).map(PathBuf::from).chain(library_path());
    let readable = readable.map(|path| Allowed { path, rights: read });
    // The driver names its threads by writing into /proc, and truncates what is there. The link leads to this process' own folder, and to no other.
    let own = Allowed { path: "/proc/self".into(), rights: read | AccessFs::WriteFile | AccessFs::Truncate };
    readable.chain([own]).chain(driven(nodes)).collect()
}

/// `LD_LIBRARY_PATH`, as the supervisor has it, but for what is no library folder at all.
fn library_path() -> Vec<PathBuf> {
    let paths = env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    env::split_paths(&paths).filter(|path| path.is_absolute() && path != Path::new("/")).collect()
}

/// `/dev/nvidia0`, `/dev/nvidiactl`, `/dev/nvidia-uvm` and the like; `/dev/nvidia-caps` holds those of MIG instances.
fn device_nodes() -> Vec<PathBuf> {
    let entries = std::fs::read_dir("/dev").into_iter().flatten().flatten();
    let nodes = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("nvidia"));
    nodes.map(|entry| entry.path()).collect()
}

fn driven(nodes: &[PathBuf]) -> impl Iterator<Item = Allowed> + '_ {
    let rights = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::IoctlDev;
    nodes.iter().map(move |path| Allowed { path: path.clone(), rights })
}
