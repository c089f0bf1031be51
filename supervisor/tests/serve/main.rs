//! The queue's commands from outside: what they answer, and how `serve` begins and ends.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a helper that fails is a test that fails"
)]

mod log;
mod reload;
#[path = "../served/mod.rs"]
mod served;
mod service;
mod tenants;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Output};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use refmill_supervisor::queue::{Job, State};
use served::{Place, children, signal};

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// Waits until `found` finds something.
fn wait_for<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(120);
    loop {
        match found() {
            Some(found) => return found,
            None => assert!(Instant::now() < deadline, "{what} did not come about"),
        }
        thread::sleep(Duration::from_millis(5));
    }
}

fn submit(place: &Place, names: &[&str]) -> Output {
    names.iter().for_each(|name| place.image(name));
    place.refmill(&[&["submit", "--recipe", "clip"], names].concat())
}

fn drain(place: &Place, more: &[&str]) -> Option<i32> {
    place.serve(&[&["--drain"], more].concat()).wait().unwrap().code()
}

/// The stand-in for a worker, which cargo builds beside the tests.
fn fake_worker() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let program = test.parent().and_then(Path::parent).unwrap().join("examples/fake_worker");
    assert!(program.is_file(), "{} is not built; build the package's examples", program.display());
    program
}

/// Has one job of this extension, which tells the stand-in how to behave, drained.
fn behave(extension: &str) -> (Place, Option<i32>, Job) {
    let place = Place::new();
    let name = format!("a.{extension}");
    fs::write(place.path(&name), "x").unwrap();
    place.refmill(&["submit", "--no-image", "--no-tensors", &name]);
    let code = drain(&place, &["--worker", fake_worker().to_str().unwrap(), "--sandbox=off"]);
    let job = place.jobs().remove(0);
    (place, code, job)
}

/// A server whose workers stand still, with a job in hand.
fn standing(place: &Place, arguments: &[&str]) -> (Child, Vec<u32>) {
    let server = place.serve(arguments);
    let workers = wait_for("two workers", || Some(children(server.id())).filter(|workers| workers.len() == 2));
    wait_for("readiness", || place.log().contains("ready on").then_some(()));
    workers.iter().for_each(|worker| signal(*worker, Signal::SIGSTOP));
    submit(place, &["a.png"]);
    wait_for("a lease", || place.jobs().first().filter(|job| job.state == State::Leased).map(drop));
    (server, workers)
}

#[test]
fn submitted_images_are_published_and_the_server_ends_when_the_queue_is_empty() {
    let place = Place::new();
    assert_eq!(submit(&place, &["a.png", "b.png"]).status.code(), Some(0));
    assert_eq!(drain(&place, &[]), Some(0));
    let expected = ["a.png", "a.report.json", "a.safetensors", "b.png", "b.report.json", "b.safetensors"];
    assert_eq!(place.published(), expected);
    assert!(place.jobs().iter().all(|job| job.state == State::Done && job.deliveries == 1));
}

#[test]
fn image_submitted_twice_is_answered_with_the_job_that_is_there() {
    let place = Place::new();
    let first = submit(&place, &["a.png"]);
    let second = submit(&place, &["a.png"]);
    assert_eq!(text(&first.stdout), "job 1 queued: a.png\n");
    assert_eq!(text(&second.stdout), "job 1 queued, known already: a.png\n");
    let json = place.refmill(&["submit", "--recipe", "clip", "--json", "a.png"]);
    let answer: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!((&answer["id"], &answer["duplicate"]), (&1.into(), &true.into()));
}

#[test]
fn file_that_cannot_be_read_is_told_and_costs_no_other() {
    let place = Place::new();
    place.image("a.png");
    let submitted = place.refmill(&["submit", "none.png", "a.png"]);
    assert_eq!((submitted.status.code(), text(&submitted.stdout)), (Some(1), "job 1 queued: a.png\n"));
    assert!(text(&submitted.stderr).starts_with("none.png: unreadable: cannot read none.png"));
}

#[test]
fn image_that_is_none_is_a_dead_letter_with_its_report() {
    let place = Place::new();
    fs::write(place.path("a.png"), "no image at all").unwrap();
    place.refmill(&["submit", "a.png"]);
    assert_eq!((drain(&place, &[]), place.published()), (Some(1), vec!["a.report.json".to_owned()]));
    let job = place.jobs().remove(0);
    assert_eq!((job.state, job.deliveries), (State::Dead, 1));
    assert!(job.reason.unwrap().starts_with("not_an_image"), "{:?}", job.report);
}

#[test]
fn image_that_changed_since_it_was_submitted_is_a_dead_letter() {
    let place = Place::new();
    submit(&place, &["a.png"]);
    fs::write(place.path("a.png"), fs::read(place.path("a.png")).unwrap().repeat(2)).unwrap();
    assert_eq!(drain(&place, &[]), Some(1));
    assert!(place.jobs()[0].reason.as_ref().unwrap().contains("has other bytes than when it was submitted"));
}

#[test]
fn job_that_crashes_workers_is_quarantined() {
    let (place, code, job) = behave("crash");
    assert_eq!((code, job.state, job.tally.crashes), (Some(1), State::Dead, 3), "{}", place.log());
    assert!(job.reason.unwrap().contains("was killed by SIGILL"));
    assert_eq!(place.published(), ["a.report.json"]);
}

#[test]
fn job_that_crashes_one_worker_is_done_by_the_next() {
    let (place, code, job) = behave("once");
    assert_eq!((code, job.state, job.tally.crashes), (Some(0), State::Done, 1), "{}", place.log());
}

