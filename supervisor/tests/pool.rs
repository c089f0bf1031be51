//! What the pool promises whatever a worker does: every task has a report, and one bad image costs no other.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a helper that fails is a test that fails"
)]

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use refmill::failure::{Code, Failure};
use refmill::job::{ColourOptions, ImageWanted};
use refmill::limits::Limits;
use refmill::report::{Outcome, Report};
use refmill_supervisor::devices::{Choice, GpuUuid};
use refmill_supervisor::intake::Origin;
use refmill_supervisor::pool::confinement::Confinement;
use refmill_supervisor::pool::posture::SandboxPolicy;
use refmill_supervisor::pool::worker::WorkerPlan;
use refmill_supervisor::pool::{self, Deadlines, Ended, News, Order, Rules, SlotSpec, Task, WatermarkPolicy};
use refmill_supervisor::publish::Outputs;
use refmill_supervisor::shutdown::Stop;

/// The stand-in, which cargo builds beside the tests.
fn fake_worker() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let program = test.parent().and_then(Path::parent).unwrap().join("examples/fake_worker");
    assert!(program.is_file(), "{} is not built; build the package's examples", program.display());
    program
}

struct Run {
    reports: Vec<Report>,
    ended: Ended,
    news: Vec<String>,
}

/// Runs one task for each extension, on `slots` workers, and gives the reports in the order of the tasks.
fn run(extensions: &[&str], slots: usize, stop: &Stop) -> Run {
    run_on(&SlotSpec::several(&plan(fake_worker()), slots), &Rules::default(), extensions, 100, stop)
}

fn plan(program: PathBuf) -> WorkerPlan {
    // The stand-in closes nothing, since it has to misbehave.
    let confinement = Confinement { policy: SandboxPolicy::Off, memory_bytes: 1 << 30 };
    let device = Choice::cpu("asked for");
    WorkerPlan { program, library_path: None, nvjpeg: None, device, output_bytes: 1 << 20, confinement }
}

fn run_on(slots: &[SlotSpec], rules: &Rules, extensions: &[&str], wall_ms: u64, stop: &Stop) -> Run {
    let folder = tempfile::tempdir().unwrap();
    let tasks: Vec<Task> =
        (0..).zip(extensions).map(|(index, extension)| task(folder.path(), index, extension)).collect();
    let limits = Limits { wall_ms, ..Limits::default() };
    let order = Order::new(ImageWanted::No, None, ColourOptions::default(), limits);
    let (mut reports, mut news_of): (Vec<Option<Report>>, Vec<String>) = (vec![None; tasks.len()], Vec::new());
    let ended = pool::run_list(slots, rules, &order, &tasks, stop, &mut |news| match news {
        News::Finished(finished) => reports[finished.index] = Some(finished.report),
        News::Ready(device, _) => news_of.push(format!("ready: {}", device.kind)),
        News::SlotLost(reason) => news_of.push(format!("lost: {reason}")),
        News::Recycled(slot, reason) => news_of.push(format!("recycled {slot}: {reason}")),
        News::Kept(slot, reason) => news_of.push(format!("kept {slot}: {reason}")),
    });
    Run { reports: reports.into_iter().flatten().collect(), ended, news: news_of }
}

fn task(folder: &Path, index: usize, extension: &str) -> Task {
    let path = folder.join(format!("{index}.{extension}"));
    std::fs::write(&path, path.display().to_string()).unwrap();
    let origin = Origin::File(path);
    Task { index, name: origin.name(), origin, outputs: Outputs::default() }
}

fn one(extension: &str) -> Report {
    let run = run(&[extension], 1, &Stop::new().unwrap());
    assert!(run.ended.broken.is_none() && run.ended.undone == 0, "{:?}", run.ended);
    run.reports.into_iter().next().unwrap()
}

fn failure(extension: &str) -> Failure {
    one(extension).error.unwrap()
}

