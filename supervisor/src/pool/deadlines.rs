//! How long a worker may take for what. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use refmill::failure::Stage;
use serde::{Deserialize, Serialize};

/// Times that a worker is held to; kept by the supervisor's clock. The table of this name in a configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Deadlines {
    /// How often a worker sends a sign of life, in milliseconds.
    pub beat_ms: u32,
    /// Signs of life missed in a row after which it is killed.
    pub missed_beats: u32,
    /// From exec to readiness, in milliseconds.
    pub start_ms: u32,
    /// Longest that any job may take, in milliseconds; a job's own `wall_ms` holds besides.
    pub job_ms: Option<u32>,
    /// Longest that a stage may take, in milliseconds. Seen once a beat, so that much later at most.
    pub stages_ms: BTreeMap<Stage, u32>,
    /// How long a worker may take to end once it is asked, in milliseconds.
    pub stop_ms: u32,
}

impl Default for Deadlines {
    fn default() -> Self {
        let (job_ms, stages_ms) = (None, BTreeMap::new());
        Self { beat_ms: 1_000, missed_beats: 10, start_ms: 20_000, job_ms, stages_ms, stop_ms: 2_000 }
    }
}

impl Deadlines {
    /// How often a worker sends a sign of life; a period of no time would be none.
    #[must_use]
    pub fn beat(&self) -> Duration {
        Duration::from_millis(self.beat_ms.max(1).into())
    }

    /// How long a worker may be silent.
    #[must_use]
    pub fn silence(&self) -> Duration {
        self.beat().saturating_mul(self.missed_beats.max(1))
    }

    /// From exec to readiness.
    #[must_use]
    pub fn start(&self) -> Duration {
        Duration::from_millis(self.start_ms.into())
    }

    /// How long a worker may take to end once it is asked.
    #[must_use]
    pub fn stop(&self) -> Duration {
        Duration::from_millis(self.stop_ms.into())
    }

    /// The limit of a job that asks for `wall_ms`, in milliseconds.
    #[must_use]
    pub fn job_ms(&self, wall_ms: u64) -> u64 {
        self.job_ms.map_or(wall_ms, |most| wall_ms.min(most.into()))
    }

    /// The limit of a stage, where it has one, in milliseconds.
    #[must_use]
    pub fn stage_ms(&self, stage: Stage) -> Option<u64> {
        self.stages_ms.get(&stage).copied().map(u64::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_those_of_an_empty_table() {
        assert_eq!(toml::from_str::<Deadlines>("").unwrap(), Deadlines::default());
        assert_eq!(Deadlines::default().silence(), Duration::from_secs(10));
    }

    #[test]
    fn stages_are_named_as_in_reports() {
        let deadlines: Deadlines = toml::from_str("missed_beats = 3\nstages_ms = { decode = 50 }").unwrap();
        assert_eq!((deadlines.stage_ms(Stage::Decode), deadlines.stage_ms(Stage::Colour)), (Some(50), None));
        assert!(toml::from_str::<Deadlines>("stages_ms = { decoding = 50 }").is_err());
    }

    #[test]
    fn shorter_of_two_limits_holds_for_a_job() {
        let deadlines = Deadlines { job_ms: Some(500), ..Deadlines::default() };
        assert_eq!((deadlines.job_ms(60_000), deadlines.job_ms(20)), (500, 20));
        assert_eq!(Deadlines::default().job_ms(60_000), 60_000);
    }
}
