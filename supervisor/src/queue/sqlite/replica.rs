//! A replica of the queue that a stream holds, see [`super::super::nats`]: what makes one transaction one step of the
//! history that all replicas agree on.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rusqlite::{Connection, Transaction, TransactionBehavior};

use super::super::QueueError;
use super::super::nats::link::{Answer, Head, Link, Offer};
use super::super::nats::{self, LinkError};
use super::Refusal;
use super::row::{self, RowError};

/// How long a change is tried whose answers are lost.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a replica is waited for that is behind the one that leads the stream.
const BEHIND: Duration = Duration::from_millis(20);
/// How long a replica may lie still until it is read anew: jobs that are forgotten are told for a day.
const STILL: Duration = Duration::from_secs(3_600);

/// The stream behind a replica.
#[derive(Debug)]
pub(super) struct Replica {
    link: Link,
    name: String,
    state: Mutex<State>,
    /// How far the server's clock is ahead of this machine's, in milliseconds.
    ahead_ms: AtomicI64,
    attempts: AtomicU64,
    /// Tells this process's attempts from all others.
    own: String,
}

/// Where the replica stands in the stream.
#[derive(Debug, Default)]
struct State {
    /// When the stream was made.
    created: String,
    /// The last sequence that is taken over.
    taken: u64,
    /// When it was brought up to date.
    at: Option<Instant>,
}

/// What became of a change.
enum Offered {
    /// It is part of the history.
    Stored,
    /// Somebody else was faster, and the stream ends here now.
    Behind(u64),
    /// Not known.
    Open(LinkError),
}

