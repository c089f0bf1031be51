//! The queue in one SQLite file, in WAL mode: any number of processes read it while one writes. Every statement is a
//! file of `sql/`. Opens that file and its `-wal` and `-shm`, and nothing else. Or a replica of the queue that a stream
//! holds, in a file without a name, see [`super::nats`].

mod migrate;
mod pick;
mod replica;
mod row;
mod statement;

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, Transaction, TransactionBehavior, named_params};

use serde::{Deserialize, Serialize};

use super::nats::link::Link;
use super::nats::{Access, Address};
use super::{
    Claimed, Clock, Count, Enqueued, Fault, Filter, Job, JobId, Lease, NewJob, Next, Queue, QueueError, Retention,
    RetryPolicy, Standing, State, Tally, Tenant,
};
pub use migrate::APPLICATION;
use replica::Replica;
use statement as sql;

/// How long a writer waits for another one.
const BUSY: Duration = Duration::from_secs(10);
/// Prepared statements that are kept: all of them.
const STATEMENTS: usize = 64;
/// What is left of the write-ahead log once it was written back, in bytes: one long transaction shall not take the
/// disk for good.
const LOG_BYTES: i64 = 64 << 20;

/// How many jobs are forgotten at a time, and up to a thousand more.
pub const PRUNED: usize = 20_000;

/// How much a commit survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Durability {
    /// A power cut. For those who tell a user that a job was accepted.
    Full,
    /// The end of the process, at any moment. A power cut can take the last commits back, all that came after one of
    /// them included: a job is delivered again. Many times faster; for those who claim and ack.
    Process,
}

/// A queue in a file, or a replica of one in a stream.
#[derive(Debug)]
pub struct SqliteQueue {
    connection: Mutex<Connection>,
    replica: Option<Replica>,
    clock: Clock,
    policy: Mutex<RetryPolicy>,
}

