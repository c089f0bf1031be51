//! Why a worker did not become ready, and why one has no report of its job.

use std::io;

use refmill::failure::Stage;

use crate::pool::posture::{Gap, SandboxPolicy};
use crate::pool::spawn::SpawnError;
use crate::pool::watermark::Kind;

/// Why a worker did not become ready.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Making its socket, its folder or its memory failed.
    #[error("cannot prepare a worker: {0}")]
    Prepare(#[source] io::Error),
    /// The process did not start.
    #[error(transparent)]
    Spawn(#[from] SpawnError),
    /// It gave up, and said why.
    #[error("worker gave up: {message}")]
    Fatal {
        /// Its words.
        message: String,
    },
    /// It ended without a word.
    #[error("worker {how} before it was ready")]
    Ended {
        /// How, and what it wrote to stderr.
        how: String,
    },
    /// It was not ready in time.
    #[error("worker was not ready in time")]
    Timeout,
    /// It broke the protocol.
    #[error("worker broke the protocol: {what}")]
    Protocol {
        /// How.
        what: String,
    },
    /// It is less confined than it must be.
    #[error("--sandbox={policy} asks for more than there is: {gap}")]
    Posture {
        /// What was asked for.
        policy: SandboxPolicy,
        /// What does not hold.
        gap: Gap,
    },
    /// The user wants to stop.
    #[error("interrupted")]
    Interrupted,
}

/// Why a job has no report; the worker is gone in each case.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The process ended while it held the job.
    #[error("worker {how} while it held the job")]
    Crashed {
        /// How, and what it wrote to stderr.
        how: String,
    },
    /// It broke the protocol.
    #[error("worker broke the protocol: {what}")]
    Protocol {
        /// How.
        what: String,
    },
    /// It was not done in time.
    #[error("no answer after {elapsed_ms} ms")]
    OverTime {
        /// Time that the job had, in milliseconds.
        elapsed_ms: u64,
        /// Its limit, in milliseconds.
        limit_ms: u64,
    },
    /// A stage was not done in time.
    #[error("stage {} goes on after {elapsed_ms} ms", stage.as_str())]
    StageOverTime {
        /// Which.
        stage: Stage,
        /// Time that it had, in milliseconds.
        elapsed_ms: u64,
        /// Its limit, in milliseconds.
        limit_ms: u64,
    },
    /// The process stood still: it gave no sign of life.
    #[error("worker gave no sign of life for {silent_ms} ms")]
    Hung {
        /// How long, in milliseconds.
        silent_ms: u64,
    },
    /// It took more memory than any worker may.
    #[error("worker was killed: its {kind} was {bytes} bytes, the hard limit is {limit}")]
    OverMemory {
        /// Which memory.
        kind: Kind,
        /// What was seen, in bytes.
        bytes: u64,
        /// The limit, in bytes.
        limit: u64,
    },
    /// The user wants to stop.
    #[error("interrupted")]
    Interrupted,
}

impl RunError {
    /// Whether the job may be tried again: it was the worker's end, and perhaps not the job's doing.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Crashed { .. } | Self::Hung { .. } | Self::OverMemory { .. })
    }
}
