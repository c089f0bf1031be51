//! The watermarks as they are configured, and the marks of one worker's life.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Kind, Marks};

/// How memory is watched. The table of this name in a configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WatermarkPolicy {
    /// The watermark for a worker's own host memory, in bytes; page-locked memory is apart.
    pub host_bytes: u64,
    /// Over so much host memory a worker is killed at once, in bytes.
    pub host_hard_bytes: u64,
    /// The watermark for a worker's memory on its GPU, in bytes, the context included.
    pub gpu_bytes: u64,
    /// Over so much memory on its GPU a worker is killed at once, in bytes.
    pub gpu_hard_bytes: u64,
    /// How often memory is looked at, in milliseconds.
    pub sample_ms: u32,
    /// Samples in a row over the watermark.
    pub consecutive: u32,
    /// How many jobs ahead the trend must cross the watermark.
    pub horizon_jobs: u32,
    /// By how much at most a worker's own mark lies under the watermark, in percent.
    pub jitter_percent: u32,
    /// The shortest life of a worker, in milliseconds.
    pub min_life_ms: u32,
}

impl Default for WatermarkPolicy {
    fn default() -> Self {
        Self {
            host_bytes: 1 << 30,
            host_hard_bytes: 8 << 30,
            gpu_bytes: 8 << 30,
            gpu_hard_bytes: 24 << 30,
            sample_ms: 2_000,
            consecutive: 3,
            horizon_jobs: 32,
            jitter_percent: 10,
            min_life_ms: 30_000,
        }
    }
}

/// What is wrong with a [`WatermarkPolicy`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WatermarkError {
    /// A watermark that only a dead worker would reach.
    #[error("{mark} is {value}, over {hard}, which is {limit}")]
    OverHard {
        /// The watermark's key.
        mark: &'static str,
        /// Its value, in bytes.
        value: u64,
        /// The hard limit's key.
        hard: &'static str,
        /// Its value, in bytes.
        limit: u64,
    },
    /// A number outside its range.
    #[error("{key} is {value}, it takes {least} to {most}")]
    Range {
        /// The key.
        key: &'static str,
        /// Its value.
        value: u32,
        /// The least that it takes.
        least: u32,
        /// The most that it takes.
        most: u32,
    },
}

impl WatermarkPolicy {
    /// Whether the numbers make sense together.
    ///
    /// # Errors
    /// [`WatermarkError`] for the first that does not.
    pub fn check(&self) -> Result<(), WatermarkError> {
        let over = |mark, value, hard, limit| Err(WatermarkError::OverHard { mark, value, hard, limit });
        if self.host_bytes > self.host_hard_bytes {
            return over("host_bytes", self.host_bytes, "host_hard_bytes", self.host_hard_bytes);
        }
        if self.gpu_bytes > self.gpu_hard_bytes {
            return over("gpu_bytes", self.gpu_bytes, "gpu_hard_bytes", self.gpu_hard_bytes);
        }
        let ranges = [
            ("sample_ms", self.sample_ms, 10, 600_000),
            ("consecutive", self.consecutive, 1, 1_000),
            ("jitter_percent", self.jitter_percent, 0, 50),
        ];
        match ranges.into_iter().find(|(_, value, least, most)| !(least..=most).contains(&value)) {
            Some((key, value, least, most)) => Err(WatermarkError::Range { key, value, least, most }),
            None => Ok(()),
        }
    }

    /// How often memory is looked at.
    #[must_use]
    pub fn period(&self) -> Duration {
        Duration::from_millis(self.sample_ms.max(1).into())
    }

    /// The shortest life of a worker.
    #[must_use]
    pub fn min_life(&self) -> Duration {
        Duration::from_millis(self.min_life_ms.into())
    }

    /// The marks of life `life` in slot `slot`, on a device or host with `total` bytes where that is known. Each life
    /// has a mark of its own, so that workers that grow alike are not recycled together.
    #[must_use]
    pub fn marks(&self, kind: Kind, total: Option<u64>, slot: usize, life: u64) -> Marks {
        let (mark, hard) = match kind {
            Kind::Host => (self.host_bytes, self.host_hard_bytes),
            Kind::Gpu => (self.gpu_bytes, self.gpu_hard_bytes),
        };
        let part = |percent: u64| total.filter(|_| kind == Kind::Gpu).map_or(u64::MAX, |total| total / 100 * percent);
        let (mark, hard) = (mark.min(part(80)), hard.min(part(95)));
        // Multiples of the golden ratio, modulo 1000, lie evenly apart however many there are.
        let turn = (slot as u64).wrapping_mul(618).wrapping_add(life.wrapping_mul(382)) % 1_000;
        let below = mark / 100_000 * u64::from(self.jitter_percent.min(50)) * turn;
        Marks { mark: mark.saturating_sub(below).min(hard), hard }
    }
}
