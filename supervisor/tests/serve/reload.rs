//! The configuration file: what a server goes by, and what SIGHUP changes while it runs.

use std::fs;
use std::path::Path;

use nix::sys::signal::Signal;
use refmill_supervisor::queue::{Queue, State};

use super::served::{Place, signal};
use super::{drain, fake_worker, submit, text, wait_for};

/// A server by this configuration, ready for work.
fn configured(place: &Place, config: &str) -> std::process::Child {
    fs::write(place.path("refmill.toml"), config).unwrap();
    let server = place.serve(&["--config", "refmill.toml"]);
    wait_for("readiness", || place.log().contains("ready on").then_some(()));
    server
}

/// Changes the configuration, has it read, and waits until the server has said `word` of it.
fn reload(place: &Place, server: &std::process::Child, config: &str, word: &str) {
    fs::write(place.path("refmill.toml"), config).unwrap();
    signal(server.id(), Signal::SIGHUP);
    wait_for(word, || place.log().contains(word).then_some(()));
}

fn end(mut server: std::process::Child) {
    signal(server.id(), Signal::SIGTERM);
    assert_eq!(server.wait().unwrap().code(), Some(0));
}

/// Submits an image whose ICC chunks come in the wrong order.
fn submit_defective(place: &Place, name: &str) {
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/defects/icc_chunks_reversed.jpg");
    fs::copy(fixture, place.path(name)).unwrap();
    assert!(place.refmill(&["submit", "--no-tensors", name]).status.success());
}

fn state_of(place: &Place, job: usize) -> Option<State> {
    place.jobs().get(job).map(|job| job.state).filter(|state| matches!(state, State::Done | State::Dead))
}

#[test]
fn server_says_line_by_line_what_it_takes_and_what_needs_a_restart() {
    let place = Place::new();
    let server = configured(&place, "[[tenant]]\nname = \"a\"\n");
    let new = "[queue]\nlease_s = 7\n[retention]\ndead_days = 3\n[[tenant]]\nname = \"a\"\nweight = 5\n";
    reload(&place, &server, new, "reload: tenant.a.weight is 5, it was 1");
    let log = place.log();
    assert!(log.contains("reload: queue.lease_s stays 30: 7 needs a restart\n"), "{log}");
    assert!(log.contains("reload: retention.dead_days is 3, it was 30\n"), "{log}");
    assert_eq!(place.queue().tenants().unwrap()[0].tenant.weight, 5);
    // What needs a restart still differs; what was taken does not.
    signal(server.id(), Signal::SIGHUP);
    wait_for("a second reload", || (place.log().matches("needs a restart").count() == 2).then_some(()));
    assert_eq!(place.log().matches("tenant.a.weight").count(), 1);
    end(server);
}

#[test]
fn file_that_is_broken_changes_nothing_and_is_told_with_its_line() {
    let place = Place::new();
    let server = configured(&place, "[[tenant]]\nname = \"a\"\nweight = 2\n");
    reload(&place, &server, "[[tenant]]\nname = \"a\"\nweight = 0\n", "reload: everything stays as it was");
    assert!(place.log().contains("refmill.toml:3:10: `tenant.weight` is 0, it takes a whole number from 1 to 1000"));
    assert_eq!(place.queue().tenants().unwrap()[0].tenant.weight, 2);
    reload(&place, &server, "[[tenant]]\nname = \"a\"\nweight = 2\n", "reload: nothing has changed");
    end(server);
}

#[test]
fn policy_of_a_finding_holds_for_the_jobs_that_come_after_it_changed() {
    let place = Place::new();
    let server = configured(&place, "[policy.findings]\nicc_chunk_out_of_order = \"reject\"\n");
    submit_defective(&place, "a.jpg");
    assert_eq!(wait_for("the first job", || state_of(&place, 0)), State::Dead);
    assert!(place.jobs()[0].reason.as_ref().unwrap().starts_with("policy_reject: icc_chunk_out_of_order"));
    reload(&place, &server, "", "reload: policy.findings.icc_chunk_out_of_order is not set");
    submit_defective(&place, "b.jpg");
    assert_eq!(wait_for("the second job", || state_of(&place, 1)), State::Done);
    end(server);
}

#[test]
fn hangup_that_comes_often_and_early_ends_nothing() {
    let place = Place::new();
    submit(&place, &["a.png", "b.png", "c.png"]);
    fs::write(place.path("refmill.toml"), "").unwrap();
    let mut server = place.serve(&["--config", "refmill.toml", "--drain"]);
    // Before the first signal is blocked it would end the program, as it does any other.
    wait_for("readiness", || place.log().contains("ready on").then_some(()));
    (0..200).for_each(|_| signal(server.id(), Signal::SIGHUP));
    assert_eq!(server.wait().unwrap().code(), Some(0), "{}", place.log());
    assert!(place.jobs().iter().all(|job| job.state == State::Done));
}