#[test]
fn answer_is_the_workers_with_the_supervisors_own_source_and_device() {
    let report = one("ok");
    assert_eq!(report.outcome, Outcome::Ok);
    assert!(report.source.name.ends_with("/0.ok"), "{}", report.source.name);
    assert_eq!(report.source.bytes, report.source.name.len() as u64);
    assert_eq!(report.source.blake3, blake3::hash(report.source.name.as_bytes()).to_hex().to_string());
    assert_eq!(report.device.unwrap().reason, "asked for");
}

#[test]
fn worker_that_is_killed_before_it_is_ready_is_started_again() {
    let folder = tempfile::tempdir().unwrap();
    let (program, mark) = (folder.path().join("worker"), folder.path().join("mark"));
    let (mark, fake) = (mark.display().to_string(), fake_worker().display().to_string());
    let script = format!("#!/bin/sh\n[ -e '{mark}' ] || {{ : > '{mark}'; kill -9 $$; }}\nexec '{fake}' \"$@\"\n");
    std::fs::write(&program, script).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let slots = SlotSpec::several(&plan(program), 1);
    let run = run_on(&slots, &Rules::default(), &["ok"], 1_000, &Stop::new().unwrap());
    assert!(std::path::Path::new(&mark).exists());
    assert!(run.ended.broken.is_none(), "{:?}", run.ended);
    assert_eq!(run.reports[0].outcome, Outcome::Ok);
}

fn watched(host_bytes: u64, host_hard_bytes: u64) -> Rules {
    let usual = WatermarkPolicy::default();
    let watermark =
        WatermarkPolicy { host_bytes, host_hard_bytes, sample_ms: 10, min_life_ms: 0, jitter_percent: 0, ..usual };
    Rules { watermark, ..Rules::default() }
}

#[test]
fn worker_that_leaks_is_recycled_before_its_hard_limit_and_no_job_is_tried_twice() {
    let slots = SlotSpec::several(&plan(fake_worker()), 1);
    let jobs = ["leak"; 60];
    let run = run_on(&slots, &watched(128 << 20, 256 << 20), &jobs, 10_000, &Stop::new().unwrap());
    assert_eq!(run.reports.len(), jobs.len());
    assert!(run.reports.iter().all(|report| report.outcome == Outcome::Ok));
    let recycled = run.news.iter().filter(|news| news.starts_with("recycled cpu-0: host memory is ")).count();
    // 8 MiB a job make 480 MiB in all; the trend is seen from the eighth job on.
    assert!((2..=7).contains(&recycled), "{:?}", run.news);
    assert!(run.news.iter().all(|news| !news.contains("hard limit")), "{:?}", run.news);
}

#[test]
fn worker_that_is_over_its_mark_from_the_start_is_kept_and_that_is_said_once() {
    let slots = SlotSpec::several(&plan(fake_worker()), 1);
    let run = run_on(&slots, &watched(4 << 10, 256 << 20), &["ok"; 20], 10_000, &Stop::new().unwrap());
    assert!(run.reports.iter().all(|report| report.outcome == Outcome::Ok));
    let kept = run.news.iter().filter(|news| news.starts_with("kept cpu-0: host memory is ")).count();
    assert_eq!((kept, run.news.len()), (1, 2), "{:?}", run.news);
}

#[test]
fn worker_over_its_hard_limit_is_killed_in_mid_job_and_its_image_fails_after_a_second_try() {
    let slots = SlotSpec::several(&plan(fake_worker()), 1);
    let rules = watched(64 << 20, 128 << 20);
    let run = run_on(&slots, &rules, &["balloon", "ok"], 60_000, &Stop::new().unwrap());
    let failure = run.reports[0].error.clone().unwrap();
    assert_eq!(failure.code, Code::WorkerCrashed);
    assert!(failure.message.contains("the hard limit is 134217728, 2 times in a row"), "{}", failure.message);
    assert_eq!(run.reports[1].outcome, Outcome::Ok);
}

