//! The last jobs that ended and the last that befell workers, for the page. Bounded in number, and each in size: a report's
//! texts are cut where it is made.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use refmill::failure::Failure;
use refmill::finding::{Finding, Repair};
use refmill::report::{Outcome, Report};
use serde::Serialize;

use super::span::{JobSpan, trace_id};
use crate::pool::News;
use crate::queue::Job;
use crate::verdict::shown;

/// Jobs that are remembered.
pub const JOBS: usize = 200;
/// Events that are remembered.
pub const EVENTS: usize = 100;
/// Findings of a job that are remembered; the worst come first.
const FINDINGS: usize = 16;

/// A job that ended.
#[derive(Debug, Clone, Serialize)]
pub struct Ended {
    /// Rises with each job that ends.
    pub sequence: u64,
    /// When, in milliseconds since 1970.
    pub at_ms: u64,
    /// Its number in the queue.
    pub job: i64,
    /// What people call the image.
    pub name: String,
    /// Whose it is.
    pub tenant: String,
    /// Its trace.
    pub trace_id: String,
    /// How it ended.
    pub outcome: Outcome,
    /// Why it was rejected.
    pub error: Option<Failure>,
    /// What was found, the worst first.
    pub findings: Vec<Finding>,
    /// How many more there were.
    pub more: usize,
    /// What was done about it.
    pub repairs: Vec<Repair>,
    /// From its claim to its recorded report, in milliseconds.
    pub taken_ms: u64,
}

/// What befell a worker.
#[derive(Debug, Clone, Serialize)]
pub struct Event {
    /// Rises with each event.
    pub sequence: u64,
    /// When, in milliseconds since 1970.
    pub at_ms: u64,
    /// `ready`, `recycled`, `kept` or `lost`.
    pub what: &'static str,
    /// The slot, or the device.
    pub slot: String,
    /// For people.
    pub why: String,
}

/// The last of everything.
#[derive(Debug, Default)]
pub struct Recent {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    jobs: VecDeque<Ended>,
    events: VecDeque<Event>,
    sequence: u64,
}

impl Recent {
    /// A job has its final report.
    pub fn ended(&self, job: &Job, report: &Report, span: &JobSpan) {
        let mut findings = report.findings.clone();
        // Stable: those of one severity stay in the order of the stages.
        findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
        let more = findings.len().saturating_sub(FINDINGS);
        findings.truncate(FINDINGS);
        let repairs = report.repairs.iter().take(FINDINGS).cloned().collect();
        let ended = Ended {
            sequence: 0,
            at_ms: now_ms(),
            job: job.id.0,
            name: shown(&job.name),
            tenant: job.tenant.clone(),
            trace_id: trace_id(job),
            outcome: report.outcome,
            error: report.error.clone(),
            findings,
            more,
            repairs,
            taken_ms: u64::try_from(span.taken().as_millis()).unwrap_or(u64::MAX),
        };
        let mut inner = self.inner();
        let sequence = inner.step();
        push(&mut inner.jobs, JOBS, Ended { sequence, ..ended });
    }

    /// Something happened to a worker.
    pub fn worker(&self, news: &News) {
        let (what, slot, why) = match news {
            News::Ready(device, verdict) => {
                let notes: Vec<String> = verdict.notes().collect();
                (
                    "ready",
                    format!("{} {}", device.kind, device.uuid),
                    [vec![device.reason.clone()], notes].concat().join("; "),
                )
            }
            News::Recycled(slot, why) => ("recycled", slot.clone(), why.clone()),
            News::Kept(slot, why) => ("kept", slot.clone(), why.clone()),
            News::SlotLost(why) => ("lost", String::new(), why.clone()),
            News::Finished(_) => return,
        };
        let mut inner = self.inner();
        let sequence = inner.step();
        let event = Event { sequence, at_ms: now_ms(), what, slot: shown(slot.trim()), why: shown(&why) };
        push(&mut inner.events, EVENTS, event);
    }

    /// What has been added after `sequence`, the oldest first.
    #[must_use]
    pub fn since(&self, sequence: u64) -> (Vec<Ended>, Vec<Event>) {
        let inner = self.inner();
        let jobs = inner.jobs.iter().filter(|job| job.sequence > sequence).cloned().collect();
        (jobs, inner.events.iter().filter(|event| event.sequence > sequence).cloned().collect())
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn step(&mut self) -> u64 {
        self.sequence = self.sequence.saturating_add(1);
        self.sequence
    }
}

fn push<T>(all: &mut VecDeque<T>, most: usize, new: T) {
    if all.len() >= most {
        all.pop_front();
    }
    all.push_back(new);
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_are_remembered_and_only_the_new_are_given() {
        let recent = Recent::default();
        (0..EVENTS + 5).for_each(|number| recent.worker(&News::SlotLost(format!("why\n{number}"))));
        let (_, all) = recent.since(0);
        assert_eq!((all.len(), all[0].sequence, all[0].why.as_str()), (EVENTS, 6, "why?5"));
        assert_eq!(recent.since(EVENTS as u64 + 4).1.len(), 1);
        assert!(recent.since(EVENTS as u64 + 5).1.is_empty());
    }
}
