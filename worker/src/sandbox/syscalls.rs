//! seccomp: the calls that a worker needs, each with its reason in `policy/x86_64.json`. The same list is applied
//! twice. At first what is not on it raises a signal, so that refusals can be proved without dying of them; then it
//! kills the process. The first stays in force: what was refused in the test is refused ever after.

use std::collections::HashMap;

use seccompiler::{BpfProgram, TargetArch, apply_filter_all_threads, compile_from_json};
use serde_json::{Value, json};

use super::SandboxError;

#[cfg(not(target_arch = "x86_64"))]
compile_error!("the list of system calls is for x86_64; without one for this processor a worker would be open");

const POLICY: &str = include_str!("policy/x86_64.json");
/// Stands in the policy for the id of the process itself, which is known only when it runs.
const OWN_PID: &str = "\"OWN_PID\"";
/// Calls that fail with ENOSYS. `clone3` hides its flags from the filter; without it the C library uses `clone`.
const MISSING: &str = "missing";
/// What the C library or the driver tries and can do without is in a list of the device's own with this ending: it
/// fails, with EACCES or EPERM, and kills nobody.
const SOFT: &str = "_soft";
/// `prctl`'s PR_SET_NO_NEW_PRIVS, which goes before every filter.
const SET_NO_NEW_PRIVS: u64 = 38;

/// The filters for one kind of device, compiled.
#[derive(Debug)]
pub struct Lists {
    failing: Vec<BpfProgram>,
    signalling: BpfProgram,
    killing: BpfProgram,
}

impl Lists {
    /// Compiles the policy for a device of `kind`, in this process.
    pub fn of(kind: &str) -> Result<Self, SandboxError> {
        let mut programs = compile(&policy(kind)?)?;
        let mut take = |name: &str| programs.remove(name).ok_or_else(|| unknown(name));
        Ok(Self {
            failing: vec![take(MISSING)?, take("soft")?],
            signalling: take("signalling")?,
            killing: take("killing")?,
        })
    }

    /// From now on, on every thread, what is not on the list is not done and raises SIGSYS.
    pub fn signal(&self) -> Result<(), SandboxError> {
        self.failing.iter().chain([&self.signalling]).try_for_each(apply)
    }

    /// From now on, on every thread, what is not on the list kills the process.
    pub fn kill(&self) -> Result<(), SandboxError> {
        apply(&self.killing)
    }
}

/// The policy's filters for one kind of device.
fn policy(kind: &str) -> Result<Value, SandboxError> {
    let text = POLICY.replace(OWN_PID, &std::process::id().to_string());
    let mut whole: Value = serde_json::from_str(&text).map_err(|error| SandboxError::Seccomp(error.to_string()))?;
    let mut take = |name: &str| whole.get_mut(name).map(Value::take).ok_or_else(|| unknown(name));
    let (missing, soft, killing) = (take(MISSING)?, take(&format!("{kind}{SOFT}"))?, take(kind)?);
    let mut signalling = killing.clone();
    if let Some(filter) = signalling.as_object_mut() {
        filter.insert("mismatch_action".into(), "trap".into());
    }
    // What the second filter is applied with, and the second filter does not have.
    let name = json!({"index": 0, "type": "dword", "op": "eq", "val": SET_NO_NEW_PRIVS});
    if let Some(rules) = signalling.get_mut("filter").and_then(Value::as_array_mut) {
        rules.push(json!({"syscall": "seccomp"}));
        rules.push(json!({"syscall": "prctl", "args": [name]}));
    }
    Ok(json!({ MISSING: missing, "soft": soft, "signalling": signalling, "killing": killing }))
}

fn unknown(name: &str) -> SandboxError {
    SandboxError::Seccomp(format!("no policy named `{name}`"))
}

fn compile(policy: &Value) -> Result<HashMap<String, BpfProgram>, SandboxError> {
    compile_from_json(policy.to_string().as_bytes(), TargetArch::x86_64)
        .map_err(|error| SandboxError::Seccomp(error.to_string()))
}

fn apply(program: &BpfProgram) -> Result<(), SandboxError> {
    apply_filter_all_threads(program).map_err(|error| SandboxError::Seccomp(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole() -> Value {
        serde_json::from_str(&POLICY.replace(OWN_PID, "1")).unwrap()
    }

    fn allowed(kind: &str) -> Vec<String> {
        let rules = whole()[kind]["filter"].as_array().unwrap().clone();
        rules.iter().map(|rule| rule["syscall"].as_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn policy_compiles_for_both_devices() {
        assert!(Lists::of("cpu").is_ok() && Lists::of("cuda").is_ok());
        assert!(matches!(Lists::of("tpu"), Err(SandboxError::Seccomp(_))));
    }

    #[test]
    fn every_call_in_the_policy_has_its_reason() {
        let policy = whole();
        let filters = policy.as_object().unwrap().values();
        let calls: Vec<&Value> = filters.flat_map(|filter| filter["filter"].as_array().unwrap()).collect();
        assert!(calls.len() > 100);
        assert!(calls.iter().all(|call| call["comment"].as_str().is_some_and(|reason| reason.len() > 8)));
        let conditions = calls.iter().filter_map(|call| call["args"].as_array()).flatten();
        assert!(conditions.clone().count() > 10);
        assert!(conditions.into_iter().all(|condition| condition["comment"].is_string()));
    }

    #[test]
    fn what_is_not_listed_kills() {
        assert_eq!(whole()["cpu"]["mismatch_action"], "kill_process");
        assert_eq!(whole()["cuda"]["mismatch_action"], "kill_process");
    }

    #[test]
    fn test_filter_has_the_two_calls_that_end_the_test_and_no_other() {
        let policy = policy("cpu").unwrap();
        let count = |name: &str| policy[name]["filter"].as_array().unwrap().len();
        assert_eq!(count("signalling"), count("killing") + 2);
        assert_eq!(policy["signalling"]["mismatch_action"], "trap");
    }

    #[test]
    fn cpu_list_is_part_of_the_one_for_a_gpu() {
        let cuda = allowed("cuda");
        assert!(allowed("cpu").iter().all(|call| cuda.contains(call)));
    }

    #[test]
    fn neither_list_has_what_reaches_out() {
        let forbidden = [
            "socket",
            "connect",
            "bind",
            "execve",
            "execveat",
            "fork",
            "vfork",
            "kill",
            "tkill",
            "ptrace",
            "mount",
            "unshare",
            "setns",
            "bpf",
            "io_uring_setup",
            "perf_event_open",
            "userfaultfd",
            "process_vm_readv",
            "pidfd_getfd",
            "pidfd_open",
            "keyctl",
            "add_key",
            "seccomp",
            "unlink",
            "rename",
            "chroot",
        ];
        let listed = [allowed("cpu"), allowed("cuda")].concat();
        assert!(forbidden.iter().all(|call| !listed.iter().any(|listed| listed == call)));
    }
}
