//! One worker's life in its slot: its memory, looked at between jobs and in them.

use std::time::Instant;

use super::sample::{self, Source};
use super::watermark::{Kind, Look, Reason, Verdict, Watch};
use super::worker::Worker;
use super::{Rules, watermark::WatermarkPolicy};

/// A life.
#[derive(Debug)]
pub(super) struct Life {
    policy: WatermarkPolicy,
    host: Watch,
    gpu: Watch,
    begun: Instant,
    looked: Option<Instant>,
}

impl Life {
    /// Life `number` of the slot at `place`, after `short_lives` short ones.
    pub fn new(rules: &Rules, place: usize, number: u64, short_lives: u32) -> Self {
        let policy = rules.watermark;
        let watch = |kind| Watch::new(kind, policy.marks(kind, None, place, number), policy, short_lives);
        Self { policy, host: watch(Kind::Host), gpu: watch(Kind::Gpu), begun: Instant::now(), looked: None }
    }

    /// Whether it was shorter than lives are meant to be.
    pub fn is_short(&self) -> bool {
        self.begun.elapsed() < self.policy.min_life()
    }

    /// Whether memory is halfway from the mark to the hard limit, which the next job may then reach.
    pub fn is_urgent(&self, reason: Reason) -> bool {
        let (Reason::OverMark { kind, bytes, .. } | Reason::Drift { kind, bytes, .. }) = reason;
        let marks = if kind == Kind::Host { self.host.marks() } else { self.gpu.marks() };
        bytes > marks.mark.midpoint(marks.hard)
    }

    /// Looks, if it is time to or a job has just ended; what the kernel does not tell is not looked at.
    pub fn look(&mut self, worker: &Worker, idle: bool, job_ended: bool) -> Verdict {
        let now = Instant::now();
        let period = self.policy.period();
        if !job_ended && self.looked.is_some_and(|looked| now.saturating_duration_since(looked) < period) {
            return Verdict::Fine;
        }
        self.looked = Some(now);
        let (age, jobs) = (now.saturating_duration_since(self.begun), worker.jobs());
        let look = |bytes, source| Look { age, jobs, bytes, source, idle };
        let host = sample::statm(worker.pid()).map(|seen| self.host.see(look(seen.bytes, seen.source)));
        let device = worker.counters().device;
        let gpu = device.map(|told| {
            let bytes = told.reserved.saturating_add(told.context.unwrap_or(0));
            self.gpu.see(look(bytes, Source::Worker))
        });
        let mut verdicts = host.into_iter().chain(gpu);
        verdicts.find(|verdict| *verdict != Verdict::Fine).unwrap_or(Verdict::Fine)
    }
}
