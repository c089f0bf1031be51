//! The self-test: each forbidden thing is tried in this very process, under a filter that signals instead of killing.
//! A call that the kernel stopped has not been done, so trying costs nothing; one that goes through is undone where
//! that is needed, and told.
//!
//! Raw system calls, and a signal handler, have no safe form; every block says what upholds it.
#![allow(unsafe_code, reason = "forbidden system calls are made on purpose, and SIGSYS is handled")]

use std::ffi::{CStr, CString};
use std::os::unix::ffi::OsStringExt;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::errno::Errno;
use nix::libc::{self, c_int, c_long, c_void, siginfo_t};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use refmill::posture::Probe;

/// `si_code` of a SIGSYS that a filter raised.
const SYS_SECCOMP: c_int = 1;
/// A descriptor that is none.
const NONE: c_long = -1;

/// Set by the handler: the filter stopped the last call.
static STOPPED: AtomicBool = AtomicBool::new(false);

/// One system call.
type Call = (c_long, [c_long; 6]);

/// Tries everything, and says what was refused.
pub fn all() -> Result<Vec<Probe>, Errno> {
    // In the worker's own folder, which its supervisor removes: where nothing refuses, the file is made.
    let file = CString::new(std::env::temp_dir().join("self-test").into_os_string().into_vec());
    let file = file.map_err(|_| Errno::EINVAL)?;
    let handler = SigHandler::SigAction(note);
    let before = handle(&SigAction::new(handler, SaFlags::SA_SIGINFO, SigSet::empty()))?;
    let refused = Probe::ALL.into_iter().filter(|probe| is_refused(*probe, &file)).collect();
    handle(&before)?;
    Ok(refused)
}

fn handle(action: &SigAction) -> Result<SigAction, Errno> {
    // SAFETY: sigaction asks that a handler touches only what is safe in a signal handler. `note` reads the structure
    // that the kernel passes and writes one atomic; the other action is the one that was in force before.
    unsafe { sigaction(Signal::SIGSYS, action) }
}

extern "C" fn note(_: c_int, info: *mut siginfo_t, _: *mut c_void) {
    // SAFETY: with SA_SIGINFO the kernel passes a pointer to a whole siginfo_t on this thread's stack.
    let code = unsafe { (*info).si_code };
    if code == SYS_SECCOMP {
        STOPPED.store(true, Ordering::SeqCst);
    }
}

fn is_refused(probe: Probe, file: &CStr) -> bool {
    STOPPED.store(false, Ordering::SeqCst);
    let (number, [a, b, c, d, e, f]) = call(probe, file);
    // SAFETY: the calls of `call` take numbers, null, or paths that live across the call and are only read. Where the kernel
    // lets one through it fails without effect, but for those that `undo` answers.
    let result = unsafe { libc::syscall(number, a, b, c, d, e, f) };
    let errno = if result == -1 { Errno::last() } else { Errno::UnknownErrno };
    if STOPPED.load(Ordering::SeqCst) {
        return true;
    }
    undo(number, result);
    match probe {
        // The filter's answer on the CPU; Landlock's where the driver has to open its nodes.
        Probe::ReadFile | Probe::CreateFile => errno == Errno::EACCES,
        Probe::Clone3 => errno == Errno::ENOSYS,
        _ => false,
    }
}

/// Takes back what should never have been possible. This process ends in a moment anyway, since it is told.
fn undo(number: c_long, result: c_long) {
    if matches!(number, libc::SYS_fork | libc::SYS_clone) && result == 0 {
        // SAFETY: _exit ends this process, the child, without running anything of its parent's.
        unsafe { libc::_exit(0) }
    }
}

fn call(probe: Probe, file: &CStr) -> Call {
    let at = |path: &CStr| path.as_ptr().expose_provenance().cast_signed() as c_long;
    // Whoever it is, it is not this process.
    let other = 1;
    let (here, tcp) = (c_long::from(libc::AT_FDCWD), c_long::from(libc::SOCK_STREAM));
    let inet = c_long::from(libc::AF_INET);
    let (write, child) = (c_long::from(libc::O_WRONLY | libc::O_CREAT), c_long::from(libc::SIGCHLD));
    let (code, private) =
        (c_long::from(libc::PROT_READ | libc::PROT_EXEC), c_long::from(libc::MAP_PRIVATE | libc::MAP_ANONYMOUS));
    match probe {
        Probe::ReadFile => (libc::SYS_openat, [here, at(c"/etc/passwd"), 0, 0, 0, 0]),
        Probe::CreateFile => (libc::SYS_openat, [here, at(file), write, 0o600, 0, 0]),
        Probe::Socket => (libc::SYS_socket, [inet, tcp, 0, 0, 0, 0]),
        Probe::Connect => (libc::SYS_connect, [NONE, 0, 0, 0, 0, 0]),
        Probe::Bind => (libc::SYS_bind, [NONE, 0, 0, 0, 0, 0]),
        Probe::Exec => (libc::SYS_execve, [at(c""), 0, 0, 0, 0, 0]),
        Probe::Fork => (libc::SYS_fork, [0; 6]),
        Probe::Clone => (libc::SYS_clone, [child, 0, 0, 0, 0, 0]),
        Probe::Clone3 => (libc::SYS_clone3, [0; 6]),
        Probe::Ptrace => (libc::SYS_ptrace, [c_long::from(libc::PTRACE_TRACEME), 0, 0, 0, 0, 0]),
        Probe::ProcessMemory => (libc::SYS_process_vm_readv, [other, 0, 0, 0, 0, 0]),
        Probe::Signal => (libc::SYS_kill, [other, 0, 0, 0, 0, 0]),
        Probe::ExecutableMemory => (libc::SYS_mmap, [0, 4096, code, private, NONE, 0]),
        Probe::Namespaces => (libc::SYS_unshare, [0; 6]),
        Probe::IoUring => (libc::SYS_io_uring_setup, [0; 6]),
    }
}
