//! Whether a worker is alive and in time, from what it was heard to say. Pure: times are passed in.

use std::time::{Duration, Instant};

use refmill::beat::{Beat, Counters};
use refmill::failure::Stage;

use super::deadlines::Deadlines;

/// How long past its limit a job may take until the worker's own report of it counts as missing.
const JOB_GRACE: Duration = Duration::from_secs(2);
/// Beats that a worker may send beyond those of its period: some wait in its socket while nobody listens.
const SPARE_BEATS: u128 = 1_000;

/// What is known of a worker's life.
#[derive(Debug, Clone)]
pub struct Vitals {
    born: Instant,
    heard: Instant,
    beats: u128,
    running: Option<Running>,
    counters: Counters,
}

#[derive(Debug, Clone, Copy)]
struct Running {
    id: u64,
    begun: Instant,
    limit_ms: u64,
    stage: Option<(Stage, Instant)>,
}

/// What took too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Late {
    /// The job.
    Job {
        /// What it took, in milliseconds.
        elapsed_ms: u64,
        /// Its limit, in milliseconds.
        limit_ms: u64,
    },
    /// A stage of it.
    Stage {
        /// Which.
        stage: Stage,
        /// What it took, in milliseconds.
        elapsed_ms: u64,
        /// Its limit, in milliseconds.
        limit_ms: u64,
    },
    /// The next sign of life.
    Beat {
        /// How long the worker was silent, in milliseconds.
        silent_ms: u64,
    },
}

impl Vitals {
    /// Of a worker that is ready at `now`.
    #[must_use]
    pub fn new(now: Instant) -> Self {
        Self { born: now, heard: now, beats: 0, running: None, counters: Counters::default() }
    }

    /// When it was ready.
    #[must_use]
    pub fn born(&self) -> Instant {
        self.born
    }

    /// It is given a job that may take `limit_ms` milliseconds.
    pub fn begin(&mut self, id: u64, limit_ms: u64, now: Instant) {
        self.running = Some(Running { id, begun: now, limit_ms, stage: None });
    }

    /// It has answered.
    pub fn end(&mut self, counters: Counters, now: Instant) {
        (self.running, self.counters, self.heard) = (None, counters, now);
    }

    /// It gave a sign of life; `false` where it gives so many that they are none.
    pub fn beat(&mut self, beat: Beat, now: Instant, deadlines: &Deadlines) -> bool {
        (self.heard, self.counters) = (now, beat.counters);
        self.beats = self.beats.saturating_add(1);
        if let Some(running) = self.running.as_mut().filter(|running| beat.job == Some(running.id)) {
            // A stage began when it was first told, or with the job.
            let since = if running.stage.is_none() { running.begun } else { now };
            let told = beat.stage.filter(|stage| running.stage.is_none_or(|(known, _)| known != *stage));
            running.stage = told.map(|stage| (stage, since)).or(running.stage);
        }
        let due = now.saturating_duration_since(self.born).as_millis() / u128::from(deadlines.beat_ms.max(1));
        self.beats <= due.saturating_mul(4).saturating_add(SPARE_BEATS)
    }

    /// The stage that runs, as last told, and since when.
    #[must_use]
    pub fn stage(&self) -> Option<(Stage, Instant)> {
        self.running?.stage
    }

    /// What it said last about itself.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// When to look next, at the latest.
    #[must_use]
    pub fn due(&self, deadlines: &Deadlines) -> Instant {
        let after = |since: Instant, time| since.checked_add(time);
        let silence = after(self.heard, deadlines.silence());
        let job = self.running.and_then(|running| after(running.begun, time_of(running)));
        let stage = self.stage().and_then(|(stage, since)| after(since, millis(deadlines.stage_ms(stage)?)));
        [silence, job, stage].into_iter().flatten().min().unwrap_or(self.heard)
    }

