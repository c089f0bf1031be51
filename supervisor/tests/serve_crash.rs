//! `refmill serve` killed at any moment, and workers under it, until the queue is drained: every job is published
//! once, and none is lost.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a helper that fails is a test that fails"
)]

mod served;

use std::collections::HashSet;
use std::fs;
use std::thread;
use std::time::Duration;

use nix::sys::signal::Signal;
use refmill::report::{Outcome, Report};
use refmill_supervisor::queue::{Job, State};
use served::{Place, children, signal};

const IMAGES: usize = 8;
const ROUNDS: u64 = 20;
/// Fewer than a job may lose holders.
const KILLS: u64 = 5;
/// Fewer than a job may crash workers.
const WORKER_KILLS: u64 = 2;

/// A small generator of numbers that look random: each round is another one, and the same one every time.
struct Chance(u64);

impl Chance {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// Starts a server and kills it after a while; before that, perhaps, one of its workers.
fn kill_one(place: &Place, chance: &mut Chance, worker_too: bool) {
    let mut server = place.serve(&["--drain"]);
    thread::sleep(Duration::from_millis(chance.below(250)));
    let workers = children(server.id());
    if let (true, Some(worker)) = (worker_too, workers.first()) {
        signal(*worker, Signal::SIGKILL);
        thread::sleep(Duration::from_millis(chance.below(100)));
    }
    signal(server.id(), Signal::SIGKILL);
    server.wait().unwrap();
}

fn is_published(job: &Job) -> bool {
    let report: Report = serde_json::from_str(job.report.as_deref().unwrap()).unwrap();
    let whole = |artifact: &refmill::report::Artifact| {
        fs::read(&artifact.path).is_ok_and(|bytes| blake3::hash(&bytes).to_hex().as_str() == artifact.blake3)
    };
    job.state == State::Done
        && report.outcome != Outcome::Reject
        && report.artifacts.len() == 2
        && report.artifacts.iter().all(whole)
}

fn round(number: u64) {
    let (place, mut chance) = (Place::new(), Chance(number));
    let names: Vec<String> = (0..IMAGES).map(|image| format!("i{image}.png")).collect();
    names.iter().for_each(|name| place.image(name));
    let files: Vec<&str> = names.iter().map(String::as_str).collect();
    let submitted = place.refmill(&[&["submit", "--recipe", "clip"], files.as_slice()].concat());
    assert!(submitted.status.success(), "{submitted:?}");
    (0..KILLS).for_each(|kill| kill_one(&place, &mut chance, kill < WORKER_KILLS));
    let drained = place.serve(&["--drain"]).wait().unwrap();
    let jobs = place.jobs();
    assert!(drained.success() && jobs.len() == IMAGES, "round {number}: {drained:?} {}", place.log());
    assert!(jobs.iter().all(is_published), "round {number}: {}", place.log());
    let paths: HashSet<String> = place.published().into_iter().collect();
    let expected = (0..IMAGES)
        .flat_map(|image| [".png", ".report.json", ".safetensors"].map(|ending| format!("i{image}{ending}")))
        .collect();
    assert_eq!(paths, expected, "round {number}");
}

#[test]
fn supervisor_and_workers_killed_at_any_moment_publish_every_job_once() {
    (0..ROUNDS).for_each(round);
}
