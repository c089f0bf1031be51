//! Stage 2 of the confinement, which the worker puts on itself once its device is up and its kernels are loaded,
//! and before the first hostile byte. It fails closed: a step that cannot be applied ends the worker. A kernel
//! without Landlock is the one exception; the posture then lacks the step, and the supervisor says so.

mod files;
mod syscalls;

use std::fs::File;
use std::io::ErrorKind;

/// Why the confinement could not be closed.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// The supervisor's stage 1 is missing.
    #[error("process was started without no_new_privs")]
    NewPrivs,
    /// Landlock refused the rules.
    #[error("landlock rules could not be applied: {0}")]
    Landlock(String),
    /// A file can be opened although the rules were applied.
    #[error("landlock was applied, and yet `{0}` can be opened")]
    Leak(&'static str),
    /// The system call filter was refused.
    #[error("system call filter could not be applied: {0}")]
    Seccomp(String),
}

/// Closes the confinement for a device of `kind` (`cpu` or `cuda`), and names the steps that hold.
///
/// # Errors
/// [`SandboxError`].
pub fn close(kind: &str) -> Result<Vec<String>, SandboxError> {
    if nix::sys::prctl::get_no_new_privs() != Ok(true) {
        return Err(SandboxError::NewPrivs);
    }
    let mut posture = vec!["no_new_privs".to_owned()];
    if files::close(kind)? {
        prove_closed()?;
        posture.push("landlock".to_owned());
    }
    syscalls::close(kind)?;
    posture.push(format!("seccomp_{kind}"));
    Ok(posture)
}

/// What was forbidden really fails.
fn prove_closed() -> Result<(), SandboxError> {
    let is_open =
        |path: &&'static str| !File::open(path).is_err_and(|error| error.kind() == ErrorKind::PermissionDenied);
    ["/", "/proc/self/status", "/etc/passwd"]
        .into_iter()
        .find(is_open)
        .map_or(Ok(()), |path| Err(SandboxError::Leak(path)))
}