#[test]
fn server_without_a_configuration_says_so_when_it_is_asked_to_read_it() {
    let place = Place::new();
    let server = place.serve(&[]);
    wait_for("readiness", || place.log().contains("ready on").then_some(()));
    signal(server.id(), Signal::SIGHUP);
    wait_for("its word", || place.log().contains("reload: no configuration file was named").then_some(()));
    end(server);
}

#[test]
fn configuration_that_is_broken_is_refused_at_the_start() {
    let place = Place::new();
    fs::write(place.path("refmill.toml"), "[queue]\nlease = 3\n").unwrap();
    assert_eq!(drain(&place, &["--config", "refmill.toml"]), Some(2));
    let expected = "refmill: refmill.toml:2:1: `queue.lease` is not known; `queue` takes path, durability";
    assert!(place.log().starts_with(expected), "{}", place.log());
}

#[test]
fn watermark_that_is_configured_has_leaking_workers_recycled() {
    let place = Place::new();
    let watermark =
        "[watermark]\nhost_bytes = 134217728\nhost_hard_bytes = 1073741824\nsample_ms = 10\nmin_life_ms = 0\n";
    fs::write(place.path("refmill.toml"), watermark).unwrap();
    let names: Vec<String> = (0..40).map(|number| format!("{number}.leak")).collect();
    names.iter().for_each(|name| fs::write(place.path(name), name).unwrap());
    let submitted: Vec<&str> = names.iter().map(String::as_str).collect();
    assert!(place.refmill(&[&["submit", "--no-image", "--no-tensors"], &submitted[..]].concat()).status.success());
    let worker = fake_worker();
    let serve = ["--config", "refmill.toml", "--worker", worker.to_str().unwrap(), "--sandbox=off"];
    assert_eq!(drain(&place, &serve), Some(0), "{}", place.log());
    assert!(place.log().contains("worker recycled: host memory is "), "{}", place.log());
    assert!(place.jobs().iter().all(|job| job.state == State::Done && job.deliveries == 1));
}

#[test]
fn deadline_that_is_configured_ends_a_job_that_hangs_and_changes_with_a_restart() {
    let place = Place::new();
    fs::write(place.path("a.hang"), "x").unwrap();
    assert!(place.refmill(&["submit", "--no-image", "--no-tensors", "a.hang"]).status.success());
    fs::write(place.path("refmill.toml"), "[deadlines]\njob_ms = 100\n").unwrap();
    let worker = fake_worker();
    let server = place.serve(&["--config", "refmill.toml", "--worker", worker.to_str().unwrap(), "--sandbox=off"]);
    assert_eq!(wait_for("the job's end", || state_of(&place, 0)), State::Dead);
    assert!(place.jobs()[0].reason.as_ref().unwrap().ends_with("the limit is 100"), "{}", place.log());
    let word = "reload: deadlines.job_ms stays 100: 200 needs a restart";
    reload(&place, &server, "[deadlines]\njob_ms = 200\n", word);
    end(server);
}

#[test]
fn configuration_is_begun_checked_and_shown() {
    let place = Place::new();
    assert_eq!(place.refmill(&["config", "init"]).status.code(), Some(0));
    assert_eq!(place.refmill(&["config", "init"]).status.code(), Some(2));
    assert_eq!(text(&place.refmill(&["config", "check"]).stdout), "refmill.toml is sound\n");
    let shown = place.refmill(&["config", "show", "refmill.toml"]).stdout;
    assert_eq!((text(&shown), &shown), (text(&place.refmill(&["config", "show"]).stdout), &shown));
    assert!(text(&shown).contains("[queue]\npath = \"refmill.db\"\n"), "{}", text(&shown));
}

#[test]
fn policies_of_a_configuration_hold_for_inspect_repair_and_run() {
    let place = Place::new();
    fs::write(place.path("refmill.toml"), "[policy.findings]\nicc_chunk_out_of_order = \"reject\"\n").unwrap();
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/defects/icc_chunks_reversed.jpg");
    fs::copy(fixture, place.path("a.jpg")).unwrap();
    let code = |arguments: &[&str]| place.refmill(&[arguments, &["--config", "refmill.toml"]].concat()).status.code();
    assert_eq!(code(&["inspect", "a.jpg"]), Some(3));
    assert_eq!(code(&["repair", "a.jpg", "--out", "r"]), Some(3));
    assert_eq!(code(&["run", "a.jpg", "--device", "cpu", "--no-tensors"]), Some(3));
    // What is typed goes before it.
    assert_eq!(code(&["inspect", "a.jpg", "--policy", "icc_chunk_out_of_order=ignore"]), Some(0));
}
