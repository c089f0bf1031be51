//! What holds for a worker before its first instruction besides `spawn.rs`: namespaces, rights, cgroup. Seen by a shell
//! that stands in for it; and what the pool does where a worker is confined less than the policy asks.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a helper that fails is a test that fails"
)]

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use refmill_supervisor::devices::Choice;
use refmill_supervisor::pool::Deadlines;
use refmill_supervisor::pool::cgroup;
use refmill_supervisor::pool::confinement::Confinement;
use refmill_supervisor::pool::mailbox::Mailbox;
use refmill_supervisor::pool::posture::{Layer, SandboxPolicy};
use refmill_supervisor::pool::process::{Ending, Process};
use refmill_supervisor::pool::spawn::{Isolation, Launch, Namespaces, spawn};
use refmill_supervisor::pool::worker::{StartError, Worker, WorkerPlan};
use refmill_supervisor::shutdown::Stop;

const AMPLE: Duration = Duration::from_secs(60);
const NOBODY: &str = "65534";

fn start(script: &str, isolation: Isolation) -> Process {
    let (_mailbox, socket) = Mailbox::pair().unwrap();
    let launch = Launch {
        program: Path::new("/bin/sh"),
        arguments: vec!["-c".into(), script.into()],
        environment: vec![("LANG", OsString::from("C.UTF-8"))],
        file_bytes: 1 << 20,
        isolation,
    };
    spawn(launch, &socket).unwrap()
}

/// What a script says on stderr, in namespaces of its own.
fn said(script: &str) -> String {
    let mut process = start(script, Isolation::new(Some(Namespaces::WithUser)));
    assert_eq!(process.end(AMPLE), Ending::Exited(0), "{}", process.last_words());
    process.last_words()
}

fn namespace(name: &str) -> (String, String) {
    let own = fs::read_link(format!("/proc/self/ns/{name}")).unwrap().display().to_string();
    (own, said(&format!("/bin/readlink /proc/self/ns/{name} >&2")))
}

fn sibling(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let program = test.parent().and_then(Path::parent).unwrap().join(name);
    assert!(program.is_file(), "{} is not built; build the workspace's examples", program.display());
    program
}

fn plan(program: &str, policy: SandboxPolicy) -> WorkerPlan {
    let confinement = Confinement { policy, memory_bytes: 1 << 30 };
    let device = Choice::cpu("asked for");
    WorkerPlan {
        program: sibling(program),
        library_path: None,
        device,
        nvjpeg: None,
        output_bytes: 1 << 20,
        confinement,
    }
}

fn started(program: &str, policy: SandboxPolicy) -> Result<Worker, StartError> {
    Worker::start(&plan(program, policy), &Deadlines::default(), &Stop::new().unwrap())
}

#[test]
fn worker_has_five_namespaces_of_its_own() {
    for name in ["user", "net", "ipc", "mnt", "uts"] {
        let (own, workers) = namespace(name);
        assert_ne!(own, workers);
        assert!(workers.starts_with(&format!("{name}:[")), "{workers}");
    }
}

#[test]
fn worker_has_no_network_but_a_loopback_that_leads_nowhere() {
    let interfaces = said("/bin/grep : /proc/self/net/dev >&2");
    assert!(interfaces.starts_with("lo:") && !interfaces.contains(';'), "{interfaces}");
    assert_eq!(said("/bin/grep -c -v Iface /proc/self/net/route >&2 || true"), "0");
}

#[test]
fn worker_is_nobody_in_its_own_eyes_and_cannot_change_groups() {
    assert_eq!(said("/usr/bin/id -u >&2"), NOBODY);
    assert_eq!(said("/bin/cat /proc/self/setgroups >&2"), "deny");
}

#[test]
fn worker_has_no_capability_with_namespaces_and_without() {
    let script = "/bin/grep -h -E '^Cap(Inh|Prm|Eff|Amb)' /proc/self/status >&2";
    let none = ["CapInh", "CapPrm", "CapEff", "CapAmb"].map(|name| format!("{name}: 0000000000000000")).join("; ");
    assert_eq!(said(script), none);
    let mut process = start(script, Isolation::new(None));
    process.end(AMPLE);
    assert_eq!(process.last_words(), none);
}

