//! `refmill serve` over a running batch while processes are killed: in each round one, the supervisor or a worker, at a
//! random moment. Every job is published once, none is lost, and nothing half-written is left.
//!
//! `tests/kill` runs as many rounds as it is told, from the seed that it is told; without it there are 60.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a helper that fails is a test that fails; rounds and seed come from the environment"
)]

#[path = "served/mod.rs"]
mod served;

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::Child;
use std::thread;
use std::time::Duration;

use nix::sys::signal::Signal;
use refmill::report::{Outcome, Report};
use refmill_supervisor::queue::{Job, State};
use served::{Place, children, signal};

const ROUNDS: u64 = 60;
const SEED: u64 = 1;
/// New jobs in each round.
const JOBS: u64 = 2;
/// The latest moment of a round's kill, in milliseconds: some are in the start, most in the work.
const LATEST_MS: u64 = 350;

/// However often its holders die, a job is not poison here: all that dies is killed by the test.
const CONFIG: &str = "\
[retry]
max_crashes = 1000000
max_losses = 1000000
base_ms = 1
most_ms = 20

[[slot]]
device = \"cpu\"
workers = 2
";

/// Numbers that look random, the same ones for the same seed.
struct Chance(u64);

impl Chance {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// What a file is on disk: written again, it is another one.
type Identity = (u64, i64, i64);

struct Batch {
    place: Place,
    chance: Chance,
    server: Option<Child>,
    submitted: u64,
    killed: BTreeMap<&'static str, u64>,
    /// The reports of jobs that were done, as they were when that was seen first.
    done: BTreeMap<i64, Identity>,
}

impl Batch {
    fn new(seed: u64) -> Self {
        let place = Place::new();
        fs::write(place.path("refmill.toml"), CONFIG).unwrap();
        let (chance, killed, done) = (Chance(seed), BTreeMap::new(), BTreeMap::new());
        Self { place, chance, server: None, submitted: 0, killed, done }
    }

    fn submit(&mut self) {
        let names: Vec<String> = (0..JOBS).map(|job| format!("i{}.png", self.submitted + job)).collect();
        names.iter().for_each(|name| self.place.image(name));
        let files: Vec<&str> = names.iter().map(String::as_str).collect();
        let submitted = self.place.refmill(&[&["submit", "--recipe", "clip"], files.as_slice()].concat());
        assert!(submitted.status.success(), "{submitted:?}");
        self.submitted += JOBS;
    }

    /// Kills one process, whichever comes, and the moment too.
    fn kill(&mut self) {
        let start = || self.place.serve_only(&["--config", "refmill.toml"]);
        let mut server = self.server.take().unwrap_or_else(start);
        thread::sleep(Duration::from_millis(self.chance.below(LATEST_MS)));
        assert!(server.try_wait().unwrap().is_none(), "the server ended by itself: {}", self.place.log());
        let workers = children(server.id());
        // A worker in two of three, where both are there; else the supervisor.
        let choice = usize::try_from(self.chance.below(3)).unwrap();
        if let Some(worker) = workers.get(choice) {
            signal(*worker, Signal::SIGKILL);
            *self.killed.entry("workers").or_default() += 1;
            self.server = Some(server);
        } else {
            signal(server.id(), Signal::SIGKILL);
            server.wait().unwrap();
            *self.killed.entry("supervisors").or_default() += 1;
        }
    }

    /// Jobs that are done stay as they are: whoever publishes one again writes another file.
    fn look(&mut self) {
        for job in self.place.jobs().iter().filter(|job| job.state == State::Done) {
            let identity = identity(job);
            let first = *self.done.entry(job.id.0).or_insert(identity);
            assert_eq!(identity, first, "job {} was published again", job.id);
        }
    }

    fn end(mut self) {
        if let Some(mut server) = self.server.take() {
            signal(server.id(), Signal::SIGTERM);
            assert!(server.wait().unwrap().success(), "{}", self.place.log());
        }
        let drained = self.place.serve_only(&["--config", "refmill.toml", "--drain"]).wait().unwrap();
        self.look();
        let jobs = self.place.jobs();
        let states: Vec<_> = jobs.iter().filter(|job| !is_published(job)).collect();
        assert!(drained.success() && states.is_empty(), "{states:?} {}", self.place.log());
        let expected = (0..self.submitted)
            .flat_map(|image| [".png", ".report.json", ".safetensors"].map(|ending| format!("i{image}{ending}")))
            .collect();
        assert_eq!(self.place.published().into_iter().collect::<HashSet<String>>(), expected);
        assert_eq!(self.place.half_written(), Vec::<String>::new());
        println!("{} jobs, each published once; killed: {:?}; nothing half-written is left", jobs.len(), self.killed);
    }
}

fn report(job: &Job) -> Report {
    serde_json::from_str(job.report.as_deref().unwrap()).unwrap()
}

fn identity(job: &Job) -> Identity {
    let path = report(job).artifacts[0].path.clone();
    let report = path.replace(".png", ".report.json").replace(".safetensors", ".report.json");
    let file = fs::metadata(&report).unwrap_or_else(|error| panic!("{report}: {error}"));
    (file.ino(), file.mtime(), file.mtime_nsec())
}

fn is_published(job: &Job) -> bool {
    let whole = |artifact: &refmill::report::Artifact| {
        fs::read(&artifact.path).is_ok_and(|bytes| blake3::hash(&bytes).to_hex().as_str() == artifact.blake3)
    };
    job.state == State::Done && {
        let report = report(job);
        report.outcome != Outcome::Reject && report.artifacts.len() == 2 && report.artifacts.iter().all(whole)
    }
}

#[test]
fn any_process_killed_at_any_moment_costs_no_job_and_publishes_none_twice() {
    let number = |name, usual| std::env::var(name).map_or(usual, |text| text.parse().unwrap());
    let (rounds, seed) = (number("REFMILL_KILL_ROUNDS", ROUNDS), number("REFMILL_KILL_SEED", SEED));
    println!("{rounds} rounds from seed {seed}");
    let mut batch = Batch::new(seed);
    (0..rounds).for_each(|_| {
        batch.submit();
        batch.kill();
        batch.look();
    });
    batch.end();
}
