//! What a captured worker can do: one that was started and confined as the shipped one is, by both programs' own code,
//! and then does what it must not. Each deed ends the worker, or fails; the next worker is as good as new.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a helper that fails is a test that fails"
)]

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use refmill::job::{ColourOptions, Depth, ImageWanted, Job, Strip};
use refmill::limits::Limits;
use refmill::policy::Policy;
use refmill_supervisor::devices::Choice;
use refmill_supervisor::memory::SealedInput;
use refmill_supervisor::pool::Deadlines;
use refmill_supervisor::pool::confinement::Confinement;
use refmill_supervisor::pool::posture::SandboxPolicy;
use refmill_supervisor::pool::worker::{Assignment, Heard, Worker, WorkerPlan};
use refmill_supervisor::shutdown::Stop;

fn rogue() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let program = test.parent().and_then(Path::parent).unwrap().join("examples/rogue_worker");
    assert!(program.is_file(), "{} is not built; `cargo build -p refmill-worker --examples` first", program.display());
    program
}

/// How a deed ends, as the supervisor sees it, under the strict policy.
fn after(deed: &str) -> String {
    let confinement = Confinement { policy: SandboxPolicy::Strict, memory_bytes: 1 << 30 };
    let device = Choice::cpu("asked for");
    let plan =
        WorkerPlan { program: rogue(), library_path: None, device, nvjpeg: None, output_bytes: 1 << 20, confinement };
    let stop = Stop::new().unwrap();
    let mut worker = Worker::start(&plan, &Deadlines::default(), &stop).unwrap();
    let input = SealedInput::fill(&b"x"[..], 1, true).unwrap();
    let job = Job {
        id: 0,
        input_len: 1,
        extension: deed.into(),
        source_hash: String::new(),
        depth: Depth::Full,
        image: ImageWanted::No,
        strip: Strip::Nothing,
        policy: Policy::default(),
        recipe: None,
        colour: ColourOptions::default(),
        limits: Limits::default(),
    };
    let begun = worker.begin(Assignment { job, input: &input }, &stop);
    let heard = begun.and_then(|()| worker.listen(Instant::now() + Duration::from_secs(20), &stop));
    match heard {
        Ok(Heard::Done(report)) => report.error.unwrap().message,
        Ok(other) => panic!("{deed}: {other:?}"),
        Err(error) => error.to_string(),
    }
}

fn kills(deed: &str) {
    assert_eq!(after(deed), "worker was killed by SIGSYS while it held the job", "{deed}");
}

fn denies(deed: &str) {
    assert_eq!(after(deed), "failed: EACCES: Permission denied", "{deed}");
}

#[test]
fn files_are_out_of_reach() {
    ["open_a_file", "create_a_file", "open_own_memory", "open_memory_of_process_1"].into_iter().for_each(denies);
    ["truncate_a_file", "remove_a_file", "rename_a_file", "make_a_symbolic_link"].into_iter().for_each(kills);
}

#[test]
fn network_is_out_of_reach() {
    ["make_a_tcp_socket", "connect_by_tcp", "connect_to_an_abstract_socket", "bind_a_socket"]
        .into_iter()
        .for_each(kills);
}

#[test]
fn processes_are_out_of_reach() {
    ["start_a_program", "fork", "trace_the_parent", "signal_the_parent", "read_the_parents_memory"]
        .into_iter()
        .for_each(kills);
}

#[test]
fn kernel_is_out_of_reach() {
    ["mount", "enter_new_namespaces", "set_up_io_uring", "load_bpf", "watch_performance"].into_iter().for_each(kills);
}

#[test]
fn deed_that_does_not_exist_is_done_by_nobody() {
    assert_eq!(after("no_such_deed"), "failed: EINVAL: Invalid argument");
}
