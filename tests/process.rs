//! The two programs as processes: how a worker is confined, and what becomes of a batch when one of them is stopped
//! or killed. Standard input, which a test holds open, keeps a job waiting for as long as it likes.

use std::collections::BTreeMap;
use std::fs;

use refmill::failure::Code;
use refmill::report::{Outcome, Report};

use crate::support::fixtures::fixture;
use crate::support::forged::black_png;
use crate::support::running::{Running, is_gone, signal, status};
use crate::support::scratch::Scratch;

/// A run of three images on one worker, the second of which comes from standard input: the first is done, the
/// worker waits.
fn waiting(scratch: &Scratch, options: &[&str]) -> (Running, u32) {
    scratch.write("a.png", black_png(48, 32, &[]));
    scratch.write("c.png", black_png(32, 48, &[]));
    let arguments = ["a.png", "-", "c.png", "--workers", "1", "--json", "--recipe", "clip"];
    let mut running = scratch.start_run(arguments.iter().chain(options));
    running.lines(1);
    let worker = running.worker();
    (running, worker)
}

fn image() -> Vec<u8> {
    fs::read(fixture("images/plain.jpg")).unwrap()
}

fn outcomes(reports: &[Report]) -> Vec<(&str, Outcome)> {
    reports.iter().map(|report| (report.source.name.as_str(), report.outcome)).collect()
}

/// The fields of `/proc/PID/stat` from the state on: state, parent, group and so on.
fn stat(pid: u32) -> Option<Vec<String>> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    Some(text.rsplit_once(") ")?.1.split(' ').map(str::to_owned).collect())
}

/// The processor time of a process, in ticks of 10 ms.
fn cpu_ticks(pid: u32) -> Option<u64> {
    stat(pid)?.get(11..13)?.iter().map(|ticks| ticks.parse::<u64>().ok()).sum()
}

const ALL_OK: [(&str, Outcome); 3] = [("a.png", Outcome::Ok), ("stdin", Outcome::Ok), ("c.png", Outcome::Ok)];

#[test]
fn worker_knows_its_device_and_its_folder_and_nothing_of_our_environment() {
    let scratch = Scratch::new();
    let (running, worker) = waiting(&scratch, &[]);
    let environment = String::from_utf8(fs::read(format!("/proc/{worker}/environ")).unwrap()).unwrap();
    let mut names: Vec<&str> = environment.split_terminator('\0').map(|pair| pair.split_once('=').unwrap().0).collect();
    names.sort_unstable();
    names.retain(|name| *name != "LD_LIBRARY_PATH");
    assert_eq!(names, ["CUDA_DEVICE_ORDER", "CUDA_VISIBLE_DEVICES", "LANG", "TMPDIR"]);
    running.end();
}

#[test]
fn worker_leads_its_own_process_group() {
    let scratch = Scratch::new();
    let (running, worker) = waiting(&scratch, &[]);
    assert_eq!(stat(worker).unwrap()[2], worker.to_string());
    running.end();
}

#[test]
fn worker_can_gain_no_privilege_and_its_calls_are_filtered() {
    let scratch = Scratch::new();
    let (running, worker) = waiting(&scratch, &[]);
    let fields = ["NoNewPrivs", "Seccomp", "SigBlk"].map(|field| status(worker, field).unwrap());
    assert_eq!(fields, ["1", "2", "0000000000000000"]);
    running.end();
}

#[test]
fn every_thread_of_a_worker_is_filtered() {
    let scratch = Scratch::new();
    let (running, worker) = waiting(&scratch, &[]);
    let threads = fs::read_dir(format!("/proc/{worker}/task")).unwrap().flatten();
    let filtered = threads.map(|thread| fs::read_to_string(thread.path().join("status")).unwrap());
    let filtered: Vec<bool> = filtered.map(|text| text.contains("\nSeccomp:\t2\n")).collect();
    assert!(!filtered.is_empty() && filtered.iter().all(|filtered| *filtered), "{filtered:?}");
    running.end();
}

#[test]
fn worker_holds_no_file_of_the_machine_open() {
    let scratch = Scratch::new();
    let (running, worker) = waiting(&scratch, &[]);
    let entries = fs::read_dir(format!("/proc/{worker}/fd")).unwrap().flatten();
    let held: BTreeMap<String, String> = entries
        .map(|entry| (entry.file_name(), fs::read_link(entry.path()).unwrap()))
        .map(|(number, target)| (number.into_string().unwrap(), target.to_string_lossy().into_owned()))
        .collect();
    let harmless = ["/dev/null", "pipe:", "socket:", "anon_inode:", "/memfd:"];
    let strange: Vec<&String> =
        held.values().filter(|target| !harmless.iter().any(|kind| target.starts_with(kind))).collect();
    assert!(strange.is_empty(), "{strange:?}");
    assert!(held.len() <= 8, "{held:?}");
    running.end();
}

