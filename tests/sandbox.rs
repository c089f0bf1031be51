//! `--sandbox`: what each policy does, as root and as nobody, who may make no cgroup.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use crate::support::bins;
use crate::support::fixtures::fixture;
use crate::support::running::{Ended, Running, status};
use crate::support::scratch::Scratch;

const NOBODY: u32 = 65_534;

fn run(scratch: &Scratch, options: &[&str]) -> Ended {
    let input = fixture("images/plain.jpg").display().to_string();
    scratch.run([&[input.as_str(), "--no-tensors"], options].concat())
}

fn open_to_all(path: &Path) {
    fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
}

/// The two programs and an image in a folder that nobody may use, run as nobody.
fn run_as_nobody(options: &[&str]) -> Ended {
    let scratch = Scratch::new();
    open_to_all(&scratch.path(""));
    for program in [bins::refmill(), bins::worker()] {
        let copy = scratch.path(program.file_name().unwrap().to_str().unwrap());
        fs::copy(&program, &copy).unwrap();
        open_to_all(&copy);
    }
    open_to_all(&scratch.copy("a.jpg", "images/plain.jpg"));
    let mut command = Command::new(scratch.path("refmill"));
    command.args(["run", "a.jpg", "--device", "cpu", "--no-tensors"]).args(options).current_dir(scratch.path(""));
    // Whoever is not root already is a user as good as nobody.
    if nix::unistd::geteuid().is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    Running::start(command).end()
}

#[test]
fn strict_is_satisfied_by_root_on_a_whole_machine() {
    let ended = run(&Scratch::new(), &["--sandbox=strict"]).with_code(0);
    assert!(!ended.stderr.contains("sandbox"), "{}", ended.stderr);
}

#[test]
fn standard_works_for_nobody_and_says_what_is_missing() {
    let ended = run_as_nobody(&[]).with_code(0);
    let said = "sandbox is standard, not whole: sandbox_memory: no cgroup limits a worker's memory: ";
    assert!(ended.stderr.contains(said), "{}", ended.stderr);
    assert!(!ended.stderr.contains("sandbox_namespaces"), "{}", ended.stderr);
}

#[test]
fn strict_refuses_nobody_with_the_layer_and_the_remedy() {
    let ended = run_as_nobody(&["--sandbox=strict"]).with_code(4);
    let begin = "refmill: no worker could be started: --sandbox=strict asks for more than there is: sandbox_memory: ";
    assert!(ended.stderr.starts_with(begin), "{}", ended.stderr);
    assert!(
        ended.stderr.ends_with("; delegate a cgroup, as systemd does with Delegate=memory pids\n"),
        "{}",
        ended.stderr
    );
}

#[test]
fn off_is_shouted_however_quiet_it_is_to_be() {
    let ended = run(&Scratch::new(), &["--sandbox=off", "--quiet"]).with_code(0);
    assert!(ended.stderr.starts_with("refmill: WARNING: --sandbox=off: workers run UNCONFINED"), "{}", ended.stderr);
}

#[test]
fn inspection_and_repair_shout_as_well() {
    let scratch = Scratch::new();
    let input = fixture("images/plain.jpg").display().to_string();
    let inspected = scratch.refmill(["inspect", &input, "--sandbox=off"]).with_code(0);
    assert!(inspected.stderr.contains("UNCONFINED"), "{}", inspected.stderr);
    let repaired = scratch.refmill(["repair", &input, "--out", "fixed", "--sandbox=off"]).with_code(0);
    assert!(repaired.stderr.contains("UNCONFINED"), "{}", repaired.stderr);
}

#[test]
fn working_process_is_under_every_filter_and_without_rights() {
    let scratch = Scratch::new();
    let mut running = scratch.start_run(["-", "--no-tensors"]);
    let worker = running.worker();
    let rights = ["NoNewPrivs", "CapEff", "CapPrm"].map(|field| status(worker, field).unwrap());
    assert_eq!(rights, ["1", "0000000000000000", "0000000000000000"]);
    let own = fs::read_link("/proc/self/ns/net").unwrap();
    assert_ne!(fs::read_link(format!("/proc/{worker}/ns/net")).unwrap(), own);
}

#[test]
fn job_over_a_workers_memory_is_told_from_a_crash() {
    // 60 million pixels of 3 bytes do not fit into 64 MiB.
    let scratch = Scratch::new();
    let input = scratch.write("big.png", crate::support::forged::black_png(10_000, 6_000, &[])).display().to_string();
    let ended = scratch.run([&input, "--no-tensors", "--worker-memory", "64"]).with_code(3);
    let told = "was killed by SIGKILL, over its 67108864 bytes of memory,";
    assert!(ended.stderr.contains(told), "{}", ended.stderr);
}

/// refmill where user namespaces are used up: inside one that may have none below it, with its rights or without.
fn run_without_user_namespaces(prefix: &str, options: &str) -> Ended {
    let scratch = Scratch::new();
    let (program, input) = (bins::refmill(), fixture("images/plain.jpg"));
    let line = format!("{prefix} {} run {} --device cpu --no-tensors {options}", program.display(), input.display());
    let script = format!("echo 0 > /proc/sys/user/max_user_namespaces; exec {line}");
    let mut command = Command::new("unshare");
    command.args(["-U", "-r", "sh", "-c", &script]).current_dir(scratch.path(""));
    Running::start(command).end()
}

const WITHOUT_RIGHTS: &str = "setpriv --inh-caps=-all --bounding-set=-all";

#[test]
fn without_user_namespaces_root_still_has_the_others_and_says_so() {
    let ended = run_without_user_namespaces("", "").with_code(0);
    let said = "sandbox_namespaces: user namespaces are refused, so a worker has the supervisor's id and mounts; ";
    assert!(ended.stderr.contains(said), "{}", ended.stderr);
}

#[test]
fn without_any_namespace_standard_says_which_switch_forbids_them() {
    let ended = run_without_user_namespaces(WITHOUT_RIGHTS, "").with_code(0);
    assert!(ended.stderr.contains("sandbox_namespaces: workers have no namespaces of their own"), "{}", ended.stderr);
    assert!(ended.stderr.contains("set the sysctl user.max_user_namespaces above 0"), "{}", ended.stderr);
}

#[test]
fn without_any_namespace_strict_starts_no_worker() {
    let ended = run_without_user_namespaces(WITHOUT_RIGHTS, "--sandbox=strict").with_code(4);
    assert!(
        ended.stderr.contains("--sandbox=strict asks for more than there is: sandbox_namespaces: "),
        "{}",
        ended.stderr
    );
}
