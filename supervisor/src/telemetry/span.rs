//! One job, from its claim to what became of it: a span that everything said about the job lies in, and at its end one
//! event with the verdict and the time of each stage. The worker's stages are its own figures, out of its report; those
//! of intake and publication are the supervisor's.

use std::time::{Duration, Instant};

use refmill::failure::Stage;
use refmill::finding::Severity;
use refmill::report::{Outcome, Report, StageTime};
use tracing::Span;

use crate::progress::describe;
use crate::queue::Job;

/// The target of what is said of single jobs.
pub const JOBS: &str = "refmill::job";

/// Hexadecimal digits of a trace id.
const TRACE_ID: usize = 32;

/// A job in hand.
#[derive(Debug, Clone)]
pub struct JobSpan {
    span: Span,
    claimed: Instant,
    /// What the supervisor itself did for the job.
    own: Vec<StageTime>,
}

impl JobSpan {
    /// Begins with the claim of `job` by the slot of this name.
    #[must_use]
    pub fn begin(job: &Job, slot: &str) -> Self {
        let waited_ms = job.updated.saturating_sub(job.created);
        let span = tracing::info_span!(
            target: JOBS,
            "job",
            trace_id = trace_id(job),
            job = job.id.0,
            tenant = job.tenant,
            image = job.name,
            slot,
            delivery = job.deliveries,
            waited_ms,
        );
        span.in_scope(|| tracing::debug!(target: JOBS, "{}: claimed by {slot}", job.name));
        Self { span, claimed: Instant::now(), own: Vec::new() }
    }

    /// Does something in the span.
    pub fn within<T>(&self, what: impl FnOnce() -> T) -> T {
        self.span.in_scope(what)
    }

    /// The supervisor's own `stage` took so long.
    pub fn spent(&mut self, stage: Stage, time: Duration) {
        self.own.push(StageTime { stage, micros: micros(time) });
    }

    /// Every stage that was reached, with its time, in the order of the stages.
    pub fn stages(&self, report: &Report) -> Vec<StageTime> {
        let mut all: Vec<StageTime> = self.own.iter().chain(&report.stages).copied().collect();
        all.sort_by_key(|time| time.stage);
        all
    }

    /// How long the job has been in hand.
    #[must_use]
    pub fn taken(&self) -> Duration {
        self.claimed.elapsed()
    }

    /// Tells how the job ended, once its report is final.
    pub fn tell(&self, report: &Report) {
        let stages = self.stages(report);
        let time = |stage: Stage| stages.iter().find(|time| time.stage == stage).map(|time| time.micros);
        let failure = report.error.as_ref();
        let codes = codes(report);
        macro_rules! say {
            ($level:ident) => {
                tracing::$level!(
                    target: JOBS,
                    outcome = report.outcome.as_str(),
                    code = failure.map(|failure| failure.code.as_str()),
                    blame = failure.map(|failure| failure.blame.as_str()),
                    findings = codes,
                    bytes = report.source.bytes,
                    device = report.device.as_ref().map(|device| device.kind.as_str()),
                    uploads = report.uploads,
                    taken_us = micros(self.taken()),
                    intake_us = time(Stage::Intake),
                    open_us = time(Stage::Open),
                    inspect_us = time(Stage::Inspect),
                    repair_us = time(Stage::Repair),
                    decode_us = time(Stage::Decode),
                    colour_us = time(Stage::Colour),
                    encode_us = time(Stage::Encode),
                    upload_us = time(Stage::Upload),
                    tensors_us = time(Stage::Tensors),
                    report_us = time(Stage::Report),
                    publish_us = time(Stage::Publish),
                    "{}",
                    describe(report)
                )
            };
        }
        self.within(|| if report.outcome == Outcome::Reject { say!(warn) } else { say!(info) });
    }
}

/// The trace that all attempts at a job belong to, on whichever machine: 16 bytes as W3C Trace Context writes them. It
/// depends on what never changes of a job, so nobody has to hand it on.
#[must_use]
pub fn trace_id(job: &Job) -> String {
    let mut hasher = blake3::Hasher::new_derive_key("refmill 2026 trace id of a job");
    hasher.update(&job.id.0.to_le_bytes()).update(&job.created.to_le_bytes()).update(job.key.as_bytes());
    hasher.finalize().to_hex().chars().take(TRACE_ID).collect()
}

/// The codes of what is worth a repair or a refusal, each once, in the order of the stages.
fn codes(report: &Report) -> String {
    let mut codes: Vec<&str> = Vec::new();
    for finding in report.findings.iter().filter(|finding| finding.severity >= Severity::Defect) {
        if !codes.contains(&finding.code.as_str()) {
            codes.push(finding.code.as_str());
        }
    }
    codes.join(" ")
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