/// Runs jobs with one fault each among sound ones, whose answers must not suffer, and gives the faulty ones' reports.
fn among_sound_ones(fault: &str, rules: &Rules) -> (Vec<Report>, Vec<String>) {
    let jobs: Vec<&str> = (0..60).map(|place| if place % 3 == 1 { fault } else { "ok" }).collect();
    let slots = SlotSpec::several(&plan(fake_worker()), 2);
    let run = run_on(&slots, rules, &jobs, 10_000, &Stop::new().unwrap());
    assert!(run.ended.broken.is_none() && run.ended.undone == 0, "{:?}", run.ended);
    let (faulty, sound): (Vec<_>, Vec<_>) = run.reports.into_iter().enumerate().partition(|(place, _)| place % 3 == 1);
    assert!(sound.iter().all(|(_, report)| report.outcome == Outcome::Ok), "{sound:?}");
    (faulty.into_iter().map(|(_, report)| report).collect(), run.news)
}

fn told(news: &[String], what: &str) -> usize {
    news.iter().filter(|news| news.contains(what)).count()
}

/// The watermark for memory that workers claim to have on a GPU.
fn watched_on_gpu(gpu_bytes: u64, gpu_hard_bytes: u64) -> Rules {
    let Rules { watermark, deadlines } = watched(1 << 30, 8 << 30);
    Rules { watermark: WatermarkPolicy { gpu_bytes, gpu_hard_bytes, ..watermark }, deadlines }
}

#[test]
fn leaks_of_each_kind_are_recycled_and_cost_no_job() {
    // One of two workers leaks ten times; halfway to the hard limit its replacement is waited for.
    let cases = [
        ("leak", watched(32 << 20, 96 << 20), "recycled cpu-"),
        ("pinned", watched(32 << 20, 96 << 20), ": host memory is "),
        ("claimed", watched_on_gpu(32 << 20, 96 << 20), ": memory on the GPU is "),
    ];
    for (fault, rules, why) in cases {
        let (reports, news) = among_sound_ones(fault, &rules);
        assert!(reports.iter().all(|report| report.outcome == Outcome::Ok), "{fault}");
        assert!(told(&news, why) >= 1, "{fault}: {news:?}");
    }
}

#[test]
fn memory_that_counters_hide_is_seen_by_the_kernel() {
    let (reports, news) = among_sound_ones("understated", &watched(32 << 20, 96 << 20));
    assert!(reports.iter().all(|report| report.outcome == Outcome::Ok));
    assert!(told(&news, ": host memory is ") >= 1, "{news:?}");
}

#[test]
fn memory_that_counters_invent_costs_the_worker_that_says_so_and_no_job() {
    let (reports, news) = among_sound_ones("overstated", &watched_on_gpu(1 << 30, 4 << 30));
    assert!(reports.iter().all(|report| report.outcome == Outcome::Ok));
    assert!(told(&news, "its memory on the GPU was 18446744073709551615 bytes") >= 1, "{news:?}");
}

#[test]
fn counters_that_contradict_what_was_counted_are_not_believed() {
    for fault in ["miscounted", "contradictory"] {
        let (reports, news) = among_sound_ones(fault, &watched_on_gpu(1 << 20, 2 << 20));
        assert!(reports.iter().all(|report| report.outcome == Outcome::Ok));
        assert_eq!(news, ["ready: cpu"], "{fault}");
    }
}

