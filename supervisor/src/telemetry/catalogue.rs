//! What `serve` measures: the list that `/metrics` is made from and `docs/metrics.md` is printed from. A name, a label
//! and a label's words never change; what is no longer measured goes with a word in the changelog.

use std::fmt::Write;

/// One figure, or one for each combination of its labels.
#[derive(Debug, Clone, Copy)]
pub struct Figure {
    /// Its name. A counter's samples end in `_total`, a histogram's in `_bucket`, `_sum` and `_count`.
    pub name: &'static str,
    /// How it moves.
    pub kind: Kind,
    /// Its labels, with what they can be.
    pub labels: &'static [(&'static str, &'static str)],
    /// What it means, and its unit.
    pub help: &'static str,
}

/// How a figure moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Up, from 0 at the start of the process.
    Counter,
    /// Up and down.
    Gauge,
    /// Counts of what was seen, by size.
    Histogram,
}

impl Kind {
    /// The word of the exposition formats.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

const STATE: (&str, &str) = ("state", "`queued`, `leased`, `done`, `dead`, `cancelled`");
const TENANT: (&str, &str) = ("tenant", "a name; `(others)` beyond 256 of them");
const CODE: (&str, &str) = ("code", "a code of a failure, as in reports");
const BLAME: (&str, &str) = ("blame", "`input`, `limits`, `unsupported`, `device`, `internal`");

const fn counter(name: &'static str, labels: &'static [(&'static str, &'static str)], help: &'static str) -> Figure {
    Figure { name, kind: Kind::Counter, labels, help }
}

const fn gauge(name: &'static str, labels: &'static [(&'static str, &'static str)], help: &'static str) -> Figure {
    Figure { name, kind: Kind::Gauge, labels, help }
}

const fn histogram(name: &'static str, labels: &'static [(&'static str, &'static str)], help: &'static str) -> Figure {
    Figure { name, kind: Kind::Histogram, labels, help }
}

/// The program.
pub const BUILD: Figure = gauge("refmill_build", &[("version", "refmill's version")], "1: which refmill this is");
/// Jobs of the queue.
pub const QUEUE_JOBS: Figure = gauge("refmill_queue_jobs", &[STATE], "Jobs that the queue holds, by state");
/// The oldest of them.
pub const QUEUE_OLDEST: Figure = gauge(
    "refmill_queue_oldest_seconds",
    &[("state", "`queued`, `leased`")],
    "How long ago the oldest job of the state was put into the queue; 0 where there is none",
);
/// Jobs of tenants.
pub const TENANT_JOBS: Figure = gauge(
    "refmill_tenant_jobs",
    &[TENANT, ("state", "`queued`, `leased`")],
    "Jobs of a tenant that wait or are in hand",
);
/// Memory of tenants.
pub const TENANT_MEMORY: Figure = gauge(
    "refmill_tenant_gpu_memory_bytes",
    &[TENANT],
    "GPU memory that a tenant's jobs in hand may need, each by its own bound",
);
/// Ended jobs.
pub const JOBS: Figure = counter(
    "refmill_jobs",
    &[TENANT, ("outcome", "`ok`, `ok_with_repair`, `reject`")],
    "Jobs that this process ended, with a final report",
);
/// Rejections.
pub const REJECTS: Figure = counter("refmill_rejects", &[CODE, BLAME], "Jobs that ended without artifacts, by reason");
/// Second attempts.
pub const RETRIES: Figure = counter("refmill_retries", &[CODE, BLAME], "Failures after which a job is tried again");
/// Lost leases.
pub const LEASES_LOST: Figure =
    counter("refmill_leases_lost", &[], "Jobs whose lease ended while they were in hand: somebody else has them");
/// Time in the queue.
pub const WAIT: Figure =
    histogram("refmill_job_wait_seconds", &[], "From a job's submission to its claim, pauses of retries included");
/// Time in hand.
pub const TAKEN: Figure = histogram("refmill_job_seconds", &[], "From a job's claim to its recorded report");
/// Time of stages.
pub const STAGE: Figure = histogram(
    "refmill_stage_seconds",
    &[(
        "stage",
        "`intake`, `open`, `inspect`, `repair`, `decode`, `colour`, `encode`, `upload`, `tensors`, `report`, `publish`",
    )],
    "Time of each stage that a job reached",
);
/// Findings.
pub const FINDINGS: Figure = counter(
    "refmill_findings",
    &[("code", "a code of [findings.md](findings.md)"), ("severity", "`info`, `defect`, `fatal`")],
    "Findings in reports of ended jobs",
);
/// Uploads.
pub const UPLOADS: Figure = counter("refmill_uploads", &[], "Images uploaded to a GPU");
/// Bytes in.
pub const INPUT_BYTES: Figure =
    counter("refmill_input_bytes", &[], "Bytes of ended jobs' inputs; `rate()` of it is the throughput");
/// Pixels.
pub const PIXELS: Figure = counter("refmill_pixels", &[], "Pixels, as stored, of ended jobs whose header was read");
/// Bytes out.
pub const ARTIFACT_BYTES: Figure = counter(
    "refmill_artifact_bytes",
    &[("kind", "`image`, `repaired`, `tensors`, `thumbnail_before`, `thumbnail_after`")],
    "Bytes of published artifacts",
);
/// Replaced workers.
pub const RECYCLES: Figure =
    counter("refmill_worker_recycles", &[], "Workers replaced or killed for their memory; the log says which, and why");
/// Workers that are over their mark and stay.
pub const KEPT: Figure = counter(
    "refmill_worker_recycles_refused",
    &[],
    "Workers over their mark that were kept: another would be no better",
);
/// Slots without a worker.
pub const SLOTS_LOST: Figure = counter("refmill_slots_lost", &[], "Slots whose worker could not be replaced");
/// Confinement that does not hold.
pub const SANDBOX_GAP: Figure = gauge(
    "refmill_sandbox_gap",
    &[("layer", "`privileges`, `syscalls`, `files`, `self_test`, `namespaces`, `memory`")],
    "1 where a layer of the confinement does not hold whole, or is off, on a device",
);
/// What is demanded of it.
pub const SANDBOX_POLICY: Figure =
    gauge("refmill_sandbox_policy", &[("policy", "`strict`, `standard`, `off`")], "1 for the policy in force");
/// Memory of the supervisor.
pub const OWN_MEMORY: Figure = gauge(
    "refmill_supervisor_memory_bytes",
    &[("source", "`statm`: anonymous pages by the kernel's counters")],
    "Memory of the supervisor itself",
);

/// Every figure, in the order in which people read them.
pub const ALL: &[Figure] = &[
    BUILD,
    QUEUE_JOBS,
    QUEUE_OLDEST,
    TENANT_JOBS,
    TENANT_MEMORY,
    JOBS,
    REJECTS,
    RETRIES,
    LEASES_LOST,
    WAIT,
    TAKEN,
    STAGE,
    FINDINGS,
    UPLOADS,
    INPUT_BYTES,
    PIXELS,
    ARTIFACT_BYTES,
    RECYCLES,
    KEPT,
    SLOTS_LOST,
    SANDBOX_GAP,
    SANDBOX_POLICY,
    OWN_MEMORY,
];

/// The list as a table in Markdown.
#[must_use]
pub fn reference() -> String {
    let mut text = String::from("| name | kind | labels | meaning |\n| --- | --- | --- | --- |\n");
    for Figure { name, kind, labels, help } in ALL {
        let ending = if *kind == Kind::Counter { "_total" } else { "" };
        let labels: Vec<String> = labels.iter().map(|(label, words)| format!("`{label}`: {words}")).collect();
        // Writing to a String cannot fail.
        writeln!(text, "| `{name}{ending}` | {} | {} | {help} |", kind.as_str(), labels.join("; ")).ok();
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn published_list_is_the_programs_own() {
        let page = include_str!("../../../docs/metrics.md");
        let (_, rest) = page.split_once("<!-- figures:begin -->\n").unwrap();
        let (table, _) = rest.split_once("<!-- figures:end -->").unwrap();
        assert_eq!(table, reference(), "print it with `refmill metrics`");
    }

    #[test]
    fn every_name_is_there_once_and_says_its_unit() {
        let names: BTreeSet<&str> = ALL.iter().map(|figure| figure.name).collect();
        assert_eq!(names.len(), ALL.len());
        let sized = |figure: &&Figure| figure.kind == Kind::Histogram && !figure.name.ends_with("_seconds");
        assert_eq!(ALL.iter().filter(sized).count(), 0);
    }
}
