//! The confinement around a real driver: its own threads, which start before the rules for jobs are applied, open no
//! file of the user. A signal handler runs in whichever thread gets the signal; it opens the file there and then.
//!
//! On a machine without a GPU the test says aloud that it was skipped.
#![allow(unsafe_code, reason = "a signal handler, and signals to single threads")]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a step that fails is a test that fails"
)]

use std::collections::BTreeSet;
use std::ffi::{CStr, CString, c_int, c_long};
use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStringExt;
use std::process::Command;
use std::sync::atomic::{AtomicI32, AtomicPtr, Ordering};
use std::thread;
use std::time::Duration;

use nix::errno::Errno;
use nix::libc;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use refmill_worker::device::{Device, Wanted};
use refmill_worker::gpu::Gpu;
use refmill_worker::sandbox::Confinement;

/// What the handler opens.
static PATH: AtomicPtr<libc::c_char> = AtomicPtr::new(std::ptr::null_mut());
/// Which thread answered last.
static THREAD: AtomicI32 = AtomicI32::new(0);
/// The error number of its attempt; 0 where the file was opened.
static ERROR: AtomicI32 = AtomicI32::new(-1);

extern "C" fn open_here(_: c_int) {
    // SAFETY: open takes a path that lives for ever, and may be called in a signal handler.
    let file = unsafe { libc::open(PATH.load(Ordering::SeqCst), libc::O_RDONLY) };
    // Read at once, before any other call of this thread can change it.
    let error = if file < 0 { Errno::last_raw() } else { 0 };
    if file >= 0 {
        // SAFETY: the descriptor was just opened and nobody else has it.
        unsafe { libc::close(file) };
    }
    ERROR.store(error, Ordering::SeqCst);
    // SAFETY: gettid takes nothing and touches no memory.
    THREAD.store(unsafe { libc::gettid() }, Ordering::SeqCst);
}

fn threads() -> BTreeSet<i32> {
    let entries = fs::read_dir("/proc/self/task").unwrap();
    entries.map(|entry| entry.unwrap().file_name().to_str().unwrap().parse().unwrap()).collect()
}

/// What one thread's attempt to open a file ends with.
fn attempt(thread: i32, path: &'static CStr) -> i32 {
    PATH.store(path.as_ptr().cast_mut(), Ordering::SeqCst);
    THREAD.store(0, Ordering::SeqCst);
    let own = c_long::from(std::process::id());
    // SAFETY: tgkill takes three numbers and touches no memory.
    let sent = unsafe { libc::syscall(libc::SYS_tgkill, own, c_long::from(thread), c_long::from(libc::SIGUSR1)) };
    assert_eq!(sent, 0);
    for _ in 0..5_000 {
        if THREAD.load(Ordering::SeqCst) == thread {
            return ERROR.load(Ordering::SeqCst);
        }
        thread::sleep(Duration::from_millis(1));
    }
    panic!("thread {thread} does not take signals");
}

#[test]
fn gpu_drivers_threads_open_no_file_of_the_user() {
    let me = std::env::current_exe().unwrap();
    if let Err(error) = Gpu::start(None) {
        assert!(error.is_absent(), "the GPU does not start: {error}");
        eprintln!("skipped: no GPU ({error})");
        return;
    }
    let child = "child_asks_the_drivers_threads";
    let output = Command::new(me).args(["--exact", child, "--ignored", "--nocapture"]).output().unwrap();
    std::io::stderr().write_all(&output.stderr).unwrap();
    assert!(output.status.success(), "{:?}", output.status);
}

#[test]
#[ignore = "run by gpu_drivers_threads_open_no_file_of_the_user"]
fn child_asks_the_drivers_threads() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("file"), "secret").unwrap();
    let path = CString::new(folder.path().join("file").into_os_string().into_vec()).unwrap();
    // The handler reads it for as long as there is one.
    let secret: &'static CStr = Box::leak(path.into_boxed_c_str());
    let handler = SigAction::new(SigHandler::Handler(open_here), SaFlags::SA_RESTART, SigSet::empty());
    // SAFETY: the handler makes system calls and writes atomics, nothing else.
    unsafe { sigaction(Signal::SIGUSR1, &handler) }.unwrap();
    let before = threads();
    nix::sys::prctl::set_no_new_privs().unwrap();
    let begun = Confinement::begin("cuda").unwrap();
    let device = Device::start(Wanted::Cuda, None).unwrap();
    let drivers: Vec<i32> = threads().difference(&before).copied().collect();
    assert!(!drivers.is_empty(), "the driver has no thread of its own");
    let own = |path| drivers.iter().map(|thread| attempt(*thread, path)).collect::<Vec<_>>();
    // What the driver needs to start they can open, so an attempt is one; the user's file they cannot, even now.
    let (library, file) = (own(c"/etc/ld.so.cache"), own(secret));
    let posture = begun.close("cuda").unwrap();
    let after = [secret, c"/etc/passwd", c"/proc/1/environ"].map(own);
    eprintln!(
        "on {:?}: {posture:?}; driver's threads {drivers:?}: library {library:?}, file {file:?}, closed {after:?}",
        device.about()
    );
    // The driver opens its nodes again for memory that a larger image needs.
    assert!(fs::File::options().read(true).write(true).open("/dev/nvidiactl").is_ok());
    assert!(library.iter().all(|error| *error == 0));
    assert!(file.iter().chain(after.iter().flatten()).all(|error| *error == Errno::EACCES as i32));
}
