//! The durable queue. What it promises, whichever [`Queue`] keeps it:
//!
//! - **Nothing accepted is lost.** Once [`Queue::enqueue`] has returned, the job is on disk and stays until it is
//!   [`State::Done`], [`State::Dead`] or [`State::Cancelled`]; then for as long as [`Retention`] says.
//! - **A job is asked for once.** Its content key (the image's bytes, everything asked of it, where it goes and
//!   refmill's version) is unique. A second submission is answered with the first one's id and state.
//! - **Delivery is at least once, to one holder at a time.** A claim is a [`Lease`] with an end, which its holder
//!   moves on by a heartbeat. A lease that ran out is given to somebody else, under a higher fencing token.
//! - **Publication is exactly once by content key.** A holder stores the artifacts, records the report, then acks. A
//!   lease that is no longer the job's own can neither ack, nak nor extend ([`QueueError::Stale`]), so one holder at
//!   most finishes a job; whoever published before losing its lease wrote the same bytes under the same names. An
//!   ack that is repeated is answered as the first one was.
//! - **Retry goes by blame.** The image, its limits and formats that are not read are never tried again. The device and
//!   refmill itself are: after a pause that doubles, with jitter, a few times ([`RetryPolicy`]).
//! - **Poison is quarantined.** A job under which workers crash, or whose holders vanish, is buried after some of them.
//! - **The dead are kept, with the reason**, and can be given a second life ([`Queue::retry`]).
//! - **Order**: of one tenant's jobs the higher priority first, then the older one; never before its time.
//! - **Tenants share by weight.** Priority and class put a tenant before its turn by a bounded number of jobs, so nobody
//!   starves ([`share`]). A tenant's caps on jobs that wait, jobs in hand and their device memory hold for its own jobs
//!   alone: what waits for them, fails or is poison holds nobody else up.
//!
//! ```text
//!            enqueue                 ack
//!   (none) ----------> queued ------------> done
//!                       |  ^ \  claim /
//!                cancel |  |  leased ------> dead        blame, too many failures, crashes or losses; bury
//!                       v  +----'   nak, expiry, release
//!                  cancelled                             cancel takes effect on a leased job too: its lease is stale
//!
//!   dead, cancelled -- retry --> queued
//! ```
//!
//! Each arrow is one transaction. Time is the machine's clock, in milliseconds since 1970, behind [`Clock`]: a clock
//! that is set back delays what is due, and breaks no promise.
//!
//! [`sqlite`] keeps the queue in one file, [`nats`] in a stream that several supervisors share, [`retry`] decides without touching anything, [`source`] gives its jobs to
//! the pool, and [`lock`] keeps a second supervisor away.

mod clock;
mod error;
pub mod lease;
pub mod lock;
pub mod nats;
pub mod place;
pub mod retry;
pub mod share;
pub mod source;
pub mod spec;
pub mod sqlite;
pub mod tenant;

pub use clock::Clock;
pub use error::QueueError;
pub use lease::{JobId, Lease};
pub use place::Place;
pub use retry::{Fault, Next, RetryPolicy, Tally};
pub use sqlite::SqliteQueue;
pub use tenant::{Standing, Tenant};

use serde::{Deserialize, Serialize, Serializer};

/// Where a job is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Waiting, perhaps for its time
    Queued,
    /// In somebody's hands
    Leased,
    /// Published
    Done,
    /// Given up, with a reason
    Dead,
    /// Taken back by the user
    Cancelled,
}

impl State {
    /// All of them, in the order in which people read them.
    pub const ALL: [Self; 5] = [Self::Queued, Self::Leased, Self::Done, Self::Dead, Self::Cancelled];

    /// The state as it is stored and shown.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Leased => "leased",
            Self::Done => "done",
            Self::Dead => "dead",
            Self::Cancelled => "cancelled",
        }
    }
}

/// What is put into the queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewJob {
    /// Whose it is.
    pub tenant: String,
    /// The content key.
    pub key: String,
    /// What people call it.
    pub name: String,
    /// What is asked; the queue does not look into it.
    pub payload: String,
    /// Higher ones go first.
    pub priority: i32,
    /// How long it must wait, in milliseconds.
    pub delay_ms: u32,
    /// The most device memory that it can need, in bytes.
    pub device_bytes: u64,
}

impl Default for NewJob {
    /// Of the default tenant, due at once, with everything else empty.
    fn default() -> Self {
        let (key, name, payload) = (String::new(), String::new(), String::new());
        Self { tenant: tenant::DEFAULT.into(), key, name, payload, priority: 0, delay_ms: 0, device_bytes: 0 }
    }
}

/// A job as the queue knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Job {
    /// Its number.
    pub id: JobId,
    /// Whose it is.
    pub tenant: String,
    /// The content key.
    pub key: String,
    /// What people call it.
    pub name: String,
    /// Where it is.
    pub state: State,
    /// Higher ones go first.
    pub priority: i32,
    /// Not claimed before; milliseconds since 1970, as all times here.
    pub not_before: i64,
    /// How often it was claimed, less what was released.
    pub deliveries: u32,
    /// What went wrong so far.
    #[serde(flatten)]
    pub tally: Tally,
    /// The fencing token of its latest lease; 0 before the first.
    pub token: i64,
    /// Who holds it.
    pub holder: Option<String>,
    /// Until when.
    pub lease_until: Option<i64>,
    /// When it was put into the queue.
    pub created: i64,
    /// When its state last changed.
    pub updated: i64,
    /// Why it was buried, or went back into the queue.
    pub reason: Option<String>,
    /// What is asked.
    #[serde(skip)]
    pub payload: String,
    /// The report, once there is a final one.
    #[serde(serialize_with = "as_json", skip_serializing_if = "Option::is_none")]
    pub report: Option<String>,
}

