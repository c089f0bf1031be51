//! What `queue/mod.rs` promises, one test a promise. Generic over the queue: another backend joins with its own
//! `queue()`.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper that fails is a test that fails")]

mod delivery;
mod failure;
mod file;
mod hand;
mod keeping;
mod many;
mod order;
mod tenants;

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use refmill::failure::Blame;
use refmill_supervisor::queue::sqlite::Durability;
use refmill_supervisor::queue::{
    Claimed, Clock, Enqueued, Fault, Filter, JobId, Lease, NewJob, Next, Queue, QueueError, Retention, RetryPolicy,
    SqliteQueue, State, Tenant,
};

const POLICY: RetryPolicy =
    RetryPolicy { max_failures: 3, max_crashes: 2, max_losses: 3, base_ms: 1_000, most_ms: 8_000 };
const LEASE: u32 = 10_000;

/// A queue of its own, in a folder of its own, by a clock of its own.
struct Fresh<Q> {
    queue: Q,
    clock: Clock,
    folder: tempfile::TempDir,
}

impl<Q> Fresh<Q> {
    fn path(&self) -> PathBuf {
        self.folder.path().join("q.db")
    }
}

fn open(path: &Path) -> SqliteQueue {
    SqliteQueue::open(path, Durability::Process, true).unwrap()
}

fn queue() -> Fresh<impl Queue> {
    let folder = tempfile::tempdir().unwrap();
    let clock = Clock::manual(1_000_000);
    let queue = open(&folder.path().join("q.db")).with(clock.clone(), POLICY);
    Fresh { queue, clock, folder }
}

fn new(key: &str) -> NewJob {
    NewJob { key: key.into(), name: format!("/{key}.jpg"), payload: "{}".into(), ..NewJob::default() }
}

fn put(queue: &impl Queue, job: &NewJob) -> JobId {
    match queue.enqueue(job).unwrap() {
        Enqueued::New(id) => id,
        known => panic!("{known:?}"),
    }
}

fn fill(queue: &impl Queue, jobs: u32) {
    for number in 0..jobs {
        put(queue, &new(&number.to_string()));
    }
}

fn claim(queue: &impl Queue) -> Option<Claimed> {
    queue.claim("test", LEASE).unwrap()
}

fn lease(queue: &impl Queue) -> Lease {
    claim(queue).unwrap().lease
}

fn state(queue: &impl Queue, id: JobId) -> State {
    queue.job(id).unwrap().state
}

fn is_stale(answer: &Result<(), QueueError>) -> bool {
    matches!(answer, Err(QueueError::Stale { .. }))
}

fn wait_ms(next: Next) -> i64 {
    match next {
        Next::Again { after_ms } => after_ms.into(),
        end => panic!("{end:?}"),
    }
}

const DEVICE: Fault = Fault::Failed(Blame::Device);
