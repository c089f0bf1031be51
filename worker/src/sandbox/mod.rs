//! Stage 2 of the confinement, which the worker puts on itself once its device is up and before the first hostile
//! byte. It fails closed: what cannot be applied ends the worker.

/// Why the confinement could not be closed.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// The supervisor's stage 1 is missing.
    #[error("process was started without no_new_privs")]
    NewPrivs,
}

/// Closes the confinement for a device of `kind`, and names the steps that hold.
///
/// # Errors
/// [`SandboxError`].
pub fn close(_kind: &str) -> Result<Vec<String>, SandboxError> {
    match nix::sys::prctl::get_no_new_privs() {
        Ok(true) => Ok(vec!["no_new_privs".into()]),
        _ => Err(SandboxError::NewPrivs),
    }
}
