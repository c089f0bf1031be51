//! Stage 1 of the confinement: what holds for a worker before its first instruction. The only unsafe code of this
//! crate; between fork and exec there are system calls only, no allocation, no lock, no logging.
#![allow(unsafe_code)] // Command::pre_exec and three system calls that no safe wrapper offers without allocating

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use nix::sys::prctl::{set_no_new_privs, set_pdeathsig};
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::{SigSet, Signal};
use nix::unistd::{Pid, getpid, getppid};

use super::process::Process;

/// Where the worker finds its end of the socket.
pub const SOCKET_FD: RawFd = 3;
/// Most descriptors that a worker may have open.
const MAX_DESCRIPTORS: u64 = 256;

/// What is started, and with what. Nothing else is inherited.
#[derive(Debug)]
pub struct Launch<'a> {
    /// The program.
    pub program: &'a Path,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// Its whole environment.
    pub environment: Vec<(&'static str, OsString)>,
    /// Longest file that it may write, in bytes; shared memory counts.
    pub file_bytes: u64,
}

/// Why a worker could not be started.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    /// The socket's number could not be kept free.
    #[error("cannot keep descriptor {SOCKET_FD} free for workers: {0}")]
    Reserve(#[source] io::Error),
    /// The program did not start, or a step before its start failed.
    #[error("cannot start worker {}: {source}", program.display())]
    Start {
        /// The program.
        program: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// Starts a worker, confined as far as CUDA can start under. It dies with the **thread** that calls this.
///
/// # Errors
/// [`SpawnError`]; no process is left behind.
pub fn spawn(launch: &Launch<'_>, socket: &OwnedFd) -> Result<Process, SpawnError> {
    reserve_socket_fd().map_err(SpawnError::Reserve)?;
    let failed = |source| SpawnError::Start { program: launch.program.to_owned(), source };
    Ok(Process::new(start(launch, socket).map_err(failed)?))
}

fn start(launch: &Launch<'_>, socket: &OwnedFd) -> io::Result<Child> {
    let (parent, socket, file_bytes) = (getpid(), socket.as_raw_fd(), launch.file_bytes);
    let mut command = Command::new(launch.program);
    command.args(&launch.arguments).env_clear().envs(launch.environment.iter().map(|(key, value)| (key, value)));
    command.current_dir("/").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).process_group(0);
    let confine = move || confine(parent, socket, file_bytes);
    // SAFETY: the closure runs between fork and exec in a process of many threads, so it must not allocate, lock or
    // touch memory that another thread may have left half written. It owns three integers and makes system calls
    // through wrappers that turn errno into an integer error.
    unsafe { command.pre_exec(confine) };
    command.spawn()
}

/// Runs in the child. The order: what could outlive a dying parent first, descriptors last.
fn confine(parent: Pid, socket: RawFd, file_bytes: u64) -> io::Result<()> {
    set_pdeathsig(Signal::SIGKILL)?;
    // The parent may have died before the line above; then nobody would ever send the signal.
    if getppid() != parent {
        return Err(Errno::ESRCH.into());
    }
    set_no_new_privs()?;
    SigSet::empty().thread_set_mask()?;
    setrlimit(Resource::RLIMIT_CORE, 0, 0)?;
    setrlimit(Resource::RLIMIT_NOFILE, MAX_DESCRIPTORS, MAX_DESCRIPTORS)?;
    setrlimit(Resource::RLIMIT_FSIZE, file_bytes, file_bytes)?;
    hand_over(socket)
}

/// The socket becomes [`SOCKET_FD`]; everything above it is closed by exec.
fn hand_over(socket: RawFd) -> io::Result<()> {
    // SAFETY: dup2 takes two integers and touches no memory. `socket` is open, since the parent borrows it across
    // the fork; what SOCKET_FD was is the parent's reserve, which nothing in the child uses.
    Errno::result(unsafe { libc::dup2(socket, SOCKET_FD) })?;
    // SAFETY: F_SETFD takes an integer and touches no memory. Needed where dup2 found both to be the same and left
    // close-on-exec set.
    Errno::result(unsafe { libc::fcntl(SOCKET_FD, libc::F_SETFD, 0) })?;
    let flags = libc::CLOSE_RANGE_CLOEXEC.cast_signed();
    // SAFETY: close_range takes three integers and touches no memory. It only marks: the descriptor through which
    // the standard library reports a failed exec stays usable until exec.
    Errno::result(unsafe { libc::close_range(SOCKET_FD.cast_unsigned() + 1, libc::c_uint::MAX, flags) })?;
    Ok(())
}

/// Keeps [`SOCKET_FD`] taken in this process for ever. Were it free, the standard library's pipe for exec errors
/// could get it, and the child would put the socket over it: a failed exec would then look like a started worker.
///
/// # Errors
/// What the kernel says.
pub fn reserve_socket_fd() -> io::Result<()> {
    static RESERVED: OnceLock<OwnedFd> = OnceLock::new();
    let null = File::open("/dev/null")?;
    let lowest = fcntl(&null, FcntlArg::F_DUPFD_CLOEXEC(SOCKET_FD))?;
    // SAFETY: `lowest` was just made by fcntl, is open, and has no other owner.
    let lowest: OwnedFd = unsafe { FromRawFd::from_raw_fd(lowest) };
    // Any other number means that SOCKET_FD is taken already, by `null`, by us or by whoever started us.
    if null.as_raw_fd() == SOCKET_FD {
        RESERVED.get_or_init(|| null.into());
    } else if lowest.as_raw_fd() == SOCKET_FD {
        RESERVED.get_or_init(|| lowest);
    }
    Ok(())
}