    /// What took too long by `now`, once all that it said was heard.
    #[must_use]
    pub fn late(&self, now: Instant, deadlines: &Deadlines) -> Option<Late> {
        let since = |then: Instant| now.saturating_duration_since(then);
        if let Some(running) = self.running.filter(|running| since(running.begun) >= time_of(*running)) {
            return Some(Late::Job { elapsed_ms: whole(since(running.begun)), limit_ms: running.limit_ms });
        }
        if let Some((stage, begun)) = self.stage()
            && let Some(limit_ms) = deadlines.stage_ms(stage)
            && since(begun) >= millis(limit_ms)
        {
            return Some(Late::Stage { stage, elapsed_ms: whole(since(begun)), limit_ms });
        }
        let silent_ms = whole(since(self.heard));
        (since(self.heard) >= deadlines.silence()).then_some(Late::Beat { silent_ms })
    }
}

fn time_of(running: Running) -> Duration {
    millis(running.limit_ms).saturating_add(JOB_GRACE)
}

fn millis(count: u64) -> Duration {
    Duration::from_millis(count)
}

fn whole(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(job: u64, stage: Stage) -> Beat {
        Beat { job: Some(job), stage: Some(stage), ..Beat::default() }
    }

    fn at(start: Instant, ms: u64) -> Instant {
        start + millis(ms)
    }

    #[test]
    fn silent_worker_is_late_after_the_missed_beats_and_not_before() {
        let (start, deadlines) = (Instant::now(), Deadlines::default());
        let mut vitals = Vitals::new(start);
        assert!(vitals.beat(Beat::default(), at(start, 5_000), &deadlines));
        assert_eq!(vitals.due(&deadlines), at(start, 15_000));
        assert_eq!(vitals.late(at(start, 14_999), &deadlines), None);
        assert_eq!(vitals.late(at(start, 15_000), &deadlines), Some(Late::Beat { silent_ms: 10_000 }));
    }

    #[test]
    fn job_is_late_after_its_limit_and_the_grace_however_alive_the_worker_is() {
        let (start, deadlines) = (Instant::now(), Deadlines::default());
        let mut vitals = Vitals::new(start);
        vitals.begin(1, 100, start);
        vitals.beat(told(1, Stage::Decode), at(start, 2_099), &deadlines);
        assert_eq!(vitals.late(at(start, 2_099), &deadlines), None);
        let late = Late::Job { elapsed_ms: 2_100, limit_ms: 100 };
        assert_eq!(vitals.late(at(start, 2_100), &deadlines), Some(late));
        vitals.end(Counters::default(), at(start, 2_100));
        assert_eq!(vitals.late(at(start, 2_100), &deadlines), None);
    }

    #[test]
    fn stage_is_late_by_its_own_limit_counted_from_its_first_beat() {
        let (start, mut deadlines) = (Instant::now(), Deadlines::default());
        deadlines.stages_ms.insert(Stage::Colour, 500);
        let mut vitals = Vitals::new(start);
        vitals.begin(1, 60_000, start);
        vitals.beat(told(1, Stage::Decode), at(start, 1_000), &deadlines);
        vitals.beat(told(1, Stage::Colour), at(start, 2_000), &deadlines);
        vitals.beat(told(1, Stage::Colour), at(start, 2_400), &deadlines);
        assert_eq!((vitals.due(&deadlines), vitals.late(at(start, 2_499), &deadlines)), (at(start, 2_500), None));
        let late = Late::Stage { stage: Stage::Colour, elapsed_ms: 500, limit_ms: 500 };
        assert_eq!(vitals.late(at(start, 2_500), &deadlines), Some(late));
    }

    #[test]
    fn stage_of_another_job_does_not_count() {
        let (start, deadlines) = (Instant::now(), Deadlines::default());
        let mut vitals = Vitals::new(start);
        vitals.begin(2, 60_000, start);
        vitals.beat(told(1, Stage::Tensors), start, &deadlines);
        assert_eq!(vitals.stage(), None);
    }

    #[test]
    fn endless_beats_are_no_sign_of_life() {
        let (start, deadlines) = (Instant::now(), Deadlines::default());
        let mut vitals = Vitals::new(start);
        assert!((0..1_000).all(|_| vitals.beat(Beat::default(), start, &deadlines)));
        assert!(!vitals.beat(Beat::default(), start, &deadlines));
        assert!(vitals.beat(Beat::default(), at(start, 1_000_000), &deadlines));
    }
}