#[test]
fn faults_of_workers_end_each_job_with_its_own_code_and_no_other_job() {
    // `once` crashes in the first worker that sees it, and is answered by the second.
    let cases = [
        ("crash", Some(Code::WorkerCrashed), ", 2 times in a row"),
        ("abort", Some(Code::WorkerCrashed), "SIGABRT"),
        ("exit", Some(Code::WorkerCrashed), "exited with 68 (the device failed for good)"),
        ("garbage", Some(Code::WorkerProtocol), ""),
        ("slow", None, ""),
        ("once", None, ""),
    ];
    for (fault, code, words) in cases {
        let (reports, _) = among_sound_ones(fault, &Rules::default());
        for error in reports.into_iter().map(|report| report.error) {
            assert_eq!(error.as_ref().map(|error| error.code), code, "{fault}");
            assert!(error.is_none_or(|error| error.message.contains(words)), "{fault}");
        }
    }
}

#[test]
fn worker_that_is_stopped_is_killed_for_its_silence_and_its_job_tried_again() {
    let deadlines = Deadlines { beat_ms: 20, missed_beats: 10, ..Deadlines::default() };
    let rules = Rules { deadlines, ..Rules::default() };
    let run =
        run_on(&SlotSpec::several(&plan(fake_worker()), 1), &rules, &["stopped", "ok"], 60_000, &Stop::new().unwrap());
    let failure = run.reports[0].error.as_ref().unwrap();
    assert_eq!(failure.code, Code::WorkerHung);
    assert!(failure.message.ends_with(" ms, 2 times in a row"), "{failure}");
    assert_eq!(run.reports[1].outcome, Outcome::Ok);
}

#[test]
fn programs_that_are_shipped_inject_no_faults() {
    let refmill = Path::new(env!("CARGO_BIN_EXE_refmill"));
    let has_mark = |program: &Path| {
        let bytes = std::fs::read(program).unwrap();
        let mark = b"refmill-injects-faults";
        bytes.windows(mark.len()).any(|window| window == mark)
    };
    assert!(has_mark(&fake_worker()));
    assert!(!has_mark(refmill) && !has_mark(&refmill.with_file_name("refmill-worker")));
}

#[test]
fn worker_that_crashes_once_costs_nothing() {
    assert_eq!(one("once").outcome, Outcome::Ok);
}

#[test]
fn worker_that_crashes_twice_fails_its_image_with_the_signal() {
    let failure = failure("crash");
    assert_eq!(failure.code, Code::WorkerCrashed);
    assert!(failure.message.contains("was killed by SIGILL"), "{}", failure.message);
}

#[test]
fn worker_that_exits_fails_its_image_with_meaning_and_last_words() {
    let failure = failure("exit");
    assert_eq!(failure.code, Code::WorkerCrashed);
    let expected = "exited with 68 (the device failed for good) (last words)";
    assert!(failure.message.contains(expected), "{}", failure.message);
}

#[test]
fn worker_that_closes_its_socket_and_stays_is_killed() {
    assert_eq!(failure("silent").code, Code::WorkerCrashed);
}

#[test]
fn worker_that_hangs_is_over_the_wall_limit() {
    let failure = failure("hang");
    assert_eq!(failure.code, Code::OverLimit);
    assert!(failure.message.starts_with("wall time in ms is "), "{}", failure.message);
    assert!(failure.message.ends_with(", the limit is 100"), "{}", failure.message);
}

#[test]
fn garbage_is_a_broken_protocol() {
    assert_eq!(failure("garbage").code, Code::WorkerProtocol);
}

#[test]
fn answer_to_another_job_is_a_broken_protocol() {
    assert_eq!(failure("other").code, Code::WorkerProtocol);
}

#[test]
fn artifact_outside_the_region_is_a_broken_protocol() {
    assert_eq!(failure("lie").code, Code::WorkerProtocol);
}

#[test]
fn device_failure_is_tried_again_and_then_told() {
    let failure = failure("device");
    assert_eq!((failure.code, failure.message.as_str()), (Code::Device, "sticky"));
}

#[test]
fn bad_images_cost_no_other_image() {
    let extensions = ["ok", "crash", "ok", "garbage", "once", "lie", "ok", "exit", "ok"];
    let run = run(&extensions, 2, &Stop::new().unwrap());
    let ok: Vec<bool> = run.reports.iter().map(|report| report.outcome == Outcome::Ok).collect();
    assert_eq!(ok, [true, false, true, false, true, false, true, false, true]);
}

