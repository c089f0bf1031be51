//! Landlock: no file, no TCP port, no signal to others. A CUDA worker keeps the GPU's device nodes, since the
//! driver opens them again when it creates memory.

use std::path::PathBuf;

use landlock::{
    ABI, Access, AccessFs, AccessNet, PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetStatus,
    Scope,
};

use super::SandboxError;

/// Applies the rules to this thread and those that it starts; `false` on a kernel without Landlock.
pub fn close(kind: &str) -> Result<bool, SandboxError> {
    let refused = |error: landlock::RulesetError| SandboxError::Landlock(error.to_string());
    let abi = ABI::V6;
    let mut ruleset = Ruleset::default()
        .handle_access(AccessFs::from_all(abi))
        .and_then(|ruleset| ruleset.handle_access(AccessNet::from_all(abi)))
        .and_then(|ruleset| ruleset.scope(Scope::from_all(abi)))
        .and_then(|ruleset| ruleset.create())
        .map_err(refused)?;
    if kind == "cuda" {
        let wanted = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::IoctlDev;
        for node in device_nodes() {
            let file = PathFd::new(&node).map_err(|error| SandboxError::Landlock(error.to_string()))?;
            ruleset = ruleset.add_rule(PathBeneath::new(file, wanted)).map_err(refused)?;
        }
    }
    let status = ruleset.restrict_self().map_err(refused)?;
    Ok(status.ruleset != RulesetStatus::NotEnforced)
}

/// `/dev/nvidia0`, `/dev/nvidiactl`, `/dev/nvidia-uvm` and the like.
fn device_nodes() -> Vec<PathBuf> {
    let entries = std::fs::read_dir("/dev").into_iter().flatten().flatten();
    let nodes = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("nvidia"));
    nodes.map(|entry| entry.path()).filter(|path| !path.is_dir()).collect()
}
