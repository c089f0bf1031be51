//! What a worker tries out on itself when it is asked to, with its confinement closed: the words of `refmill doctor`.

use serde::{Deserialize, Serialize};

/// Longest text about one trial, in bytes.
pub const MAX_SEEN: usize = 400;

/// Something that a job needs, tried alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Trial {
    /// A built-in image is decoded, converted, derived from and written, and the tensor's bytes are compared.
    Image,
    /// The GPU is the one that was asked for.
    Identity,
    /// The context answers.
    Context,
    /// Device memory can be had and is given back.
    Allocation,
    /// Device memory begins where kernels expect it to.
    Alignment,
    /// Bytes come back from the GPU as they went up, through page-locked memory.
    Copy,
    /// Kernels make what the CPU makes.
    Kernel,
    /// The driver's pool gives back what it is told to.
    Pool,
    /// Images are waited for by their own events.
    Waits,
    /// The GPU's own JPEG decoder.
    Decoder,
}

/// How a trial ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// As it should.
    Passed,
    /// Work goes on, but not as it could.
    Doubtful,
    /// It did not work.
    Failed,
    /// It was not tried.
    Skipped,
}

/// A trial with its outcome.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tried {
    /// What was tried.
    pub trial: Trial,
    /// How it ended.
    pub outcome: Outcome,
    /// What was seen, for people.
    pub seen: String,
}

/// All that a worker tried.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Examination {
    /// Each trial once, in the order of [`Trial::ALL`].
    pub tried: Vec<Tried>,
    /// Free memory of the GPU once all was tried and with the context alive, in bytes.
    pub free: Option<u64>,
}

impl Trial {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::Image,
        Self::Identity,
        Self::Context,
        Self::Allocation,
        Self::Alignment,
        Self::Copy,
        Self::Kernel,
        Self::Pool,
        Self::Waits,
        Self::Decoder,
    ];
}

impl Tried {
    /// A trial, its outcome, and what was seen, cut to [`MAX_SEEN`].
    #[must_use]
    pub fn new(trial: Trial, outcome: Outcome, seen: impl Into<String>) -> Self {
        let mut seen: String = seen.into();
        while seen.len() > MAX_SEEN {
            seen.pop();
        }
        Self { trial, outcome, seen }
    }
}

impl Examination {
    /// What of it cannot be so.
    #[must_use]
    pub fn contradiction(&self) -> Option<&'static str> {
        if !self.tried.iter().map(|tried| tried.trial).eq(Trial::ALL) {
            return Some("other trials than those that were asked for");
        }
        self.tried.iter().any(|tried| tried.seen.len() > MAX_SEEN).then_some("longer texts than a trial may have")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole() -> Examination {
        let tried = Trial::ALL.map(|trial| Tried::new(trial, Outcome::Passed, "x".repeat(MAX_SEEN + 1)));
        Examination { tried: tried.into(), free: None }
    }

    #[test]
    fn each_trial_once_and_in_order_is_no_contradiction() {
        assert_eq!(whole().contradiction(), None);
    }

    #[test]
    fn missing_doubled_and_talkative_trials_are_contradictions() {
        let (mut missing, mut doubled, mut long) = (whole(), whole(), whole());
        missing.tried.pop();
        doubled.tried[1].trial = Trial::Image;
        long.tried[0].seen.push('x');
        assert!([missing, doubled, long].iter().all(|told| told.contradiction().is_some()));
    }
}