#[test]
fn device_that_fails_is_tried_again_until_it_was_often_enough() {
    let (place, code, job) = behave("device");
    assert_eq!((code, job.state, job.tally.failures), (Some(1), State::Dead, 5), "{}", place.log());
    assert_eq!(job.reason.as_deref(), Some("given up after 5 failures; the last: device: sticky"));
}

#[test]
fn second_server_is_refused_with_the_first_ones_pid() {
    let place = Place::new();
    let (mut first, _) = standing(&place, &[]);
    let second = place.refmill(&["serve", "--device", "cpu"]);
    let expected = format!("refmill.db is served by process {} already\n", first.id());
    assert_eq!(second.status.code(), Some(2));
    assert!(text(&second.stderr).ends_with(&expected), "{}", text(&second.stderr));
    signal(first.id(), Signal::SIGKILL);
    first.wait().unwrap();
}

#[test]
fn server_asked_to_end_finishes_what_it_has_and_begins_nothing() {
    let place = Place::new();
    let (mut server, workers) = standing(&place, &[]);
    signal(server.id(), Signal::SIGTERM);
    wait_for("its word", || place.log().contains("asked to end").then_some(()));
    submit(&place, &["b.png"]);
    workers.iter().for_each(|worker| signal(*worker, Signal::SIGCONT));
    assert_eq!(server.wait().unwrap().code(), Some(0));
    let states: Vec<State> = place.jobs().iter().map(|job| job.state).collect();
    assert_eq!(states, [State::Done, State::Queued]);
}

#[test]
fn server_asked_to_end_gives_back_what_is_not_finished_in_time() {
    let place = Place::new();
    let (mut server, workers) = standing(&place, &["--grace", "0"]);
    signal(server.id(), Signal::SIGTERM);
    assert_eq!(server.wait().unwrap().code(), Some(0));
    let job = place.jobs().remove(0);
    assert_eq!((job.state, job.deliveries, job.tally.losses), (State::Queued, 0, 0));
    assert!(workers.iter().all(|worker| !Path::new(&format!("/proc/{worker}")).exists()));
    assert_eq!((drain(&place, &[]), place.jobs()[0].state), (Some(0), State::Done));
}

#[test]
fn heartbeat_holds_a_lease_for_longer_than_it_lasts() {
    let place = Place::new();
    let (mut server, workers) = standing(&place, &["--lease", "1"]);
    let first = place.jobs()[0].lease_until.unwrap();
    wait_for("three leases' time", || (place.jobs()[0].lease_until? > first + 3_000).then_some(()));
    assert_eq!((place.jobs()[0].state, place.jobs()[0].token), (State::Leased, 1));
    workers.iter().for_each(|worker| signal(*worker, Signal::SIGCONT));
    signal(server.id(), Signal::SIGTERM);
    server.wait().unwrap();
    assert_eq!(place.jobs()[0].state, State::Done);
}

#[test]
fn job_cancelled_while_a_worker_holds_it_is_not_published() {
    let place = Place::new();
    let (mut server, workers) = standing(&place, &[]);
    assert_eq!(text(&place.refmill(&["jobs", "cancel", "1"]).stdout), "job 1 is cancelled\n");
    workers.iter().for_each(|worker| signal(*worker, Signal::SIGCONT));
    signal(server.id(), Signal::SIGTERM);
    server.wait().unwrap();
    assert_eq!((place.published(), place.jobs()[0].state), (Vec::new(), State::Cancelled));
    assert!(place.log().contains("its lease was lost"), "{}", place.log());
}

#[test]
fn jobs_are_listed_shown_buried_and_given_a_second_life() {
    let place = Place::new();
    submit(&place, &["a.png", "b.png"]);
    assert_eq!(text(&place.refmill(&["jobs", "bury", "1", "--reason", "odd"]).stdout), "job 1 is dead\n");
    let dead = place.refmill(&["jobs", "list", "--state", "dead"]);
    assert!(text(&dead.stdout).starts_with("  1  dead  ") && text(&dead.stdout).ends_with("odd\n"));
    let shown: serde_json::Value =
        serde_json::from_slice(&place.refmill(&["jobs", "show", "1", "--json"]).stdout).unwrap();
    assert_eq!((&shown["state"], &shown["reason"], &shown["failures"]), (&"dead".into(), &"odd".into(), &0.into()));
    assert_eq!(text(&place.refmill(&["jobs", "retry", "1"]).stdout), "job 1 is queued\n");
    let refused = place.refmill(&["jobs", "retry", "1"]);
    assert_eq!(text(&refused.stderr), "refmill: job 1 is queued, it must be dead or cancelled\n");
    assert_eq!((refused.status.code(), place.refmill(&["jobs", "show", "9"]).status.code()), (Some(2), Some(2)));
}

#[test]
fn status_counts_jobs_by_state() {
    let place = Place::new();
    submit(&place, &["a.png", "b.png"]);
    place.refmill(&["jobs", "bury", "2"]);
    let status: serde_json::Value = serde_json::from_slice(&place.refmill(&["status", "--json"]).stdout).unwrap();
    assert_eq!((&status["states"]["queued"]["jobs"], &status["dead_letters"]), (&1.into(), &1.into()));
    assert!(status["states"]["queued"]["oldest_age_s"].is_i64() && status["states"]["done"]["oldest_age_s"].is_null());
    assert!(text(&place.refmill(&["status"]).stdout).starts_with("  queued     1  oldest "));
}

#[test]
fn queue_that_is_not_there_is_named() {
    let refused = Place::new().refmill(&["status", "--queue", "none.db"]);
    assert_eq!(refused.status.code(), Some(2));
    assert_eq!(text(&refused.stderr), "refmill: queue none.db does not exist; `refmill submit` makes one\n");
}
