//! Stage 1 of the confinement: what holds for a worker before its first instruction. The only unsafe code of this
//! crate; between fork and exec there are system calls only, no allocation, no lock, no logging.
#![allow(unsafe_code)] // Command::pre_exec and system calls that no safe wrapper offers without allocating

mod isolation;

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
pub use isolation::{Isolation, Namespaces};

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
    /// What it is apart from.
    pub isolation: Isolation,
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
pub fn spawn(launch: Launch<'_>, socket: &OwnedFd) -> Result<Process, SpawnError> {
    reserve_socket_fd().map_err(SpawnError::Reserve)?;
    let program = launch.program;
    let failed = |source| SpawnError::Start { program: program.to_owned(), source };
    Ok(Process::new(start(launch, socket).map_err(failed)?))
}

/// Whether a process of this one's can be put into `namespaces`: one is, and ends there.
///
/// # Errors
/// What the kernel says.
pub fn try_out(namespaces: Namespaces) -> io::Result<()> {
    let isolation = Isolation::new(Some(namespaces));
    // It ends before exec, and what is named here is never run.
    let mut command = Command::new("/proc/self/exe");
    command.env_clear().stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let attempt = move || -> io::Result<()> {
        isolation.apply()?;
        // SAFETY: _exit ends the child at once and runs nothing of its parent's.
        unsafe { libc::_exit(0) }
    };
    // SAFETY: as for `start`: system calls through wrappers, on memory that was made before the fork.
    unsafe { command.pre_exec(attempt) };
    let ended = command.spawn()?.wait()?;
    if ended.success() { Ok(()) } else { Err(io::Error::other(ended.to_string())) }
}

fn start(launch: Launch<'_>, socket: &OwnedFd) -> io::Result<Child> {
    let (parent, socket, file_bytes, isolation) = (getpid(), socket.as_raw_fd(), launch.file_bytes, launch.isolation);
    let mut command = Command::new(launch.program);
    command.args(&launch.arguments).env_clear().envs(launch.environment.iter().map(|(key, value)| (key, value)));
    command.current_dir("/").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).process_group(0);
    let confine = move || confine(parent, socket, file_bytes, &isolation);
    // SAFETY: the closure runs between fork and exec in a process of many threads, so it must not allocate, lock or
    // touch memory that another thread may have left half written. It owns integers and bytes that were written
    // before the fork, and makes system calls through wrappers that turn errno into an integer error.
    unsafe { command.pre_exec(confine) };
    command.spawn()
}

/// Runs in the child. The order: what needs rights before they are given up, descriptors last.
fn confine(parent: Pid, socket: RawFd, file_bytes: u64, isolation: &Isolation) -> io::Result<()> {
    set_no_new_privs()?;
    set_pdeathsig(Signal::SIGKILL)?;
    isolation.apply()?;
    // Once more after what changes rights, since the kernel may forget it then.
    set_pdeathsig(Signal::SIGKILL)?;
    // The parent may have died before the line above; then nobody would ever send the signal.
    if getppid() != parent {
        return Err(Errno::ESRCH.into());
    }
    SigSet::empty().thread_set_mask()?;
    setrlimit(Resource::RLIMIT_CORE, 0, 0)?;
    setrlimit(Resource::RLIMIT_MSGQUEUE, 0, 0)?;
    setrlimit(Resource::RLIMIT_RTPRIO, 0, 0)?;
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