impl Replica {
    pub(super) fn new(link: Link, name: String) -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        let own = format!("{}-{}-{since}", nats::hostname(), std::process::id());
        let (state, ahead_ms, attempts) = (Mutex::default(), AtomicI64::new(0), AtomicU64::new(0));
        Self { link, name, state, ahead_ms, attempts, own }
    }

    /// Makes an empty file a replica.
    pub(super) fn begin(&self, connection: &mut Connection) -> Result<(), QueueError> {
        let open = |source| QueueError::Open { path: self.name.clone(), source };
        connection.execute_batch(include_str!("../sql/replica.sql")).map_err(open)?;
        self.renew(connection, "read the queue")
    }

    pub(super) fn ahead_ms(&self) -> i64 {
        self.ahead_ms.load(Ordering::Relaxed)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Only ever held together with the connection.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn failed(&self, what: &'static str, source: LinkError) -> QueueError {
        QueueError::Stream { what, name: self.name.clone(), source }
    }

    /// Makes a change, and makes it again for as long as others are faster. An answer that changes nothing is given
    /// by a replica that is up to date.
    pub(super) fn write<T>(
        &self,
        connection: &mut Connection,
        what: &'static str,
        body: impl Fn(&Transaction<'_>) -> Result<T, Refusal>,
    ) -> Result<T, QueueError> {
        let sql = |source| QueueError::Sql { what, source };
        let deadline = Instant::now() + PATIENCE;
        let mut fresh = self.state().at.is_none_or(|at| at.elapsed() > STILL);
        if fresh {
            self.renew(connection, what)?;
        }
        loop {
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(sql)?;
            let answer = body(&transaction);
            let offers = match &answer {
                Ok(_) => row::offers(&transaction).map_err(sql)?,
                Err(_) => Vec::new(),
            };
            if offers.is_empty() {
                if fresh {
                    return match answer {
                        Ok(value) => transaction.commit().map(|()| value).map_err(sql),
                        Err(Refusal::Sql(source)) => Err(sql(source)),
                        Err(Refusal::Queue(error)) => Err(error),
                    };
                }
                drop(transaction);
                self.renew(connection, what)?;
                fresh = true;
                continue;
            }
            let attempt = format!("{}-{}", self.own, self.attempts.fetch_add(1, Ordering::Relaxed));
            let error = match (self.offered(&attempt, &offers), answer) {
                (Offered::Stored, Ok(value)) => {
                    row::clear(&transaction).map_err(sql)?;
                    transaction.commit().map_err(sql)?;
                    return Ok(value);
                }
                (Offered::Behind(last), _) => {
                    drop(transaction);
                    self.follow(connection, what, last, None)?;
                    fresh = true;
                    continue;
                }
                (Offered::Open(error), Ok(value)) => {
                    drop(transaction);
                    // The stream knows. Where it cannot be asked, it stays open.
                    let head = self.link.head().map_err(|error| self.failed(what, error))?;
                    // With the last of its messages all of them are there.
                    let attempt = numbered(&attempt, offers.len());
                    if self.caught_up(connection, what, &head, Some(&attempt))? {
                        return Ok(value);
                    }
                    error
                }
                // Without a value nothing is offered.
                (_, Err(_)) => continue,
            };
            if Instant::now() >= deadline {
                return Err(self.failed(what, error));
            }
            std::thread::sleep(BEHIND);
            fresh = true;
        }
    }

    /// Brings the replica up to date.
    pub(super) fn renew(&self, connection: &mut Connection, what: &'static str) -> Result<(), QueueError> {
        let asked = now_ms();
        let head = self.link.head().map_err(|error| self.failed(what, error))?;
        if let Some(theirs) = head.now_ms {
            // The answer was written between asking and now.
            self.ahead_ms.store(theirs - i64::midpoint(asked, now_ms()), Ordering::Relaxed);
        }
        self.caught_up(connection, what, &head, None).map(drop)
    }

    /// Offers every message of a change, each as the one after the one before.
    fn offered(&self, attempt: &str, offers: &[Offer]) -> Offered {
        let mut last = self.state().taken;
        for (number, offer) in (1..).zip(offers) {
            if let Some(live) = row::live(&offer.subject).filter(|_| offer.fades) {
                // Left behind by a supervisor that was killed, it would come back to life with no other message about.
                if let Err(error) = self.link.remove(&live, last.saturating_add(1)) {
                    return Offered::Open(error);
                }
            }
            match self.link.offer(last, &numbered(attempt, number), offer) {
                Ok(Answer::Stored(sequence)) => last = sequence,
                Ok(Answer::Behind(last)) => return Offered::Behind(last),
                Err(error) => return Offered::Open(error),
            }
        }
        self.state().taken = last;
        for offer in offers.iter().filter(|offer| !offer.fades) {
            row::live(&offer.subject).iter().for_each(|live| self.link.forget(live, last));
        }
        Offered::Stored
    }

    /// Takes over what the stream has until `head`; everything where it is another stream, or this one has lost
    /// something. Returns whether `attempt` was among it.
    fn caught_up(
        &self,
        connection: &mut Connection,
        what: &'static str,
        head: &Head,
        attempt: Option<&str>,
    ) -> Result<bool, QueueError> {
        let anew = {
            let mut state = self.state();
            let still = state.at.is_some_and(|at| at.elapsed() > STILL);
            let anew = state.created != head.created || state.taken > head.last || still;
            if anew {
                *state = State { created: head.created.clone(), ..State::default() };
            }
            anew
        };
        if anew {
            connection
                .execute_batch(include_str!("../sql/replica_clear.sql"))
                .and_then(|()| row::clear(connection))
                .map_err(|source| QueueError::Sql { what, source })?;
        }
        self.follow(connection, what, head.last, attempt)
    }

    fn follow(
        &self,
        connection: &mut Connection,
        what: &'static str,
        until: u64,
        attempt: Option<&str>,
    ) -> Result<bool, QueueError> {
        let sql = |source| QueueError::Sql { what, source };
        let (mut taken, mut seen) = (self.state().taken, false);
        let deadline = Instant::now() + PATIENCE;
        while taken < until {
            let page = self.link.read(taken.saturating_add(1)).map_err(|error| self.failed(what, error))?;
            if page.is_empty() {
                // Whoever answered may be behind whoever leads; at the end of the stream nothing is removed but by hand.
                let more = self.link.has_from(taken.saturating_add(1)).map_err(|error| self.failed(what, error))?;
                if more && Instant::now() < deadline {
                    std::thread::sleep(BEHIND);
                    continue;
                }
                taken = if more { taken } else { until };
                self.state().taken = taken;
                if more {
                    let source = LinkError::Answer(format!("nothing after {taken}, and the last one is {until}"));
                    return Err(self.failed(what, source));
                }
                break;
            }
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(sql)?;
            for message in page {
                seen |= attempt.is_some() && message.attempt.as_deref() == attempt;
                taken = taken.max(message.sequence);
                row::take(&transaction, &message.subject, &message.body).map_err(|error| self.refused(what, error))?;
            }
            row::clear(&transaction).map_err(sql)?;
            transaction.commit().map_err(sql)?;
            self.state().taken = taken;
        }
        self.state().at = Some(Instant::now());
        Ok(seen)
    }

    fn refused(&self, what: &'static str, error: RowError) -> QueueError {
        match error {
            RowError::Sql(source) => QueueError::Sql { what, source },
            RowError::Foreign(why) => self.failed(what, LinkError::Answer(why)),
            RowError::Newer(found) => QueueError::Newer { path: self.name.clone(), found, known: row::FORM.into() },
        }
    }
}

fn numbered(attempt: &str, message: usize) -> String {
    format!("{attempt}-{message}")
}

fn now_ms() -> i64 {
    super::super::Clock::system().now_ms()
}
