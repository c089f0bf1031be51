//! `refmill serve` on a queue in a stream: several supervisors, and a server that is killed under them.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a helper that fails is a failed test")]

mod nats_server;
mod served;

use std::fs;
use std::process::Child;
use std::thread;
use std::time::{Duration, Instant};

use nats_server::Server;
use nix::sys::signal::Signal;
use serde_json::Value;
use served::{Place, signal};

/// However often its holders vanish, a job is not poison here: all that vanishes is killed by the test.
const CONFIG: &str = "\
[queue]
path = \"QUEUE\"
lease_s = 1

[retry]
max_losses = 1000000
max_crashes = 1000000
base_ms = 1
most_ms = 20

[[slot]]
device = \"cpu\"
workers = 1
";

fn configured(server: &Server) -> Place {
    let place = Place::new();
    fs::write(place.path("refmill.toml"), CONFIG.replace("QUEUE", &server.stream("jobs"))).unwrap();
    place
}

fn submit(place: &Place, jobs: usize) {
    let names: Vec<String> = (0..jobs).map(|job| format!("i{job}.png")).collect();
    names.iter().for_each(|name| place.image(name));
    let files: Vec<&str> = names.iter().map(String::as_str).collect();
    let submitted =
        place.refmill(&[&["submit", "--config", "refmill.toml", "--recipe", "clip"], files.as_slice()].concat());
    assert!(submitted.status.success(), "{submitted:?}");
}

fn jobs(place: &Place, more: &[&str]) -> Vec<Value> {
    let told = place.refmill(&[&["jobs", "list", "--json", "--config", "refmill.toml"], more].concat());
    let lines = String::from_utf8(told.stdout).unwrap();
    lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn done(place: &Place) -> usize {
    jobs(place, &["--state", "done"]).len()
}

fn wait_for(place: &Place, jobs: usize) {
    let began = Instant::now();
    while done(place) < jobs {
        assert!(began.elapsed() < Duration::from_secs(120), "{} of {jobs} are done: {}", done(place), place.log());
        thread::sleep(Duration::from_millis(50));
    }
}

fn end(mut server: Child) {
    signal(server.id(), Signal::SIGTERM);
    assert!(server.wait().unwrap().success());
}

#[test]
fn supervisors_share_a_stream_and_each_job_is_published_once_whoever_is_killed() {
    const JOBS: usize = 40;
    let Some(mut server) = Server::start() else { return };
    let place = configured(&server);
    submit(&place, JOBS);
    let serve = || place.serve_only(&["--config", "refmill.toml"]);
    let mut supervisors = [serve(), serve(), serve()];
    wait_for(&place, 3);
    signal(supervisors[0].id(), Signal::SIGKILL);
    supervisors[0].wait().unwrap();
    server.kill();
    thread::sleep(Duration::from_millis(300));
    server.restart();
    wait_for(&place, JOBS);
    let [_, second, third] = supervisors;
    end(second);
    end(third);
    let names = place.published();
    let mut unique = names.clone();
    unique.dedup();
    assert_eq!((names.len(), unique.len()), (3 * JOBS, 3 * JOBS), "{names:?}");
    let mut keys: Vec<String> = jobs(&place, &[]).iter().map(|job| job["key"].as_str().unwrap().to_owned()).collect();
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), JOBS);
}

#[test]
fn commands_read_and_change_the_jobs_of_a_stream() {
    let Some(server) = Server::start() else { return };
    let place = configured(&server);
    submit(&place, 2);
    let run = |arguments: &[&str]| {
        let told = place.refmill(&[arguments, &["--queue", &server.stream("jobs")]].concat());
        assert!(told.status.success(), "{told:?}");
        String::from_utf8(told.stdout).unwrap()
    };
    assert_eq!(run(&["jobs", "cancel", "1"]), "job 1 is cancelled\n");
    assert_eq!(run(&["jobs", "bury", "2", "--reason", "looks odd"]), "job 2 is dead\n");
    assert!(run(&["jobs", "show", "2"]).contains("looks odd"));
    assert_eq!(run(&["jobs", "retry", "2"]), "job 2 is queued\n");
    assert!(run(&["status", "--json"]).contains(r#""queued":{"jobs":1"#));
    assert_eq!(place.serve_only(&["--config", "refmill.toml", "--drain"]).wait().unwrap().code(), Some(0));
    assert_eq!(done(&place), 1);
}

#[test]
fn server_that_is_not_there_and_a_stream_that_is_not_there_are_told_apart() {
    let Some(mut server) = Server::start() else { return };
    let place = Place::new();
    let queue = server.stream("jobs");
    let absent = place.refmill(&["jobs", "list", "--queue", &queue]);
    let told = String::from_utf8(absent.stderr).unwrap();
    assert!(absent.status.code() == Some(2) && told.contains("does not exist"), "{told}");
    server.kill();
    let away = place.refmill(&["jobs", "list", "--queue", &queue]);
    let told = String::from_utf8(away.stderr).unwrap();
    assert!(away.status.code() == Some(4) && told.contains("the server does not answer"), "{told}");
}
