//! The queue as a source of tasks: claims for the pool, heartbeats while a worker holds a job, and what is told to the
//! queue afterwards. The order at the end of a job: artifacts stored and synced, report recorded, ack.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::fs;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use refmill::failure::{Blame, Code, Failure, Stage};
use refmill::policy::Policy;
use refmill::report::{Outcome, Report};

use super::spec::Spec;
use super::{Claimed, Fault, Job, Lease, Next, Queue, QueueError, RetryPolicy};
use crate::intake::Origin;
use crate::memory::{OutputRegion, SealedInput};
use crate::pool::{Given, Supply, Task, TaskSource};
use crate::publish;
use crate::shutdown::Stop;
use crate::telemetry::Telemetry;
use crate::telemetry::span::JobSpan;

/// How long an idle slot waits until it looks again.
const IDLE: Duration = Duration::from_millis(100);
/// How often the queue may refuse to answer in a row; each refusal comes after SQLite's own wait.
const REFUSALS: u32 = 100;
/// What a job may take beyond its own limit before its slot counts as stuck: a worker's start, a queue that is waited
/// for, artifacts on their way to a slow disk.
const SLACK: Duration = Duration::from_secs(90);

/// How the queue is served.
#[derive(Debug, Clone)]
pub struct Terms {
    /// Who claims; shown with leased jobs.
    pub holder: String,
    /// How long a lease lasts without a heartbeat, in milliseconds.
    pub lease_ms: u32,
    /// Whether to end once nothing is queued or leased.
    pub drain: bool,
    /// Size of the workers' output region, in bytes: no job can have more.
    pub output_bytes: u64,
}

/// What may change while the queue is served.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Live {
    /// What will become of a failure.
    pub retry: RetryPolicy,
    /// What is done about findings that a submission says nothing about.
    pub findings: Policy,
}

/// Tasks from a queue.
pub struct QueueSource<'a> {
    queue: &'a dyn Queue,
    terms: Terms,
    live: Mutex<Live>,
    stop: &'a Stop,
    say: &'a (dyn Fn(&str) + Sync),
    held: Mutex<HashMap<usize, Held>>,
    // When a slot last asked for a job.
    asked: Mutex<Instant>,
    broken: Mutex<Option<QueueError>>,
    /// How often the queue refused to answer since it last did.
    refusals: AtomicU32,
    telemetry: Arc<Telemetry>,
}

impl fmt::Debug for QueueSource<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("QueueSource").field("terms", &self.terms).finish_non_exhaustive()
    }
}

/// A job in a slot's hands.
#[derive(Debug, Clone)]
struct Held {
    lease: Lease,
    job: Job,
    blake3: String,
    // When its slot counts as stuck.
    until: Instant,
    span: JobSpan,
}

impl<'a> QueueSource<'a> {
    /// Serves `queue` until `stop` is requested; tells people through `say`.
    #[must_use]
    pub fn new(
        queue: &'a dyn Queue,
        (terms, live): (Terms, Live),
        stop: &'a Stop,
        say: &'a (dyn Fn(&str) + Sync),
    ) -> Self {
        let (live, asked) = (Mutex::new(live), Mutex::new(Instant::now()));
        let (held, broken, refusals) = (Mutex::default(), Mutex::default(), AtomicU32::new(0));
        let telemetry = Arc::default();
        Self { queue, terms, live, stop, say, held, asked, broken, refusals, telemetry }
    }

    /// The same, counted and remembered there.
    #[must_use]
    pub fn with(self, telemetry: Arc<Telemetry>) -> Self {
        Self { telemetry, ..self }
    }

    /// What holds from now on; jobs that are in hand have begun under what held before.
    pub fn set_live(&self, live: Live) {
        *self.live.lock().unwrap_or_else(PoisonError::into_inner) = live;
    }

    /// Whether slots make progress: none has had a job for longer than the job can take, and where none has a job, one
    /// has asked for one of late.
    ///
    /// # Errors
    /// What does not move.
    pub fn progress(&self) -> Result<(), String> {
        let now = Instant::now();
        let held = self.held();
        if let Some(stuck) = held.values().find(|held| held.until < now) {
            return Err(format!("job {} ({}) is in hand for longer than it can take", stuck.lease.job, stuck.job.name));
        }
        let asked = *self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        let quiet = now.saturating_duration_since(asked);
        if held.is_empty() && !self.stop.is_requested() && quiet > SLACK {
            return Err(format!("no worker has asked for a job for {} s", quiet.as_secs()));
        }
        Ok(())
    }

