//! The figures of [`super::catalogue`], counted as jobs and workers end and written out as a scraper asks. How many
//! series there can be is bounded: every label has a fixed set of words, but for tenants, of which [`MAX_TENANTS`] are
//! told apart.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use prometheus_client::encoding::{prometheus_text, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Metric, Registry};
use refmill::failure::Failure;
use refmill::finding::Severity;
use refmill::report::{ArtifactKind, Report};

use super::catalogue::{self, Figure};
use super::span::JobSpan;
use crate::pool::posture::{Layer, SandboxPolicy, Verdict};
use crate::pool::{News, sample};
use crate::queue::tenant::MAX_TENANTS;
use crate::queue::{Count, Job, Standing, State};

/// The tenant that all further ones count as. No tenant can be called so.
pub const OTHERS: &str = "(others)";

/// Bounds of the buckets for what is done for one job, in seconds.
const SHORT: [f64; 16] =
    [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];
/// Bounds of the buckets for what waits, in seconds.
const LONG: [f64; 12] = [0.01, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3_600.0, 21_600.0, 86_400.0];

/// Labels whose words are known before the program starts.
type Fixed<const N: usize> = [(&'static str, &'static str); N];
/// Labels with a tenant's name.
type Named<const N: usize> = [(&'static str, String); N];
/// A gauge of seconds.
type Seconds = Gauge<f64, AtomicU64>;

/// Which text a scraper wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Prometheus' own, version 0.0.4.
    Prometheus,
    /// OpenMetrics 1.0.
    OpenMetrics,
}

/// All figures.
pub struct Metrics {
    registry: Registry,
    tenants: Mutex<BTreeSet<String>>,
    scraped: Mutex<()>,
    queue_jobs: Family<Fixed<1>, Gauge>,
    queue_oldest: Family<Fixed<1>, Seconds>,
    tenant_jobs: Family<Named<2>, Gauge>,
    tenant_memory: Family<Named<1>, Gauge>,
    jobs: Family<Named<2>, Counter>,
    rejects: Family<Fixed<2>, Counter>,
    retries: Family<Fixed<2>, Counter>,
    leases_lost: Counter,
    wait: Histogram,
    taken: Histogram,
    stages: Family<Fixed<1>, Histogram>,
    findings: Family<Fixed<2>, Counter>,
    uploads: Counter,
    input_bytes: Counter,
    pixels: Counter,
    artifact_bytes: Family<Fixed<1>, Counter>,
    recycles: Counter,
    kept: Counter,
    slots_lost: Counter,
    sandbox_gap: Family<Fixed<1>, Gauge>,
    sandbox_policy: Family<Fixed<1>, Gauge>,
    own_memory: Family<Fixed<1>, Gauge>,
}

impl fmt::Debug for Metrics {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Metrics").finish_non_exhaustive()
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// Every figure at its beginning.
    #[must_use]
    pub fn new() -> Self {
        let mut registry = Registry::default();
        let build: Family<Fixed<1>, Gauge> = add(&mut registry, &catalogue::BUILD, Family::default());
        build.get_or_create(&[("version", env!("CARGO_PKG_VERSION"))]).set(1);
        let short: fn() -> Histogram = || Histogram::new(SHORT);
        let mut add_counter = |figure| add(&mut registry, figure, Counter::default());
        let leases_lost = add_counter(&catalogue::LEASES_LOST);
        let uploads = add_counter(&catalogue::UPLOADS);
        let input_bytes = add_counter(&catalogue::INPUT_BYTES);
        let pixels = add_counter(&catalogue::PIXELS);
        let recycles = add_counter(&catalogue::RECYCLES);
        let kept = add_counter(&catalogue::KEPT);
        let slots_lost = add_counter(&catalogue::SLOTS_LOST);
        Self {
            tenants: Mutex::default(),
            scraped: Mutex::default(),
            queue_jobs: add(&mut registry, &catalogue::QUEUE_JOBS, Family::default()),
            queue_oldest: add(&mut registry, &catalogue::QUEUE_OLDEST, Family::default()),
            tenant_jobs: add(&mut registry, &catalogue::TENANT_JOBS, Family::default()),
            tenant_memory: add(&mut registry, &catalogue::TENANT_MEMORY, Family::default()),
            jobs: add(&mut registry, &catalogue::JOBS, Family::default()),
            rejects: add(&mut registry, &catalogue::REJECTS, Family::default()),
            retries: add(&mut registry, &catalogue::RETRIES, Family::default()),
            leases_lost,
            wait: add(&mut registry, &catalogue::WAIT, Histogram::new(LONG)),
            taken: add(&mut registry, &catalogue::TAKEN, short()),
            stages: add(&mut registry, &catalogue::STAGE, Family::new_with_constructor(short)),
            findings: add(&mut registry, &catalogue::FINDINGS, Family::default()),
            uploads,
            input_bytes,
            pixels,
            artifact_bytes: add(&mut registry, &catalogue::ARTIFACT_BYTES, Family::default()),
            recycles,
            kept,
            slots_lost,
            sandbox_gap: add(&mut registry, &catalogue::SANDBOX_GAP, Family::default()),
            sandbox_policy: add(&mut registry, &catalogue::SANDBOX_POLICY, Family::default()),
            own_memory: add(&mut registry, &catalogue::OWN_MEMORY, Family::default()),
            registry,
        }
    }

    /// A job was claimed.
    pub fn claimed(&self, job: &Job) {
        let waited_ms = job.updated.saturating_sub(job.created).max(0).unsigned_abs();
        self.wait.observe(Duration::from_millis(waited_ms).as_secs_f64());
    }

    /// A job of `tenant` has its final report.
    pub fn ended(&self, tenant: &str, report: &Report, span: &JobSpan) {
        let tenant = self.tenant(tenant);
        self.jobs.get_or_create(&[("tenant", tenant), ("outcome", report.outcome.as_str().into())]).inc();
        if let Some(failure) = &report.error {
            self.rejects.get_or_create(&reason(failure)).inc();
        }
        self.taken.observe(span.taken().as_secs_f64());
        for time in span.stages(report) {
            let seconds = Duration::from_micros(time.micros).as_secs_f64();
            self.stages.get_or_create(&[("stage", time.stage.as_str())]).observe(seconds);
        }
        for finding in &report.findings {
            let labels = [("code", finding.code.as_str()), ("severity", severity(finding.severity))];
            self.findings.get_or_create(&labels).inc();
        }
        self.uploads.inc_by(report.uploads.into());
        self.input_bytes.inc_by(report.source.bytes);
        let stored = report.image.as_ref().map(|image| image.stored);
        self.pixels.inc_by(stored.map_or(0, |[width, height]| u64::from(width).saturating_mul(height.into())));
        for artifact in &report.artifacts {
            self.artifact_bytes.get_or_create(&[("kind", kind(artifact.kind))]).inc_by(artifact.bytes);
        }
    }

    /// A job is tried again after `failure`.
    pub fn retried(&self, failure: &Failure) {
        self.retries.get_or_create(&reason(failure)).inc();
    }

    /// The lease of a job in hand is gone.
    pub fn lease_lost(&self) {
        self.leases_lost.inc();
    }

    /// Something happened to a worker.
    pub fn worker(&self, news: &News) {
        match news {
            News::Ready(_, verdict) => self.confined(verdict),
            News::Recycled(..) => drop(self.recycles.inc()),
            News::Kept(..) => drop(self.kept.inc()),
            News::SlotLost(_) => drop(self.slots_lost.inc()),
            News::Finished(_) => {}
        }
    }

    fn confined(&self, verdict: &Verdict) {
        let policy = verdict.policy;
        for (word, each) in
            [("strict", SandboxPolicy::Strict), ("standard", SandboxPolicy::Standard), ("off", SandboxPolicy::Off)]
        {
            self.sandbox_policy.get_or_create(&[("policy", word)]).set((each == policy).into());
        }
        for layer in Layer::ALL {
            let missing = policy == SandboxPolicy::Off || verdict.gaps.iter().any(|gap| gap.layer == layer);
            let labels = [("layer", layer.code().trim_start_matches("sandbox_"))];
            let gap = self.sandbox_gap.get_or_create(&labels);
            gap.set(gap.get().max(missing.into()));
        }
    }

    /// All figures as text: those of now, of what the queue holds at `now_ms` by its clock and the supervisor's own memory,
    /// and those that were counted.
    #[must_use]
    pub fn scrape(&self, (counts, tenants): (&[Count], &[Standing]), now_ms: i64, form: Form) -> String {
        // Two at once would each see what the other has half replaced.
        let _one = self.scraped.lock().unwrap_or_else(PoisonError::into_inner);
        self.queue(counts, tenants, now_ms);
        self.text(form)
    }

    fn queue(&self, counts: &[Count], tenants: &[Standing], now_ms: i64) {
        for state in State::ALL {
            let count = counts.iter().find(|count| count.state == state);
            let jobs = count.map_or(0, |count| count.jobs);
            self.queue_jobs.get_or_create(&[("state", state.as_str())]).set(whole(jobs));
            if matches!(state, State::Queued | State::Leased) {
                let age_ms =
                    count.and_then(|count| count.oldest).map_or(0, |oldest| now_ms.saturating_sub(oldest).max(0));
                let seconds = Duration::from_millis(age_ms.unsigned_abs()).as_secs_f64();
                self.queue_oldest.get_or_create(&[("state", state.as_str())]).set(seconds);
            }
        }
        // Those that are gone shall not be told for ever.
        self.tenant_jobs.clear();
        self.tenant_memory.clear();
        for Standing { tenant, queued, leased, device_bytes_in_use, .. } in tenants {
            let name = self.tenant(&tenant.name);
            for (state, jobs) in [("queued", queued), ("leased", leased)] {
                self.tenant_jobs
                    .get_or_create(&[("tenant", name.clone()), ("state", state.into())])
                    .inc_by(whole(*jobs));
            }
            self.tenant_memory.get_or_create(&[("tenant", name)]).inc_by(whole(*device_bytes_in_use));
        }
    }

    fn text(&self, form: Form) -> String {
        if let Some(own) = sample::statm(std::process::id()) {
            self.own_memory.get_or_create(&[("source", "statm")]).set(whole(own.bytes));
        }
        let mut written = String::new();
        // Writing to a String cannot fail.
        match form {
            Form::Prometheus => prometheus_text::encode(&mut written, &self.registry).ok(),
            Form::OpenMetrics => text::encode(&mut written, &self.registry).ok(),
        };
        written
    }

    /// The name that a tenant counts under.
    fn tenant(&self, name: &str) -> String {
        let mut known = self.tenants.lock().unwrap_or_else(PoisonError::into_inner);
        if known.contains(name) || known.len() < MAX_TENANTS {
            known.insert(name.to_owned());
            return name.to_owned();
        }
        OTHERS.into()
    }
}

impl Form {
    /// The form that an `Accept` header asks for.
    #[must_use]
    pub fn wanted(accept: Option<&str>) -> Self {
        let openmetrics = |accept: &str| accept.contains("application/openmetrics-text");
        if accept.is_some_and(openmetrics) { Self::OpenMetrics } else { Self::Prometheus }
    }

    /// Its media type.
    #[must_use]
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Prometheus => prometheus_text::CONTENT_TYPE,
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

fn add<M: Metric + Clone>(registry: &mut Registry, figure: &Figure, metric: M) -> M {
    registry.register(figure.name, figure.help, metric.clone());
    metric
}

fn reason(failure: &Failure) -> Fixed<2> {
    [("code", failure.code.as_str()), ("blame", failure.blame.as_str())]
}

fn severity(severity: Severity) -> &'static str {
    match severity {
        Severity::Info => "info",
        Severity::Defect => "defect",
        Severity::Fatal => "fatal",
    }
}

fn kind(kind: ArtifactKind) -> &'static str {
    match kind {
        ArtifactKind::Image => "image",
        ArtifactKind::Repaired => "repaired",
        ArtifactKind::Tensors => "tensors",
        ArtifactKind::ThumbnailBefore => "thumbnail_before",
        ArtifactKind::ThumbnailAfter => "thumbnail_after",
    }
}

fn whole(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
