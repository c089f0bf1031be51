//! A lease: the right to finish one job, for a while. Its token tells it from every other lease of that job, earlier
//! and later ones, so what a late holder says is recognised and refused.

use std::fmt;

use serde::Serialize;

/// Number of a job in its queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct JobId(pub i64);

impl fmt::Display for JobId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

/// The right to finish a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Lease {
    /// The job.
    pub job: JobId,
    /// Higher than that of every earlier lease of the job.
    pub token: i64,
}

/// How many heartbeats a lease outlives without: two may be lost, and the third still comes in time.
pub const BEATS: u32 = 3;

/// How often a lease of `lease_ms` is extended, in milliseconds.
#[must_use]
pub fn heartbeat_ms(lease_ms: u32) -> u32 {
    (lease_ms / BEATS).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_lost_heartbeats_lose_no_lease() {
        assert_eq!(heartbeat_ms(30_000), 10_000);
        assert_eq!(heartbeat_ms(1), 1);
    }
}
