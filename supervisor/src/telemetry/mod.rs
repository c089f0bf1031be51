//! What `serve` tells about itself while it works. Nothing here decides anything, and nothing of it can fail a job.
//!
//! | module | what it does |
//! | --- | --- |
//! | [`log`] | lines on standard error, for people or as JSON |
//! | [`span`] | one job from its claim to its report, over both processes |
//! | [`metrics`] | figures, which [`catalogue`] lists |
//! | [`recent`] | the last jobs and what befell workers, for the page |

pub mod catalogue;
pub mod log;
pub mod metrics;
pub mod recent;
pub mod span;

use refmill::failure::Failure;
use refmill::report::Report;

use crate::pool::News;
use crate::queue::Job;
use metrics::Metrics;
use recent::Recent;
use span::JobSpan;

/// What is counted and remembered of a server's jobs and workers.
#[derive(Debug, Default)]
pub struct Telemetry {
    /// The figures.
    pub metrics: Metrics,
    /// The last of everything.
    pub recent: Recent,
}

impl Telemetry {
    /// `job` was claimed.
    pub fn claimed(&self, job: &Job) {
        self.metrics.claimed(job);
    }

    /// `job` has its final report.
    pub fn ended(&self, job: &Job, report: &Report, span: &JobSpan) {
        self.metrics.ended(&job.tenant, report, span);
        self.recent.ended(job, report, span);
    }

    /// A job is tried again after `failure`.
    pub fn retried(&self, failure: &Failure) {
        self.metrics.retried(failure);
    }

    /// The lease of a job in hand is gone.
    pub fn lease_lost(&self) {
        self.metrics.lease_lost();
    }

    /// Something happened to a worker.
    pub fn worker(&self, news: &News) {
        self.metrics.worker(news);
        self.recent.worker(news);
    }
}