#[test]
fn worker_killed_at_work_loses_no_image() {
    let scratch = Scratch::new();
    let (mut running, worker) = waiting(&scratch, &["--limit", "wall_ms=900000"]);
    let before = cpu_ticks(worker).unwrap();
    running.feed(&black_png(8_000, 8_000, &[]));
    // A tenth of a second of work on a picture that takes many of them: the job is in its hands, and not done.
    running.wait_for("work", || (cpu_ticks(worker)? >= before + 10).then_some(()));
    signal(worker, "KILL");
    let reports = running.end().with_code(0).reports();
    assert_eq!(outcomes(&reports), ALL_OK);
    let lost = |name: &str| !scratch.exists(&format!("out/{name}.safetensors"));
    assert!(!["a", "stdin", "c"].into_iter().any(lost), "{:?}", scratch.names("out"));
}

#[test]
fn worker_killed_while_idle_loses_no_image() {
    let scratch = Scratch::new();
    let (mut running, worker) = waiting(&scratch, &[]);
    signal(worker, "KILL");
    running.feed(&image());
    assert_eq!(outcomes(&running.end().with_code(0).reports()), ALL_OK);
}

#[test]
fn worker_that_stands_still_is_over_the_wall_limit_and_the_other_images_are_processed() {
    let scratch = Scratch::new();
    let (mut running, worker) = waiting(&scratch, &["--limit", "wall_ms=5000"]);
    signal(worker, "STOP");
    running.feed(&image());
    let reports = running.end().with_code(1).reports();
    assert_eq!(outcomes(&reports), [ALL_OK[0], ("stdin", Outcome::Reject), ALL_OK[2]]);
    let failure = reports[1].error.as_ref().unwrap();
    assert_eq!(failure.code, Code::OverLimit);
    assert!(failure.message.starts_with("wall time in ms is "), "{failure}");
    assert!(failure.message.ends_with(", the limit is 5000"), "{failure}");
    assert!(is_gone(worker));
}

#[test]
fn refmill_killed_takes_its_workers_with_it() {
    let scratch = Scratch::new();
    let (mut running, worker) = waiting(&scratch, &[]);
    signal(running.pid(), "KILL");
    running.wait_for("the worker's end", || is_gone(worker).then_some(()));
    assert_eq!(running.end().signal, Some(9));
}

#[test]
fn refmill_killed_takes_a_stopped_worker_with_it() {
    let scratch = Scratch::new();
    let (mut running, worker) = waiting(&scratch, &[]);
    signal(worker, "STOP");
    signal(running.pid(), "KILL");
    running.wait_for("the worker's end", || is_gone(worker).then_some(()));
}

#[test]
fn run_again_after_a_kill_does_what_was_left() {
    let scratch = Scratch::new();
    let (mut running, worker) = waiting(&scratch, &[]);
    signal(running.pid(), "KILL");
    running.wait_for("the worker's end", || is_gone(worker).then_some(()));
    assert_eq!(scratch.names("out"), ["a.png", "a.report.json", "a.safetensors"]);
    let arguments = ["a.png", "-", "c.png", "--json", "--recipe", "clip"];
    assert_eq!(scratch.run_with_stdin(arguments, &image()).with_code(0).reports().len(), 3);
    assert_eq!(scratch.names("out").len(), 9);
}

#[test]
fn refmill_asked_to_end_tells_what_was_done_and_leaves_no_worker() {
    let scratch = Scratch::new();
    let (mut running, worker) = waiting(&scratch, &[]);
    signal(worker, "STOP");
    running.feed(&image());
    signal(running.pid(), "TERM");
    let ended = running.end().with_code(1);
    assert_eq!(outcomes(&ended.reports()), ALL_OK[..1]);
    assert!(ended.stderr.contains("1 ok, 0 repaired, 0 rejected, 2 not done"), "{}", ended.stderr);
    assert!(is_gone(worker));
    assert_eq!(scratch.names("out"), ["a.png", "a.report.json", "a.safetensors"]);
}

#[test]
fn refmill_asked_to_end_before_anything_was_done_says_so() {
    let scratch = Scratch::new();
    let mut running = scratch.start_run(["-"]);
    let worker = running.worker();
    signal(worker, "STOP");
    running.feed(&image());
    signal(running.pid(), "INT");
    let ended = running.end().with_code(3);
    assert!(ended.stderr.contains("0 ok, 0 repaired, 0 rejected, 1 not done"), "{}", ended.stderr);
}

#[test]
fn refmill_asked_to_end_while_it_waits_for_standard_input_ends() {
    let scratch = Scratch::new();
    let (mut running, worker) = waiting(&scratch, &[]);
    signal(running.pid(), "TERM");
    running.wait_for("the worker's end", || is_gone(worker).then_some(()));
    running.end().with_code(1);
}
