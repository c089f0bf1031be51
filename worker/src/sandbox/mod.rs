//! Stage 2 of the confinement, which the worker puts on itself. It fails closed: a step that cannot be applied ends
//! the worker. A kernel without Landlock is the one exception; the posture then says so, and the supervisor's policy
//! decides.
//!
//! | when | step |
//! | --- | --- |
//! | before the device starts | Landlock, as wide as the device needs to start: for every thread, the driver's too |
//! | once its kernels are loaded | Landlock, as narrow as jobs need |
//! | | seccomp: what is not on the list raises a signal |
//! | | everything that must be refused is tried, in this very process |
//! | | seccomp once more: what is not on the list kills |

mod attempt;
mod files;
mod syscalls;

use std::fs::File;
use std::io::ErrorKind;

use refmill::posture::{Posture, Probe};

pub use files::Started;

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
    /// The self-test could not be set up.
    #[error("self-test could not be set up: {0}")]
    SelfTest(nix::errno::Errno),
    /// Everything was applied, and yet something can be done.
    #[error("confinement is closed, and yet this worker can {}", .0.what())]
    Open(Probe),
}

/// A confinement that is begun: it holds for this thread and all that start from now on.
#[derive(Debug)]
pub struct Confinement {
    started: Started,
}

impl Confinement {
    /// Begins, before a device of `kind` (`cpu`, or any other for one on a GPU) is started.
    ///
    /// # Errors
    /// [`SandboxError`].
    pub fn begin(kind: &str) -> Result<Self, SandboxError> {
        if nix::sys::prctl::get_no_new_privs() != Ok(true) {
            return Err(SandboxError::NewPrivs);
        }
        Ok(Self { started: files::begin(kind)? })
    }

    /// Closes it for jobs on a device of `kind` (`cpu` or `cuda`), tries what must be refused, and says what holds.
    ///
    /// # Errors
    /// [`SandboxError`].
    pub fn close(self, kind: &str) -> Result<Posture, SandboxError> {
        let closed = files::close(&self.started, kind)?;
        if closed.abi > 0 {
            prove_closed()?;
        }
        let lists = syscalls::Lists::of(kind)?;
        lists.signal()?;
        let refused = attempt::all().map_err(SandboxError::SelfTest)?;
        lists.kill()?;
        let posture = Posture {
            no_new_privs: true,
            landlock: closed.abi,
            landlock_at_start: self.started.abi,
            landlock_all_threads: closed.all_threads,
            seccomp: kind.to_owned(),
            refused,
        };
        let open = posture.allowed().next();
        open.map_or(Ok(posture), |probe| Err(SandboxError::Open(probe)))
    }
}

/// Landlock alone keeps files shut. On the CPU the list of calls does it again, and they could not be told apart then.
fn prove_closed() -> Result<(), SandboxError> {
    let is_open =
        |path: &&'static str| !File::open(path).is_err_and(|error| error.kind() == ErrorKind::PermissionDenied);
    ["/", "/proc/self/status", "/etc/passwd", "/proc/self/exe"]
        .into_iter()
        .find(is_open)
        .map_or(Ok(()), |path| Err(SandboxError::Leak(path)))
}