impl SqliteQueue {
    /// Opens a queue, and makes it where `create` says so.
    ///
    /// # Errors
    /// [`QueueError::NoFile`], [`QueueError::Open`], [`QueueError::Foreign`], [`QueueError::Newer`]
    pub fn open(path: &Path, durability: Durability, create: bool) -> Result<Self, QueueError> {
        let name = || path.display().to_string();
        if !create && !path.is_file() {
            return Err(QueueError::NoFile { path: name() });
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let opened = Connection::open_with_flags(path, flags).and_then(|connection| configured(connection, durability));
        let mut connection = opened.map_err(|source| QueueError::Open { path: name(), source })?;
        migrate::migrate(&mut connection, &name())?;
        Ok(Self { connection: Mutex::new(connection), replica: None, clock: Clock::system(), policy: Mutex::default() })
    }

    /// Opens the queue that a stream holds, and makes the stream where `create` says so.
    ///
    /// # Errors
    /// [`QueueError::Stream`], [`QueueError::NoStream`], [`QueueError::Newer`]
    pub fn share(address: &Address, access: &Access, create: bool) -> Result<Self, QueueError> {
        let name = || address.to_string();
        let failed = |source| QueueError::Stream { what: "open the queue", name: name(), source };
        let link = Link::open(address, access, create).map_err(failed)?;
        let link = link.ok_or_else(|| QueueError::NoStream { name: name() })?;
        // SQLite removes a file without a name by itself, and keeps in memory what fits there.
        let opened = Connection::open("").and_then(|connection| configured(connection, Durability::Process));
        let mut connection = opened.map_err(|source| QueueError::Open { path: name(), source })?;
        migrate::migrate(&mut connection, &name())?;
        let replica = Replica::new(link, name());
        replica.begin(&mut connection)?;
        let (connection, replica) = (Mutex::new(connection), Some(replica));
        Ok(Self { connection, replica, clock: Clock::system(), policy: Mutex::default() })
    }

    /// The same queue by another clock and another policy.
    #[must_use]
    pub fn with(self, clock: Clock, policy: RetryPolicy) -> Self {
        Self { clock, policy: Mutex::new(policy), ..self }
    }

    /// What becomes of failures from now on.
    pub fn set_policy(&self, policy: RetryPolicy) {
        *self.policy.lock().unwrap_or_else(PoisonError::into_inner) = policy;
    }

    fn connection(&self) -> MutexGuard<'_, Connection> {
        // A thread that panicked held no transaction: its guard rolled it back.
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `body` as one transaction that writes.
    fn write<T>(
        &self,
        what: &'static str,
        body: impl Fn(&Transaction<'_>, i64) -> Result<T, Refusal>,
    ) -> Result<T, QueueError> {
        let mut connection = self.connection();
        if let Some(replica) = &self.replica {
            return replica.write(&mut connection, what, |transaction| body(transaction, self.now_ms()));
        }
        let failed = |source| QueueError::Sql { what, source };
        // The lock is taken at the start: one that is only wanted later can be refused without any wait.
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)?;
        match body(&transaction, self.now_ms()) {
            Ok(value) => transaction.commit().map(|()| value).map_err(failed),
            Err(Refusal::Sql(source)) => Err(failed(source)),
            Err(Refusal::Queue(error)) => Err(error),
        }
    }

    fn read<T>(
        &self,
        what: &'static str,
        body: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, QueueError> {
        let mut connection = self.connection();
        if let Some(replica) = &self.replica {
            replica.renew(&mut connection, what)?;
        }
        body(&connection).map_err(|source| QueueError::Sql { what, source })
    }

    /// The time that leases go by.
    fn now_ms(&self) -> i64 {
        self.clock.elsewhere_ms(self.replica.as_ref().map_or(0, Replica::ahead_ms))
    }

    /// Whether a job is due, as far as is known here.
    fn is_due(&self) -> Result<bool, QueueError> {
        let due = |connection: &Connection| sql::due(connection, self.now_ms());
        if self.replica.is_some() {
            // What is known is enough to try; only to say that there is nothing takes the stream's word.
            let known = due(&self.connection());
            if known.map_err(|source| QueueError::Sql { what: "look for a due job", source })? {
                return Ok(true);
            }
        }
        self.read("look for a due job", due)
    }

    /// Counts `fault` against a leased job, and puts it back or buries it.
    fn settle(
        &self,
        transaction: &Transaction<'_>,
        now: i64,
        job: &Job,
        fault: Fault,
        (reason, report): (&str, Option<&str>),
    ) -> rusqlite::Result<Next> {
        let policy = *self.policy.lock().unwrap_or_else(PoisonError::into_inner);
        let (next, tally) = policy.decide(job.tally, fault, seed(job));
        let reason = next.reason(tally, reason);
        match next {
            Next::Again { after_ms } => {
                sql::again(transaction, job.id, tally, &reason, (now, now.saturating_add(after_ms.into())))?;
            }
            _ => sql::bury(transaction, job.id, tally, &reason, (now, report))?,
        }
        Ok(next)
    }

    fn expire(&self, transaction: &Transaction<'_>, now: i64, until: i64) -> rusqlite::Result<usize> {
        let lost = sql::jobs(transaction, sql::EXPIRED, named_params! {":until": until})?;
        for job in &lost {
            let reason = format!("{} was not heard of any more", job.holder.as_deref().unwrap_or("its holder"));
            self.settle(transaction, now, job, Fault::Lost, (&reason, None))?;
        }
        Ok(lost.len())
    }

    /// Changes one job by its number, or says why it cannot be.
    fn change(
        &self,
        what: &'static str,
        (id, wanted): (JobId, &'static str),
        body: impl Fn(&Transaction<'_>, i64) -> rusqlite::Result<bool>,
    ) -> Result<(), QueueError> {
        self.write(what, |transaction, now| {
            if body(transaction, now)? {
                return Ok(());
            }
            Err(Refusal::Queue(match sql::job(transaction, id)? {
                Some(job) => QueueError::State { id, state: job.state, wanted },
                None => QueueError::Absent { id },
            }))
        })
    }
}

/// What makes one job's pauses differ from another's.
fn seed(job: &Job) -> u64 {
    job.id.0.unsigned_abs().rotate_left(32) ^ job.token.unsigned_abs()
}

/// Why a transaction is rolled back.
enum Refusal {
    Sql(rusqlite::Error),
    Queue(QueueError),
}

impl From<rusqlite::Error> for Refusal {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}

fn stale(lease: Lease) -> Refusal {
    Refusal::Queue(QueueError::Stale { job: lease.job, token: lease.token })
}

impl Queue for SqliteQueue {
    fn enqueue(&self, job: &NewJob) -> Result<Enqueued, QueueError> {
        self.write("enqueue a job", |transaction, now| match sql::find_key(transaction, &job.key)? {
            Some((id, state)) => Ok(Enqueued::Known(id, state)),
            None => {
                pick::admit(transaction, job)?;
                Ok(Enqueued::New(sql::enqueue(transaction, job, now)?))
            }
        })
    }

    fn claim(&self, holder: &str, lease_ms: u32) -> Result<Option<Claimed>, QueueError> {
        if !self.is_due()? {
            return Ok(None);
        }
        self.write("claim a job", |transaction, now| {
            self.expire(transaction, now, now)?;
            let Some(id) = pick::pick(transaction, now)? else { return Ok(None) };
            let claimed = sql::claim(transaction, (id, holder), now, lease_ms)?;
            Ok(claimed.map(|job| Claimed { lease: Lease { job: job.id, token: job.token }, job }))
        })
    }

    fn extend(&self, lease: Lease, lease_ms: u32) -> Result<(), QueueError> {
        self.write("extend a lease", |transaction, now| {
            if sql::extend(transaction, lease, now, lease_ms)? { Ok(()) } else { Err(stale(lease)) }
        })
    }

    fn ack(&self, lease: Lease, report: &str) -> Result<(), QueueError> {
        self.write("ack a job", |transaction, now| {
            let done = sql::ack(transaction, lease, now, report)? || sql::acked(transaction, lease)?;
            if done { Ok(()) } else { Err(stale(lease)) }
        })
    }

    fn nak(&self, lease: Lease, fault: Fault, reason: &str, report: Option<&str>) -> Result<Next, QueueError> {
        self.write("nak a job", |transaction, now| {
            let job = sql::held(transaction, lease)?.ok_or_else(|| stale(lease))?;
            Ok(self.settle(transaction, now, &job, fault, (reason, report))?)
        })
    }

    fn release(&self, lease: Lease) -> Result<(), QueueError> {
        self.write(
            "release a lease",
            |transaction, now| {
                if sql::release(transaction, lease, now)? { Ok(()) } else { Err(stale(lease)) }
            },
        )
    }

    fn reclaim(&self, all: bool) -> Result<usize, QueueError> {
        self.write("end leases", |transaction, now| {
            Ok(self.expire(transaction, now, if all { i64::MAX } else { now })?)
        })
    }

    fn cancel(&self, id: JobId) -> Result<(), QueueError> {
        self.change("cancel a job", (id, "queued or leased"), |transaction, now| sql::cancel(transaction, id, now))
    }

    fn retry(&self, id: JobId) -> Result<(), QueueError> {
        self.change("retry a job", (id, "dead or cancelled"), |transaction, now| sql::retry(transaction, id, now))
    }

    fn bury(&self, id: JobId, reason: &str) -> Result<(), QueueError> {
        self.change("bury a job", (id, "queued or leased"), |transaction, now| {
            let live = |job: &Job| matches!(job.state, State::Queued | State::Leased);
            let Some(job) = sql::job(transaction, id)?.filter(live) else { return Ok(false) };
            sql::bury(transaction, id, job.tally, reason, (now, None)).map(|()| true)
        })
    }

    fn job(&self, id: JobId) -> Result<Job, QueueError> {
        self.read("read a job", |connection| sql::job(connection, id))?.ok_or(QueueError::Absent { id })
    }

    fn list(&self, filter: &Filter, after: JobId, most: u32) -> Result<Vec<Job>, QueueError> {
        self.read("list jobs", |connection| sql::list(connection, filter, after, most))
    }

    fn counts(&self) -> Result<Vec<Count>, QueueError> {
        self.read("count jobs", sql::counts)
    }

    fn set_tenants(&self, tenants: &[Tenant]) -> Result<(), QueueError> {
        self.write("set the tenants", |transaction, _| Ok(sql::set_tenants(transaction, tenants)?))
    }

    fn tenants(&self) -> Result<Vec<Standing>, QueueError> {
        self.read("read the tenants", |connection| sql::standings(connection, include_str!("sql/tenants.sql"), []))
    }

    fn probe(&self) -> Result<(), QueueError> {
        match &self.replica {
            Some(replica) => replica.renew(&mut self.connection(), "reach the stream"),
            None => self.write("take the queue's lock", |_, _| Ok(())),
        }
    }

    fn prune(&self, retention: Retention) -> Result<usize, QueueError> {
        let Retention { done_ms, dead_ms } = retention;
        let mut gone = 0;
        for (state, kept) in [(State::Done, done_ms), (State::Cancelled, done_ms), (State::Dead, dead_ms)] {
            while gone < PRUNED
                && let some @ 1.. = self.write("forget old jobs", |transaction, now| {
                    Ok(sql::prune(transaction, state, now.saturating_sub(kept))?)
                })?
            {
                gone += some;
            }
        }
        Ok(gone)
    }
}

fn configured(connection: Connection, durability: Durability) -> rusqlite::Result<Connection> {
    connection.busy_timeout(BUSY)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    // Answers with the mode that holds, which is another one on a file system without shared memory; locks still do.
    connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
    connection.pragma_update_and_check(None, "journal_size_limit", LOG_BYTES, |_| Ok(()))?;
    let synchronous = match durability {
        Durability::Full => "FULL",
        Durability::Process => "NORMAL",
    };
    connection.pragma_update(None, "synchronous", synchronous)?;
    Ok(connection)
}