/// A report is stored as the text that it was published as; it is shown as what it means.
fn as_json<S: Serializer>(report: &Option<String>, serializer: S) -> Result<S::Ok, S::Error> {
    let parsed: Option<serde_json::Value> = report.as_ref().and_then(|text| serde_json::from_str(text).ok());
    parsed.serialize(serializer)
}

/// How a submission was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Enqueued {
    /// A new job.
    New(JobId),
    /// A job with this content key is there already.
    Known(JobId, State),
}

/// A job in the hands of whoever claimed it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claimed {
    /// The right to finish it.
    pub lease: Lease,
    /// The job, leased.
    pub job: Job,
}

/// Which jobs are meant.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// Of this state only.
    pub state: Option<State>,
    /// Of this tenant only.
    pub tenant: Option<String>,
}

/// How many jobs are in one state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Count {
    /// The state.
    pub state: State,
    /// How many.
    pub jobs: u64,
    /// When the oldest was put into the queue.
    pub oldest: Option<i64>,
}

/// How long jobs are kept once they are over, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// Done and cancelled ones.
    pub done_ms: i64,
    /// Dead ones.
    pub dead_ms: i64,
}

impl Default for Retention {
    /// A week, and a month for the dead.
    fn default() -> Self {
        const DAY_MS: i64 = 86_400_000;
        Self { done_ms: 7 * DAY_MS, dead_ms: 30 * DAY_MS }
    }
}

/// A queue that keeps the promises of this module. Every method is one transaction, and may be called by any number
/// of threads and processes at once.
pub trait Queue: Sync {
    /// Puts a job into the queue, unless its key is known.
    ///
    /// # Errors
    /// [`QueueError::Refused`] where its tenant is not known or has all it may have; [`QueueError::Sql`]
    fn enqueue(&self, job: &NewJob) -> Result<Enqueued, QueueError>;

    /// Takes the next due job for `lease_ms`, and nothing where none is due or every tenant with one is at its caps.
    /// Leases that ran out are seen to first.
    ///
    /// # Errors
    /// [`QueueError::Sql`]
    fn claim(&self, holder: &str, lease_ms: u32) -> Result<Option<Claimed>, QueueError>;

    /// Moves the end of a lease to `lease_ms` from now.
    ///
    /// # Errors
    /// [`QueueError::Stale`], [`QueueError::Sql`]
    fn extend(&self, lease: Lease, lease_ms: u32) -> Result<(), QueueError>;

    /// The job is done and published, and `report` says how. Said twice, it is true once.
    ///
    /// # Errors
    /// [`QueueError::Stale`], [`QueueError::Sql`]
    fn ack(&self, lease: Lease, report: &str) -> Result<(), QueueError>;

    /// The job failed: tried again later or buried with `reason` and `report`, as the [`RetryPolicy`] has it.
    ///
    /// # Errors
    /// [`QueueError::Stale`], [`QueueError::Sql`]
    fn nak(&self, lease: Lease, fault: Fault, reason: &str, report: Option<&str>) -> Result<Next, QueueError>;

    /// Gives a lease back unused: nothing is held against the job.
    ///
    /// # Errors
    /// [`QueueError::Stale`], [`QueueError::Sql`]
    fn release(&self, lease: Lease) -> Result<(), QueueError>;

    /// Ends leases that ran out, or all of them where their holders are known to be gone. Returns how many.
    ///
    /// # Errors
    /// [`QueueError::Sql`]
    fn reclaim(&self, all: bool) -> Result<usize, QueueError>;

    /// Takes back a queued or leased job. What its holder makes of it meanwhile is not published.
    ///
    /// # Errors
    /// [`QueueError::Absent`], [`QueueError::State`], [`QueueError::Sql`]
    fn cancel(&self, id: JobId) -> Result<(), QueueError>;

    /// Gives a dead or cancelled job a second life, due at once, with nothing held against it.
    ///
    /// # Errors
    /// As [`Queue::cancel`]
    fn retry(&self, id: JobId) -> Result<(), QueueError>;

    /// Buries a queued or leased job by hand.
    ///
    /// # Errors
    /// As [`Queue::cancel`]
    fn bury(&self, id: JobId, reason: &str) -> Result<(), QueueError>;

    /// One job.
    ///
    /// # Errors
    /// [`QueueError::Absent`], [`QueueError::Sql`]
    fn job(&self, id: JobId) -> Result<Job, QueueError>;

    /// Up to `most` jobs after `after` by number.
    ///
    /// # Errors
    /// [`QueueError::Sql`]
    fn list(&self, filter: &Filter, after: JobId, most: u32) -> Result<Vec<Job>, QueueError>;

    /// How many jobs there are in each state that has any.
    ///
    /// # Errors
    /// [`QueueError::Sql`]
    fn counts(&self) -> Result<Vec<Count>, QueueError>;

    /// Sets who may have jobs in the queue, and on which terms; a tenant that is not named any more keeps what it has.
    ///
    /// # Errors
    /// [`QueueError::Sql`]
    fn set_tenants(&self, tenants: &[Tenant]) -> Result<(), QueueError>;

    /// Every tenant that is configured or has jobs, by name.
    ///
    /// # Errors
    /// [`QueueError::Sql`]
    fn tenants(&self) -> Result<Vec<Standing>, QueueError>;

    /// Whether the queue can be written to right now; writes nothing.
    ///
    /// # Errors
    /// [`QueueError::Sql`]
    fn probe(&self) -> Result<(), QueueError>;

    /// Forgets jobs that were over for long enough, some ten thousand at a time. Returns how many; their keys are free
    /// again.
    ///
    /// # Errors
    /// [`QueueError::Sql`]
    fn prune(&self, retention: Retention) -> Result<usize, QueueError>;
}
