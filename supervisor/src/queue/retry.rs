//! What becomes of a job that was not done: tried again after a pause, or buried with the reason. Pure.

use refmill::failure::{Blame, Code, Failure};
use serde::{Deserialize, Serialize};

/// When a job is tried again, and when no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RetryPolicy {
    /// Failures of the device or of refmill itself after which a job is buried.
    pub max_failures: u32,
    /// Workers that crashed under a job until it counts as poison.
    pub max_crashes: u32,
    /// Holders that vanished with a job until it counts as poison. More than crashes: a supervisor is ended for many
    /// reasons, and few of them are the job's.
    pub max_losses: u32,
    /// The first pause, in milliseconds; each further one is twice as long.
    pub base_ms: u32,
    /// The longest pause, in milliseconds.
    pub most_ms: u32,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self { max_failures: 5, max_crashes: 3, max_losses: 10, base_ms: 1_000, most_ms: 300_000 }
    }
}

/// What went wrong with a job so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    /// Failures of the device or of refmill itself.
    pub failures: u32,
    /// Workers that crashed under it or broke the protocol.
    pub crashes: u32,
    /// Leases that ran out, or whose holder vanished.
    pub losses: u32,
}

/// Why a job was not done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It failed, and this is who is to blame.
    Failed(Blame),
    /// The worker crashed under it, or turned against us.
    Crashed,
    /// Its holder was not heard of any more.
    Lost,
}

impl From<&Failure> for Fault {
    fn from(failure: &Failure) -> Self {
        match failure.code {
            Code::WorkerCrashed | Code::WorkerHung | Code::WorkerProtocol => Self::Crashed,
            _ => Self::Failed(failure.blame),
        }
    }
}

/// What becomes of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Queued again, due after so many milliseconds.
    Again {
        /// The pause.
        after_ms: u32,
    },
    /// Buried: another attempt ends as this one.
    Buried,
    /// Buried: it was tried often enough.
    Exhausted,
    /// Buried: it is poison.
    Quarantined,
}

impl Next {
    /// Whether the job is dead.
    #[must_use]
    pub fn is_final(self) -> bool {
        !matches!(self, Self::Again { .. })
    }

    /// The dead letter's reason: what happened last, and why that was the end.
    #[must_use]
    pub fn reason(self, tally: Tally, last: &str) -> String {
        let Tally { failures, crashes, losses } = tally;
        match self {
            Self::Again { .. } | Self::Buried => last.to_owned(),
            Self::Exhausted => format!("given up after {failures} failures; the last: {last}"),
            Self::Quarantined => {
                format!("quarantined: {crashes} workers crashed and {losses} holders vanished; the last: {last}")
            }
        }
    }
}

impl RetryPolicy {
    /// Decides, and counts. `seed` tells jobs apart, so that those that failed together do not come back together.
    #[must_use]
    pub fn decide(&self, tally: Tally, fault: Fault, seed: u64) -> (Next, Tally) {
        let Tally { mut failures, mut crashes, mut losses } = tally;
        let (count, most, end) = match fault {
            Fault::Failed(blame) if !blame.is_retryable() => return (Next::Buried, tally),
            Fault::Failed(_) => (&mut failures, self.max_failures, Next::Exhausted),
            Fault::Crashed => (&mut crashes, self.max_crashes, Next::Quarantined),
            Fault::Lost => (&mut losses, self.max_losses, Next::Quarantined),
        };
        *count = count.saturating_add(1);
        let spent = *count >= most;
        let tally = Tally { failures, crashes, losses };
        let times = failures.saturating_add(crashes).saturating_add(losses);
        (if spent { end } else { Next::Again { after_ms: self.pause_ms(times, seed) } }, tally)
    }

    /// The pause after the `times`th time: doubled each time, with up to half of it taken off by chance.
    #[must_use]
    pub fn pause_ms(&self, times: u32, seed: u64) -> u32 {
        let doubled = 1_u32.checked_shl(times.saturating_sub(1)).unwrap_or(u32::MAX);
        let whole = self.base_ms.saturating_mul(doubled).min(self.most_ms);
        let half = whole / 2;
        let chance = scramble(seed ^ u64::from(times)) % (u64::from(half) + 1);
        whole - u32::try_from(chance).unwrap_or(half)
    }
}

/// Steele, Lea and Flood's SplitMix64: spreads small differences over all bits.
fn scramble(seed: u64) -> u64 {
    let mut mixed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: RetryPolicy =
        RetryPolicy { max_failures: 3, max_crashes: 2, max_losses: 4, base_ms: 100, most_ms: 1_000 };

    fn after(tally: Tally, fault: Fault) -> Next {
        POLICY.decide(tally, fault, 0).0
    }

    #[test]
    fn blame_of_the_image_is_final_at_once() {
        let blames = [Blame::Input, Blame::Limits, Blame::Unsupported];
        assert!(blames.iter().all(|blame| after(Tally::default(), Fault::Failed(*blame)) == Next::Buried));
    }

    #[test]
    fn blame_of_the_device_is_tried_again_until_it_was_often_enough() {
        let fault = Fault::Failed(Blame::Device);
        assert!(matches!(after(Tally { failures: 1, ..Tally::default() }, fault), Next::Again { .. }));
        assert_eq!(after(Tally { failures: 2, ..Tally::default() }, fault), Next::Exhausted);
    }

    #[test]
    fn crashes_and_losses_are_counted_apart() {
        assert_eq!(after(Tally { crashes: 1, ..Tally::default() }, Fault::Crashed), Next::Quarantined);
        assert!(!after(Tally { crashes: 1, ..Tally::default() }, Fault::Lost).is_final());
        assert_eq!(after(Tally { losses: 3, ..Tally::default() }, Fault::Lost), Next::Quarantined);
    }

    #[test]
    fn pause_doubles_up_to_its_limit_and_jitter_takes_at_most_half() {
        let bounds = [(1, 50..=100), (2, 100..=200), (3, 200..=400), (9, 500..=1_000), (u32::MAX, 500..=1_000)];
        let kept = |(times, range): &(u32, std::ops::RangeInclusive<u32>)| {
            (0..200).all(|seed| range.contains(&POLICY.pause_ms(*times, seed)))
        };
        assert!(bounds.iter().all(kept));
    }

    #[test]
    fn jobs_that_failed_together_come_back_apart() {
        let pauses: std::collections::HashSet<u32> = (0..50).map(|seed| POLICY.pause_ms(4, seed)).collect();
        assert!(pauses.len() > 30, "{pauses:?}");
    }

    #[test]
    fn crash_and_broken_protocol_are_held_against_the_job() {
        let fault = |code| Fault::from(&Failure::new(code, ""));
        let codes = [Code::WorkerCrashed, Code::WorkerHung, Code::WorkerProtocol];
        assert!(codes.into_iter().all(|code| fault(code) == Fault::Crashed));
        assert_eq!(fault(Code::Unwritable), Fault::Failed(Blame::Internal));
    }
}