#[test]
fn worker_dies_with_its_thread_in_namespaces_too() {
    let isolation = || Isolation::new(Some(Namespaces::WithUser));
    let mut process = std::thread::spawn(move || start("/bin/sleep 1000", isolation())).join().unwrap();
    assert_eq!(process.end(AMPLE), Ending::Signalled(Some(nix::sys::signal::Signal::SIGKILL)));
}

#[test]
fn private_memory_is_limited_where_that_is_asked() {
    let mut process =
        start("/bin/grep -E 'data size|locked memory' /proc/self/limits >&2", Isolation::new(None).limited(1 << 30));
    assert_eq!(process.end(AMPLE), Ending::Exited(0));
    let words = process.last_words();
    assert!(words.contains("Max data size 3221225472 3221225472") || words.contains("3221225472"), "{words}");
    assert!(words.contains("Max locked memory 0") || words.contains(" 0 "), "{words}");
}

/// Runs a script once it is in a cgroup of its own.
fn start_within(leaf: &cgroup::Leaf, script: &str) -> Process {
    let own = format!("refmill-{}-", std::process::id());
    let script = format!("until /bin/grep -q {own} /proc/self/cgroup; do :; done; {script}");
    let process = start(&script, Isolation::new(None));
    leaf.take(process.pid()).unwrap();
    process
}

#[test]
fn worker_over_its_cgroups_memory_is_killed_and_told_from_a_crash() {
    let leaf = cgroup::parent().unwrap().leaf(48 << 20).unwrap();
    let mut process = start_within(&leaf, "x=0123456789abcdef; while :; do x=$x$x; done");
    assert_eq!(process.end(AMPLE), Ending::Signalled(Some(nix::sys::signal::Signal::SIGKILL)));
    assert!(leaf.out_of_memory_kills() > 0);
}

#[test]
fn worker_that_is_killed_otherwise_counts_as_no_memory_kill() {
    let leaf = cgroup::parent().unwrap().leaf(48 << 20).unwrap();
    let mut process = start_within(&leaf, "kill -KILL $$");
    process.end(AMPLE);
    assert_eq!(leaf.out_of_memory_kills(), 0);
}

#[test]
fn cgroup_goes_with_its_worker() {
    let own = {
        let leaf = cgroup::parent().unwrap().leaf(48 << 20).unwrap();
        let name = format!("refmill-{}-[0-9]*", std::process::id());
        let mut process = start_within(&leaf, &format!("/bin/grep -o -m 1 '{name}' /proc/self/cgroup >&2"));
        assert_eq!(process.end(AMPLE), Ending::Exited(0));
        process.last_words()
    };
    assert!(!own.is_empty());
    let left = Command::new("find").args(["/sys/fs/cgroup", "-name", &own]).output().unwrap();
    assert_eq!(String::from_utf8(left.stdout).unwrap(), "");
}

#[test]
fn shipped_worker_satisfies_the_strict_policy() {
    let worker = started("refmill-worker", SandboxPolicy::Strict).unwrap();
    let verdict = worker.confinement();
    assert_eq!(verdict.gaps, []);
    assert_eq!(verdict.told.allowed().next(), None);
}

#[test]
fn worker_that_lies_about_its_confinement_is_refused() {
    let error = started("examples/fake_worker", SandboxPolicy::Standard).unwrap_err();
    let StartError::Posture { policy: SandboxPolicy::Standard, gap } = &error else { panic!("{error}") };
    assert_eq!(gap.layer, Layer::Syscalls);
    assert!(
        error.to_string().starts_with("--sandbox=standard asks for more than there is: sandbox_syscalls: "),
        "{error}"
    );
}

#[test]
fn unconfined_worker_is_taken_where_that_is_asked() {
    let worker = started("refmill-worker", SandboxPolicy::Off).unwrap();
    assert_eq!(worker.confinement().told.seccomp, "");
}
