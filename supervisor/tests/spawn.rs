//! What holds for a worker before its first instruction, seen by a program that stands in for it: a shell that
//! writes what it sees to stderr.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper that fails is a test that fails")]

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use refmill_supervisor::pool::mailbox::Mailbox;
use refmill_supervisor::pool::process::{Ending, Process};
use refmill_supervisor::pool::spawn::{Isolation, Launch, reserve_socket_fd, spawn};

const AMPLE: Duration = Duration::from_secs(60);
/// `ls` in place of the shell, which would keep descriptors of its own.
const LIST: &str = "exec /bin/ls /proc/self/fd >&2";
/// 4 is the folder that `ls` lists; with any other descriptor inherited it would not be.
const LISTED: &str = "0; 1; 2; 3; 4";

fn launch(program: &str, script: &str) -> Launch<'static> {
    Launch {
        program: Path::new(Box::leak(program.to_owned().into_boxed_str())),
        arguments: vec!["-c".into(), script.into()],
        environment: vec![("LANG", OsString::from("C.UTF-8"))],
        file_bytes: 1 << 20,
        isolation: Isolation::none(),
    }
}

fn start(script: &str) -> Process {
    let (_mailbox, socket) = Mailbox::pair().unwrap();
    spawn(launch("/bin/sh", script), &socket).unwrap()
}

/// What a script says on stderr, lines joined by `; `.
fn said(script: &str) -> String {
    let mut process = start(script);
    assert_eq!(process.end(AMPLE), Ending::Exited(0), "{}", process.last_words());
    process.last_words()
}

fn status(field: &str) -> String {
    let line = said(&format!("/bin/grep -w ^{field} /proc/self/status >&2"));
    line.split_once(':').unwrap().1.trim().to_owned()
}

fn limit(field: &str) -> String {
    let line = said(&format!("/bin/grep '^{field}' /proc/self/limits >&2"));
    line.strip_prefix(field).unwrap().split_whitespace().take(2).collect::<Vec<_>>().join(" ")
}

#[test]
fn environment_holds_what_was_given_and_nothing_else() {
    // The shell itself adds PWD and the like to its own variables; what it was given is in /proc.
    assert_eq!(said("/usr/bin/tr '\\0' '\\n' </proc/$$/environ >&2"), "LANG=C.UTF-8");
}

#[test]
fn descriptors_are_the_standard_three_and_the_socket() {
    let _inherited = std::fs::File::open("/dev/null").unwrap();
    assert_eq!(said(LIST), LISTED);
    let socket = said("/bin/readlink /proc/$$/fd/3 >&2");
    assert!(socket.starts_with("socket:"), "{socket}");
    let script = "in=$(/bin/readlink /proc/$$/fd/0); out=$(/bin/readlink /proc/$$/fd/1); echo $in $out >&2";
    assert_eq!(said(script), "/dev/null /dev/null");
}

#[test]
fn descriptor_without_close_on_exec_is_not_inherited() {
    use nix::fcntl::{FcntlArg, FdFlag, fcntl};
    let leak = std::fs::File::open("/dev/zero").unwrap();
    fcntl(&leak, FcntlArg::F_SETFD(FdFlag::empty())).unwrap();
    assert_eq!(said(LIST), LISTED);
}

#[test]
fn worker_leads_its_own_group() {
    let fields = said("read -r stat </proc/$$/stat; set -- $stat; echo $1 $5 >&2");
    let (pid, group) = fields.split_once(' ').unwrap();
    assert_eq!(pid, group);
}

#[test]
fn privileges_cannot_be_gained() {
    assert_eq!(status("NoNewPrivs"), "1");
}

#[test]
fn no_signal_is_blocked() {
    nix::sys::signal::SigSet::all().thread_block().unwrap();
    assert_eq!(status("SigBlk"), "0000000000000000");
}

#[test]
fn limits_hold() {
    assert_eq!(limit("Max core file size"), "0 0");
    assert_eq!(limit("Max open files"), "256 256");
    assert_eq!(limit("Max file size"), "1048576 1048576");
}

#[test]
fn worker_dies_with_the_thread_that_started_it() {
    let mut process = std::thread::spawn(|| start("/bin/sleep 1000")).join().unwrap();
    assert_eq!(process.end(AMPLE), Ending::Signalled(Some(nix::sys::signal::Signal::SIGKILL)));
}

#[test]
fn program_that_cannot_be_run_is_an_error_and_nothing_on_the_socket() {
    reserve_socket_fd().unwrap();
    let (_mailbox, socket) = Mailbox::pair().unwrap();
    let program = tempfile::NamedTempFile::new().unwrap();
    let path = program.path().display().to_string();
    let error = spawn(launch(&path, ""), &socket).unwrap_err().to_string();
    assert!(error.starts_with(&format!("cannot start worker {path}: Permission denied")), "{error}");
}

#[test]
fn dropped_process_is_killed_and_reaped() {
    let process = start("/bin/sleep 1000");
    let folder = format!("/proc/{}", process.pid());
    assert!(Path::new(&folder).exists());
    drop(process);
    assert!(!Path::new(&folder).exists());
}