    /// Extends every lease that is held.
    ///
    /// # Errors
    /// The last error but [`QueueError::Stale`]; the other leases were tried as well.
    pub fn heartbeat(&self) -> Result<(), QueueError> {
        let leases: Vec<Lease> = self.held().values().map(|held| held.lease).collect();
        let mut all = Ok(());
        for lease in leases {
            match self.queue.extend(lease, self.terms.lease_ms) {
                // A lease that is lost is noticed, and told, before its job is published.
                Ok(()) | Err(QueueError::Stale { .. }) => {}
                Err(error) => all = Err(error),
            }
        }
        all
    }

    /// Gives every lease back that is still held.
    pub fn release(&self) {
        let held: Vec<Held> = self.held().drain().map(|(_, held)| held).collect();
        held.iter().for_each(|held| self.told(held, self.queue.release(held.lease)));
    }

    /// Why the queue could not be served any longer, if so.
    #[must_use]
    pub fn broken(self) -> Option<QueueError> {
        self.broken.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    fn held(&self) -> MutexGuard<'_, HashMap<usize, Held>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says what the queue refused to hear.
    fn told(&self, held: &Held, answer: Result<(), QueueError>) {
        held.span.within(|| match answer {
            Ok(()) => {}
            Err(QueueError::Stale { .. }) => {
                self.telemetry.lease_lost();
                let line = format!("{}: not published by this supervisor: its lease was lost", held.job.name);
                (self.say)(&line);
            }
            Err(error) => (self.say)(&format!("{}: {error}", held.job.name)),
        });
    }

    /// A claimed job as a task of the slot of this name. One that cannot be read is buried.
    fn task(&self, claimed: Claimed, slot: &str) -> Option<Given<'_>> {
        let Claimed { lease, job } = claimed;
        let until = |wall_ms| Instant::now() + Duration::from_millis(wall_ms) + SLACK;
        let span = JobSpan::begin(&job, slot);
        self.telemetry.claimed(&job);
        let held =
            |blake3, wall_ms| Held { lease, job: job.clone(), blake3, until: until(wall_ms), span: span.clone() };
        let spec: Spec = match serde_json::from_str(&job.payload) {
            Ok(spec) => spec,
            Err(error) => {
                let reason = format!("the submission cannot be read: {error}");
                let answer = self.queue.nak(lease, Fault::Failed(Blame::Input), &reason, None);
                self.told(&held(String::new(), 0), answer.map(drop));
                return None;
            }
        };
        if let Some(folder) = spec.outputs.report.as_deref().and_then(std::path::Path::parent) {
            // Where it cannot be made, publishing says so.
            fs::create_dir_all(folder).ok();
        }
        let mut order = spec.order;
        order.limits.output_bytes = order.limits.output_bytes.min(self.terms.output_bytes);
        // The submission's own word comes last, and the last one counts.
        let mut findings = self.live.lock().unwrap_or_else(PoisonError::into_inner).findings.clone();
        findings.strict |= order.policy.strict;
        findings.actions.append(&mut order.policy.actions);
        order.policy = findings;
        let index = usize::try_from(job.id.0).unwrap_or_default();
        self.held().insert(index, held(spec.blake3, order.limits.wall_ms));
        let task = Task { index, name: job.name.clone(), origin: Origin::File(spec.source), outputs: spec.outputs };
        Some(Given { task: Cow::Owned(task), order: Cow::Owned(order) })
    }

    /// Whether a drain has come to its end.
    fn is_drained(&self) -> Result<bool, QueueError> {
        let has_none = |standing: &super::Standing| standing.queued == 0 && standing.leased == 0;
        Ok(self.terms.drain && self.queue.tenants()?.iter().all(has_none))
    }

    /// Waits, and ends at once when the stop is requested.
    fn pause(&self, wait: Duration) {
        let timeout = PollTimeout::try_from(wait).unwrap_or(PollTimeout::ZERO);
        // Interrupted or not, the caller looks again.
        poll(&mut [PollFd::new(self.stop.as_fd(), PollFlags::POLLIN)], timeout).ok();
    }

    /// The stage of a job in hand that the supervisor itself does has taken from `begun` to now.
    fn spent(&self, task: &Task, stage: Stage, begun: Instant) {
        if let Some(held) = self.held().get_mut(&task.index) {
            held.span.spent(stage, begun.elapsed());
        }
    }