#[test]
fn many_jobs_on_one_worker_are_all_answered() {
    let run = run(&["ok"; 300], 1, &Stop::new().unwrap());
    assert_eq!(run.reports.iter().filter(|report| report.outcome == Outcome::Ok).count(), 300);
}

#[test]
fn stop_before_the_start_leaves_every_task_undone() {
    let stop = Stop::new().unwrap();
    stop.request();
    let run = run(&["ok", "ok"], 1, &stop);
    assert_eq!((run.reports.len(), run.ended.undone, run.ended.broken.is_none()), (0, 2, true));
}

#[test]
fn stop_ends_a_job_that_hangs() {
    let stop = Stop::new().unwrap();
    let asked = stop.clone();
    let asker = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(100));
        asked.request();
    });
    let run = run(&["hang", "ok"], 1, &stop);
    asker.join().unwrap();
    assert_eq!(run.ended.undone, 2);
}

#[test]
fn worker_that_gives_no_sign_of_life_is_replaced_and_its_job_tried_again() {
    // The stand-in sends no beats at all.
    let deadlines = Deadlines { beat_ms: 20, missed_beats: 10, ..Deadlines::default() };
    let rules = Rules { deadlines, ..Rules::default() };
    let slots = SlotSpec::several(&plan(fake_worker()), 1);
    let run = run_on(&slots, &rules, &["hang", "ok"], 60_000, &Stop::new().unwrap());
    let failure = run.reports[0].error.as_ref().unwrap();
    assert_eq!(failure.code, Code::WorkerHung);
    assert!(failure.message.starts_with("worker gave no sign of life for "), "{failure}");
    assert!(failure.message.ends_with(" ms, 2 times in a row"), "{failure}");
    assert_eq!(run.reports[1].outcome, Outcome::Ok);
}

#[test]
fn limit_of_the_pool_holds_for_jobs_that_allow_themselves_more() {
    let rules = Rules { deadlines: Deadlines { job_ms: Some(100), ..Deadlines::default() }, ..Rules::default() };
    let slots = SlotSpec::several(&plan(fake_worker()), 1);
    let run = run_on(&slots, &rules, &["hang"], 60_000, &Stop::new().unwrap());
    let failure = run.reports[0].error.as_ref().unwrap();
    assert_eq!(failure.code, Code::OverLimit);
    assert!(failure.message.ends_with(", the limit is 100"), "{failure}");
}

#[test]
fn device_that_does_not_work_costs_no_other() {
    let stop = Stop::new().unwrap();
    let gpu = GpuUuid::parse("GPU-0a1b2c3d-0000-1111-2222-333344445555").unwrap();
    let absent = Choice { gpu: Some(gpu), reason: "asked for".into(), may_fall_back: false };
    // The stand-in says that it runs on the CPU: it is not believed to be on that GPU.
    let mut slots = SlotSpec::several(&WorkerPlan { device: absent, ..plan(fake_worker()) }, 2);
    slots.extend(SlotSpec::several(&plan(fake_worker()), 2));
    let run = run_on(&slots, &Rules::default(), &["ok"; 20], 100, &stop);
    assert_eq!(run.reports.iter().filter(|report| report.outcome == Outcome::Ok).count(), 20);
    assert_eq!(run.news.iter().filter(|news| *news == "ready: cpu").count(), 1, "{:?}", run.news);
    assert!(run.ended.worked && run.ended.undone == 0);
}

#[test]
fn every_device_that_works_is_told_once() {
    let slots = SlotSpec::several(&plan(fake_worker()), 3);
    let run = run_on(&slots, &Rules::default(), &["ok"; 9], 100, &Stop::new().unwrap());
    assert_eq!(run.news, ["ready: cpu"]);
}
