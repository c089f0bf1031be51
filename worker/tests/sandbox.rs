//! What the confinement forbids really ends or fails, in a process that closed it as a worker does. Each case
//! runs this test binary again for one of the `child_…` functions, and looks at how that process ended.

#![allow(clippy::unwrap_used, reason = "a step that fails is a test that fails")]

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};

const SIGSYS: i32 = 31;

/// Runs a child function in a process of its own.
fn ended(child: &str) -> ExitStatus {
    let me = std::env::current_exe().unwrap();
    Command::new(me).args(["--exact", child, "--ignored", "--test-threads=1"]).output().unwrap().status
}

fn close() -> Vec<String> {
    nix::sys::prctl::set_no_new_privs().unwrap();
    refmill_worker::sandbox::close("cpu").unwrap()
}

#[test]
fn decoding_work_goes_on_inside() {
    assert!(ended("child_allocates_and_computes").success());
}

#[test]
#[ignore = "run by decoding_work_goes_on_inside"]
fn child_allocates_and_computes() {
    assert!(close().contains(&"seccomp_cpu".to_owned()));
    let squares: Vec<u64> = std::thread::spawn(|| (0..1_000_000u64).map(|x| x * x).collect()).join().unwrap();
    assert_eq!(squares[1000], 1_000_000);
}

#[test]
fn opening_a_file_kills() {
    assert_eq!(ended("child_opens_a_file").signal(), Some(SIGSYS));
}

#[test]
#[ignore = "run by opening_a_file_kills"]
fn child_opens_a_file() {
    close();
    drop(std::fs::File::open("/etc/passwd"));
}

#[test]
fn creating_a_file_kills() {
    assert_eq!(ended("child_creates_a_file").signal(), Some(SIGSYS));
}

#[test]
#[ignore = "run by creating_a_file_kills"]
fn child_creates_a_file() {
    let folder = tempfile::tempdir().unwrap();
    close();
    drop(std::fs::write(folder.path().join("x"), "x"));
}

#[test]
fn connecting_kills() {
    assert_eq!(ended("child_connects").signal(), Some(SIGSYS));
}

#[test]
#[ignore = "run by connecting_kills"]
fn child_connects() {
    close();
    drop(std::net::TcpStream::connect("127.0.0.1:9"));
}

#[test]
fn starting_a_process_kills() {
    assert_eq!(ended("child_starts_a_process").signal(), Some(SIGSYS));
}

#[test]
#[ignore = "run by starting_a_process_kills"]
fn child_starts_a_process() {
    close();
    drop(Command::new("/bin/true").status());
}

#[test]
fn signalling_another_process_kills() {
    assert_eq!(ended("child_signals_its_parent").signal(), Some(SIGSYS));
}

#[test]
#[ignore = "run by signalling_another_process_kills"]
fn child_signals_its_parent() {
    let parent = nix::unistd::getppid();
    close();
    nix::sys::signal::kill(parent, None).unwrap();
}

#[test]
fn executable_memory_kills() {
    assert_eq!(ended("child_maps_executable_memory").signal(), Some(SIGSYS));
}

#[test]
#[ignore = "run by executable_memory_kills"]
#[allow(unsafe_code, reason = "mapping memory is an unsafe call")]
fn child_maps_executable_memory() {
    use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous};
    close();
    let length = std::num::NonZeroUsize::new(4096).unwrap();
    let protection = ProtFlags::PROT_READ | ProtFlags::PROT_EXEC;
    // SAFETY: the mapping is new and nothing refers to it.
    unsafe { mmap_anonymous(None, length, protection, MapFlags::MAP_PRIVATE) }.unwrap();
}

#[test]
fn refusing_to_die_with_the_supervisor_kills() {
    assert_eq!(ended("child_refuses_to_die").signal(), Some(SIGSYS));
}

#[test]
#[ignore = "run by refusing_to_die_with_the_supervisor_kills"]
fn child_refuses_to_die() {
    close();
    nix::sys::prctl::set_pdeathsig(None).unwrap();
}

#[test]
fn process_without_no_new_privs_is_refused() {
    assert!(ended("child_has_not_given_up_privileges").success());
}

#[test]
#[ignore = "run by process_without_no_new_privs_is_refused"]
fn child_has_not_given_up_privileges() {
    assert!(matches!(refmill_worker::sandbox::close("cpu"), Err(refmill_worker::sandbox::SandboxError::NewPrivs)));
}