    fn nak(&self, held: &Held, failure: &Failure, report: Option<&str>) {
        match self.queue.nak(held.lease, Fault::from(failure), &failure.to_string(), report) {
            Ok(Next::Again { after_ms }) => held.span.within(|| {
                self.telemetry.retried(failure);
                (self.say)(&format!("{}: {failure}; tried again in {after_ms} ms", held.job.name));
            }),
            answer => self.told(held, answer.map(drop)),
        }
    }
}

impl TaskSource for QueueSource<'_> {
    fn next(&self, slot: &str) -> Supply<'_> {
        if self.stop.is_requested() {
            return Supply::Over;
        }
        *self.asked.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        let wait = match self.queue.claim(&self.terms.holder, self.terms.lease_ms) {
            Ok(Some(claimed)) => {
                self.refusals.store(0, Ordering::Relaxed);
                return self.task(claimed, slot).map_or(Supply::Later, |given| Supply::Task(Box::new(given)));
            }
            Ok(None) => self.is_drained(),
            Err(error) => Err(error),
        };
        match wait {
            Ok(true) => return Supply::Over,
            Ok(false) => self.refusals.store(0, Ordering::Relaxed),
            Err(error) if self.refusals.fetch_add(1, Ordering::Relaxed) >= REFUSALS => {
                self.broken.lock().unwrap_or_else(PoisonError::into_inner).replace(error);
                return Supply::Over;
            }
            Err(error) => (self.say)(&error.to_string()),
        }
        self.pause(IDLE);
        Supply::Later
    }

    fn put_back(&self, given: &Given<'_>) {
        let held = self.held().remove(&given.task.index);
        held.iter().for_each(|held| self.told(held, self.queue.release(held.lease)));
    }

    fn attempts(&self) -> u32 {
        // The queue tries again itself, later and on any worker.
        1
    }

    fn load(&self, given: &Given<'_>, stop: &Stop) -> Result<SealedInput, Failure> {
        let begun = Instant::now();
        let input = given.load(stop);
        self.spent(&given.task, Stage::Intake, begun);
        input
    }

    fn publish(&self, task: &Task, report: Report, region: Option<&OutputRegion>) -> Report {
        let begun = Instant::now();
        let report = publish::publish(&task.outputs, report, region);
        self.spent(task, Stage::Publish, begun);
        report
    }

    fn accept(&self, task: &Task, mut report: Report) -> Option<Report> {
        let held = self.held().get(&task.index).cloned()?;
        let read = &report.source.blake3;
        if !read.is_empty() && *read != held.blake3 {
            let message = format!("{} has other bytes than when it was submitted; submit it again", held.job.name);
            report.reject(Failure::new(Code::Unreadable, message).at(Stage::Intake));
        }
        if let Some(failure) = &report.error {
            let retry = self.live.lock().unwrap_or_else(PoisonError::into_inner).retry;
            let (next, _) = retry.decide(held.job.tally, Fault::from(failure), 0);
            if !next.is_final() {
                self.nak(&held, failure, None);
                self.held().remove(&task.index);
                return None;
            }
        }
        // From here on the lease lasts for what publishing takes; where it is lost, somebody else publishes.
        match self.queue.extend(held.lease, self.terms.lease_ms) {
            Ok(()) => Some(report),
            Err(error) => {
                self.told(&held, Err(error));
                self.held().remove(&task.index);
                None
            }
        }
    }

    fn settle(&self, task: &Task, report: &Report) {
        let Some(held) = self.held().get(&task.index).cloned() else { return };
        // A report always serialises: its map keys are field names and its numbers finite or integers.
        let text = serde_json::to_string(report).unwrap_or_default();
        let failure = match (&report.error, report.outcome) {
            (Some(failure), _) => Some(failure.clone()),
            (None, Outcome::Reject) => Some(Failure::new(Code::Internal, "rejected without a reason")),
            (None, _) => publish::sync(&task.outputs).err(),
        };
        match failure {
            Some(failure) => self.nak(&held, &failure, Some(&text)),
            None => self.told(&held, self.queue.ack(held.lease, &text)),
        }
        held.span.tell(report);
        self.telemetry.ended(&held.job, report, &held.span);
        // Only now: until the queue has heard, the heartbeat goes on.
        self.held().remove(&task.index);
    }
}
