//! What every promise needs, whichever queue keeps it.

use super::Home;
use refmill::failure::Blame;
use refmill_supervisor::queue::sqlite::Durability;
use refmill_supervisor::queue::{
    Claimed, Clock, Enqueued, Fault, JobId, Lease, NewJob, Next, Place, Queue, QueueError, RetryPolicy, SqliteQueue,
    State,
};

pub const POLICY: RetryPolicy =
    RetryPolicy { max_failures: 3, max_crashes: 2, max_losses: 3, base_ms: 1_000, most_ms: 8_000 };
pub const LEASE: u32 = 10_000;

/// A queue of its own, by a clock of its own. What it lies in ends with it.
pub struct Fresh {
    pub queue: SqliteQueue,
    pub clock: Clock,
    pub place: Place,
    pub home: Home,
}

impl Fresh {
    /// The queue at this place, made.
    pub fn at(place: Place, home: Home) -> Self {
        let clock = Clock::manual(1_000_000);
        let queue = opened(&place).with(clock.clone(), POLICY);
        Self { queue, clock, place, home }
    }

    /// The same queue, opened once more.
    pub fn again(&self) -> SqliteQueue {
        opened(&self.place).with(self.clock.clone(), POLICY)
    }
}

pub fn opened(place: &Place) -> SqliteQueue {
    place.open(Durability::Process, true).unwrap()
}

pub fn new(key: &str) -> NewJob {
    NewJob { key: key.into(), name: format!("/{key}.jpg"), payload: "{}".into(), ..NewJob::default() }
}

pub fn put(queue: &SqliteQueue, job: &NewJob) -> JobId {
    match queue.enqueue(job).unwrap() {
        Enqueued::New(id) => id,
        known => panic!("{known:?}"),
    }
}

pub fn fill(queue: &SqliteQueue, jobs: u32) {
    for number in 0..jobs {
        put(queue, &new(&number.to_string()));
    }
}

pub fn claim(queue: &SqliteQueue) -> Option<Claimed> {
    queue.claim("test", LEASE).unwrap()
}

pub fn lease(queue: &SqliteQueue) -> Lease {
    claim(queue).unwrap().lease
}

pub fn state(queue: &SqliteQueue, id: JobId) -> State {
    queue.job(id).unwrap().state
}

pub fn is_stale(answer: &Result<(), QueueError>) -> bool {
    matches!(answer, Err(QueueError::Stale { .. }))
}

pub fn wait_ms(next: Next) -> i64 {
    match next {
        Next::Again { after_ms } => after_ms.into(),
        end => panic!("{end:?}"),
    }
}

pub const DEVICE: Fault = Fault::Failed(Blame::Device);
