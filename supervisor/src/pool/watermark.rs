//! When a worker has had its day: memory over a watermark, or on its way there. Pure: samples and ages are passed in.
//!
//! A worker is recycled between jobs, either after some samples in a row over its mark, or since the trend of its
//! memory over jobs crosses the mark within the horizon. The trend is the median of the slopes between all pairs of
//! samples (Theil 1950, Sen 1968), so that single large jobs do not bend it, and counts only where four pairs of five
//! rise. Over the hard limit a worker is killed at once, whatever it does.

mod policy;

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::sample::Source;
pub use policy::{WatermarkError, WatermarkPolicy};

/// How many samples a trend is made from: at most, and at least.
const POINTS: usize = 32;
const FEWEST_POINTS: usize = 8;
/// Lives in a row that were recycled before their time, after which none is any more.
const SHORT_LIVES: u32 = 2;
const MIB: u64 = 1 << 20;

/// Which memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// The worker's own memory in the host.
    Host,
    /// Its memory on the GPU.
    Gpu,
}

/// The marks of one worker's life, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Marks {
    /// Over it, the worker is recycled between jobs.
    pub mark: u64,
    /// Over it, it is killed.
    pub hard: u64,
}

/// Why a worker is recycled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "reason")]
pub enum Reason {
    /// Some samples in a row were over its mark.
    OverMark {
        /// Which memory.
        kind: Kind,
        /// The last of the samples, in bytes.
        bytes: u64,
        /// The mark, in bytes.
        mark: u64,
        /// How many samples in a row.
        samples: u32,
    },
    /// Its memory grows job by job.
    Drift {
        /// Which memory.
        kind: Kind,
        /// The last sample, in bytes.
        bytes: u64,
        /// The mark, in bytes.
        mark: u64,
        /// The trend, in bytes a job.
        bytes_per_job: u64,
    },
}

/// Why a worker over its mark is not recycled: another would be no better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Refusal {
    /// It was over the mark right after its start.
    Baseline {
        /// Which memory.
        kind: Kind,
        /// Right after the start, in bytes.
        bytes: u64,
        /// The mark, in bytes.
        mark: u64,
    },
    /// The last ones were over theirs before their time as well.
    ShortLives {
        /// Which memory.
        kind: Kind,
        /// The last sample, in bytes.
        bytes: u64,
        /// The mark, in bytes.
        mark: u64,
    },
}

/// What follows from a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing.
    Fine,
    /// To be recycled before its next job.
    Recycle(Reason),
    /// To be recycled, were that of any use. Said once a life.
    Refused(Refusal),
    /// Over the hard limit: to be killed now.
    Kill {
        /// Which memory.
        kind: Kind,
        /// The sample, in bytes.
        bytes: u64,
        /// The limit, in bytes.
        limit: u64,
    },
}

/// One look at a worker's memory.
#[derive(Debug, Clone, Copy)]
pub struct Look {
    /// Since the worker was ready.
    pub age: Duration,
    /// Jobs that it has answered.
    pub jobs: u64,
    /// What was seen, in bytes.
    pub bytes: u64,
    /// Who says so.
    pub source: Source,
    /// Whether it held no job.
    pub idle: bool,
}

/// One worker's memory of one kind, over its life.
#[derive(Debug, Clone)]
pub struct Watch {
    kind: Kind,
    marks: Marks,
    policy: WatermarkPolicy,
    short_lives: u32,
    baseline: Option<u64>,
    over: u32,
    said: bool,
    source: Option<Source>,
    points: VecDeque<(u64, u64)>,
}

impl Watch {
    /// Watches a life that follows `short_lives` short ones.
    #[must_use]
    pub fn new(kind: Kind, marks: Marks, policy: WatermarkPolicy, short_lives: u32) -> Self {
        let (baseline, source, points) = (None, None, VecDeque::with_capacity(POINTS));
        Self { kind, marks, policy, short_lives, baseline, over: 0, said: false, source, points }
    }

    /// The marks of this life.
    #[must_use]
    pub fn marks(&self) -> Marks {
        self.marks
    }

    /// What was seen first, right after the start, in bytes.
    #[must_use]
    pub fn baseline(&self) -> Option<u64> {
        self.baseline
    }

