//! seccomp: the calls that a worker needs, each with its reason in `policy/x86_64.json`; any other kills the process.

use std::collections::HashMap;

use seccompiler::{BpfProgram, TargetArch, apply_filter_all_threads, compile_from_json};

use super::SandboxError;

const POLICY: &[u8] = include_bytes!("policy/x86_64.json");
/// `clone3` hides its flags from the filter; refused with ENOSYS, the C library falls back to `clone`.
const REFUSED: &str = "refused";

/// Applies the filters for a device of `kind` to every thread.
pub fn close(kind: &str) -> Result<(), SandboxError> {
    let mut filters = compile()?;
    for name in [REFUSED, kind] {
        let filter = filters.remove(name).ok_or_else(|| SandboxError::Seccomp(format!("no policy named `{name}`")))?;
        apply_filter_all_threads(&filter).map_err(|error| SandboxError::Seccomp(error.to_string()))?;
    }
    Ok(())
}

fn compile() -> Result<HashMap<String, BpfProgram>, SandboxError> {
    compile_from_json(POLICY, TargetArch::x86_64).map_err(|error| SandboxError::Seccomp(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policy_compiles_for_both_devices() {
        let filters = compile().unwrap();
        assert!(["cpu", "cuda", REFUSED].iter().all(|name| filters.contains_key(*name)));
    }

    #[test]
    fn every_allowed_call_has_its_reason() {
        let policy: serde_json::Value = serde_json::from_slice(POLICY).unwrap();
        let calls: Vec<&serde_json::Value> =
            policy.as_object().unwrap().values().flat_map(|filter| filter["filter"].as_array().unwrap()).collect();
        assert!(calls.len() > 40);
        assert!(calls.iter().all(|call| call["comment"].as_str().is_some_and(|reason| reason.len() > 8)));
    }
}