    /// Takes a sample.
    pub fn see(&mut self, look: Look) -> Verdict {
        let (kind, Marks { mark, hard }) = (self.kind, self.marks);
        let bytes = look.bytes;
        if bytes > hard {
            return Verdict::Kill { kind, bytes, limit: hard };
        }
        let baseline = *self.baseline.get_or_insert(bytes);
        if !look.idle {
            // In mid-job memory is the image's, not the worker's.
            return Verdict::Fine;
        }
        self.over = if bytes > mark { self.over.saturating_add(1) } else { 0 };
        self.remember(look);
        if baseline > mark {
            return self.refuse(Refusal::Baseline { kind, bytes: baseline, mark });
        }
        match self.reason(bytes) {
            None => Verdict::Fine,
            Some(reason) if look.age >= self.policy.min_life() => Verdict::Recycle(reason),
            Some(_) if self.short_lives >= SHORT_LIVES => self.refuse(Refusal::ShortLives { kind, bytes, mark }),
            Some(reason) if bytes > mark.midpoint(hard) => Verdict::Recycle(reason),
            Some(_) => Verdict::Fine,
        }
    }

    fn refuse(&mut self, refusal: Refusal) -> Verdict {
        if std::mem::replace(&mut self.said, true) { Verdict::Fine } else { Verdict::Refused(refusal) }
    }

    fn remember(&mut self, look: Look) {
        // Sources differ by more than jobs do: a trend is made from one of them.
        if self.source.replace(look.source) != Some(look.source) {
            self.points.clear();
        }
        if self.points.back().is_some_and(|(jobs, _)| *jobs == look.jobs) {
            self.points.pop_back();
        }
        if self.points.len() == POINTS {
            self.points.pop_front();
        }
        self.points.push_back((look.jobs, look.bytes));
    }

    fn reason(&self, bytes: u64) -> Option<Reason> {
        let (kind, mark) = (self.kind, self.marks.mark);
        if self.over >= self.policy.consecutive.max(1) {
            return Some(Reason::OverMark { kind, bytes, mark, samples: self.over });
        }
        let bytes_per_job = trend(&self.points)?;
        let ahead = bytes_per_job.saturating_mul(self.policy.horizon_jobs.into());
        (self.policy.horizon_jobs > 0 && bytes.saturating_add(ahead) > mark).then_some(Reason::Drift {
            kind,
            bytes,
            mark,
            bytes_per_job,
        })
    }
}

/// The trend in bytes a job, where there is one and it rises.
fn trend(points: &VecDeque<(u64, u64)>) -> Option<u64> {
    if points.len() < FEWEST_POINTS {
        return None;
    }
    let pairs =
        points.iter().enumerate().flat_map(|(at, early)| points.iter().skip(at + 1).map(move |late| (early, late)));
    let mut slopes: Vec<f64> = pairs.map(|(early, late)| slope(*early, *late)).collect();
    let rising = slopes.iter().filter(|slope| **slope > 0.0).count();
    if rising.saturating_mul(5) < slopes.len().saturating_mul(4) {
        return None;
    }
    let middle = slopes.len() / 2;
    let (_, median, _) = slopes.select_nth_unstable_by(middle, f64::total_cmp);
    // Positive, since four of five are; what does not fit is saturated by `as`.
    Some(*median as u64)
}

fn slope(early: (u64, u64), late: (u64, u64)) -> f64 {
    let jobs = late.0.saturating_sub(early.0).max(1);
    (late.1 as f64 - early.1 as f64) / jobs as f64
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Host => "host memory",
            Self::Gpu => "memory on the GPU",
        })
    }
}

impl Reason {
    /// A word for counting.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::OverMark { kind: Kind::Host, .. } => "host_over_mark",
            Self::OverMark { kind: Kind::Gpu, .. } => "gpu_over_mark",
            Self::Drift { kind: Kind::Host, .. } => "host_drift",
            Self::Drift { kind: Kind::Gpu, .. } => "gpu_drift",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::OverMark { kind, bytes, mark, samples } => {
                let (bytes, mark) = (bytes / MIB, mark / MIB);
                write!(f, "{kind} is {bytes} MiB, {samples} samples in a row over the mark of {mark} MiB")
            }
            Self::Drift { kind, bytes, mark, bytes_per_job } => {
                let (bytes, mark, step) = (bytes / MIB, mark / MIB, bytes_per_job / 1024);
                write!(f, "{kind} is {bytes} MiB and grows by {step} KiB a job towards the mark of {mark} MiB")
            }
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Baseline { kind, bytes, mark } => {
                let (bytes, mark) = (bytes / MIB, mark / MIB);
                write!(f, "{kind} is {bytes} MiB right after the start, over the mark of {mark} MiB: raise the mark")
            }
            Self::ShortLives { kind, bytes, mark } => {
                let (bytes, mark) = (bytes / MIB, mark / MIB);
                let why = "and the workers before it were recycled early as well";
                write!(
                    f,
                    "{kind} is {bytes} MiB, over the mark of {mark} MiB soon after the start, {why}: raise the mark"
                )
            }
        }
    }
}

#[cfg(test)]
mod tests;
