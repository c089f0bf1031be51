//! Every key of the configuration: what it takes, what it means, and whether a running server takes a new value.

use super::Config;
use crate::queue::tenant::{MAX_NAME, MAX_WEIGHT};

/// One key.
#[derive(Debug, Clone, Copy)]
pub struct Key {
    /// Where it stands: its tables and its name, with dots. Of an array of tables the name alone, `*` for any name.
    pub path: &'static str,
    /// What it takes.
    pub takes: Takes,
    /// What stands in the example where the default is that nothing is said.
    pub example: Option<&'static str>,
    /// What it means.
    pub about: &'static str,
    /// Whether SIGHUP brings a new value into force.
    pub live: bool,
}

/// What a key takes.
#[derive(Debug, Clone, Copy)]
pub enum Takes {
    /// A whole number of this range.
    Number(u64, u64),
    /// `true` or `false`.
    Switch,
    /// A text that is not empty: what it is.
    Text(&'static str),
    /// One of these texts.
    OneOf(&'static [&'static str]),
}

const DAY_MS: u64 = 86_400_000;
const BYTES: u64 = 1 << 40;
const MIB: u64 = 1 << 20;
const NARROW: u64 = u32::MAX as u64;

pub(super) const fn fixed(path: &'static str, takes: Takes, about: &'static str) -> Key {
    Key { path, takes, example: None, about, live: false }
}

pub(super) const fn live(path: &'static str, takes: Takes, about: &'static str) -> Key {
    Key { path, takes, example: None, about, live: true }
}

pub(super) const fn with(key: Key, example: &'static str) -> Key {
    Key { example: Some(example), ..key }
}

/// Every key, those of one table together.
pub fn all() -> impl Iterator<Item = &'static Key> {
    KEYS.iter().chain(super::http::KEYS).chain(super::log::KEYS)
}

/// The keys of the tables that have no file of their own.
const KEYS: &[Key] = &[
    fixed(
        "queue.path",
        Takes::Text("a path, or nats://host:port/stream"),
        "The file; as all paths here, from the working folder on. Or a JetStream stream, which several supervisors share; \
         `tls://` where the connection must be encrypted.",
    ),
    fixed(
        "queue.durability",
        Takes::OneOf(&["process", "full"]),
        "What the server's commits survive: `process` any end of a process, and a power cut may have some jobs \
         delivered again; `full` a power cut. `submit` is always `full`.",
    ),
    fixed("queue.lease_s", Takes::Number(1, 86_400), "How long a lease lasts without a heartbeat, in seconds."),
    live(
        "queue.grace_s",
        Takes::Number(0, 86_400),
        "How long jobs in hand may take once the server is asked to end, in seconds, until they are given back.",
    ),
    with(fixed("queue.nats.user", Takes::Text("a name"), "The user."), "\"refmill\""),
    with(fixed("queue.nats.password_file", Takes::Text("a path"), "A file with its password."), "\"nats.password\""),
    with(fixed("queue.nats.token_file", Takes::Text("a path"), "A file with a token."), "\"nats.token\""),
    with(
        fixed("queue.nats.credentials", Takes::Text("a path"), "A `.creds` file: a JWT and the seed that signs."),
        "\"refmill.creds\"",
    ),
    with(
        fixed("queue.nats.ca", Takes::Text("a path"), "Certificates in PEM that are trusted beside the system's."),
        "\"ca.pem\"",
    ),
    fixed("output.folder", Takes::Text("a path"), "The folder."),
    with(
        fixed(
            "slot.device",
            Takes::Text("`auto`, `cpu`, `cuda` or a UUID (GPU-... or MIG-...)"),
            "The CPU, a GPU or MIG instance as `nvidia-smi -L` lists it, or `cuda`: the first GPU that is listed.",
        ),
        "\"cpu\"",
    ),
    with(
        fixed(
            "slot.workers",
            Takes::Number(1, 256),
            "Workers on it. Where it is not said: one a core on the CPU, one on a GPU.",
        ),
        "4",
    ),
    with(live("tenant.name", Takes::Text("1 to 64 of a-z, 0-9, `_`, `-`"), "As in `submit --tenant`."), "\"studio\""),
    with(
        live(
            "tenant.class",
            Takes::OneOf(&["guaranteed", "burstable"]),
            "Guaranteed tenants go before burstable ones, by at most 8 jobs. Where it is not said: burstable.",
        ),
        "\"guaranteed\"",
    ),
    with(
        live(
            "tenant.weight",
            Takes::Number(1, MAX_WEIGHT as u64),
            "Its share of the claims beside the other weights. Where it is not said: 1.",
        ),
        "4",
    ),
    with(
        live(
            "tenant.max_concurrency",
            Takes::Number(1, 100_000),
            "Most jobs in hand at once. Where it is not said: 48 for a guaranteed tenant, 6 for a burstable one.",
        ),
        "48",
    ),
    with(
        live(
            "tenant.gpu_memory_mib",
            Takes::Number(1, BYTES >> 20),
            "Most device memory of the jobs in hand together, in MiB, each by the bound of its own limits and recipe. \
             Where it is not said: 12288 for a guaranteed tenant, 4096 for a burstable one. Holds where a slot is on a \
             GPU.",
        ),
        "12288",
    ),
    with(
        live(
            "tenant.max_queued",
            Takes::Number(1, 1_000_000_000),
            "Most jobs that wait; `submit` refuses one more with `queue_full`. Where it is not said: 100000.",
        ),
        "100000",
    ),
    live("policy.strict", Takes::Switch, "Reject every image with a defect that `policy.findings` does not name."),
    with(
        live("policy.findings.*", Takes::OneOf(&["repair", "reject", "ignore"]), "What is done about this finding."),
        "icc_corrupt = \"reject\"",
    ),
    fixed(
        "colour.intent",
        Takes::OneOf(&["perceptual", "relative_colorimetric", "saturation", "absolute_colorimetric"]),
        "The ICC rendering intent.",
    ),
    fixed("colour.black_point_compensation", Takes::Switch, "Black point compensation (ISO 18619)."),
    fixed("limits.input_bytes", Takes::Number(1, BYTES), "Encoded input, in bytes."),
    fixed("limits.width", Takes::Number(1, NARROW), "Width as stored, in pixels."),
    fixed("limits.height", Takes::Number(1, NARROW), "Height as stored, in pixels."),
    fixed("limits.pixels", Takes::Number(1, BYTES), "Width times height, in pixels."),
    fixed("limits.frames", Takes::Number(1, NARROW), "Frames or pages in the file."),
    fixed("limits.metadata_bytes", Takes::Number(1, BYTES), "One metadata block once inflated, in bytes."),
    fixed("limits.output_bytes", Takes::Number(1, BYTES), "Picture and tensors together, in bytes."),
    fixed("limits.wall_ms", Takes::Number(1, DAY_MS), "Time in the worker, in milliseconds."),
    with(
        fixed(
            "store.endpoint",
            Takes::Text("https://host:port"),
            "The server. Where it is not said: `AWS_ENDPOINT_URL_S3`, `AWS_ENDPOINT_URL`, the profile, AWS itself.",
        ),
        "\"https://minio.example:9000\"",
    ),
    fixed("store.virtual_hosted", Takes::Switch, "The bucket is part of the host's name; without it, of the path."),
    with(
        fixed(
            "store.region",
            Takes::Text("a name"),
            "The region that requests are signed for. Where it is not said: `AWS_REGION`, `AWS_DEFAULT_REGION`, the \
             profile, `us-east-1`.",
        ),
        "\"us-east-1\"",
    ),
    with(
        fixed(
            "store.profile",
            Takes::Text("a name"),
            "The profile in the files of the AWS tools. Where it is not said: `AWS_PROFILE`, else `default`. Keys in \
             the environment go before it.",
        ),
        "\"refmill\"",
    ),
    with(
        fixed(
            "store.ca",
            Takes::Text("a path"),
            "Certificates in PEM that are trusted instead of the system's. Where it is not said: `AWS_CA_BUNDLE`, the \
             profile.",
        ),
        "\"ca.pem\"",
    ),
    fixed("store.allow_http", Takes::Switch, "Allow an endpoint that is not encrypted."),
    fixed("store.requests", Takes::Number(1, 256), "How many requests run at a time."),
    with(
        fixed(
            "store.bytes_per_second",
            Takes::Number(1_024, BYTES),
            "How much goes over the wire, both ways together. Where it is not said: no bound.",
        ),
        "104857600",
    ),
    fixed("store.timeout_s", Takes::Number(1, 3_600), "How long the server may be silent, in seconds."),
    fixed(
        "store.retry_s",
        Takes::Number(0, 240),
        "For how long a request is tried again that the server could not answer, in seconds.",
    ),
    with(
        fixed(
            "sandbox.policy",
            Takes::OneOf(&["strict", "standard"]),
            "How far workers must be confined, or none is started. Where it is not said: standard.",
        ),
        "\"strict\"",
    ),
    with(
        fixed(
            "sandbox.worker_memory_mib",
            Takes::Number(64, 16_777_216),
            "Most host memory that one worker may use, in MiB. Where it is not said: what the limits allow it to need.",
        ),
        "4096",
    ),
    fixed(
        "watermark.host_bytes",
        Takes::Number(MIB, BYTES),
        "The mark for one worker's own host memory, in bytes; page-locked memory is apart. Over it, or on its way there, \
         a worker is recycled between jobs.",
    ),
    fixed("watermark.host_hard_bytes", Takes::Number(MIB, BYTES), "Over it, a worker is killed at once, in bytes."),
    fixed(
        "watermark.gpu_bytes",
        Takes::Number(MIB, BYTES),
        "The mark for one worker's memory on its GPU with its context, in bytes.",
    ),
    fixed("watermark.gpu_hard_bytes", Takes::Number(MIB, BYTES), "Over it, a worker is killed at once, in bytes."),
    fixed("watermark.sample_ms", Takes::Number(10, 600_000), "How often memory is looked at, besides after jobs."),
    fixed("watermark.consecutive", Takes::Number(1, 1_000), "Samples in a row over the mark that recycle a worker."),
    fixed(
        "watermark.horizon_jobs",
        Takes::Number(0, 1_000_000),
        "How many jobs ahead the trend of a worker's memory must cross the mark; 0 looks at no trend.",
    ),
    fixed(
        "watermark.jitter_percent",
        Takes::Number(0, 50),
        "By how much at most a worker's own mark lies under the mark, other for each.",
    ),
    fixed(
        "watermark.min_life_ms",
        Takes::Number(0, DAY_MS),
        "A worker is recycled no earlier, in milliseconds, unless halfway from the mark to the hard limit.",
    ),
    fixed(
        "deadlines.beat_ms",
        Takes::Number(1, 3_600_000),
        "How often a worker gives a sign of life, in milliseconds.",
    ),
    fixed("deadlines.missed_beats", Takes::Number(1, 10_000), "Signs of life missed in a row: the worker is killed."),
    fixed("deadlines.start_ms", Takes::Number(1, DAY_MS), "From exec to readiness, in milliseconds."),
    with(
        fixed(
            "deadlines.job_ms",
            Takes::Number(1, DAY_MS),
            "Longest that any job may take, in milliseconds, whatever its own `wall_ms` says. Where it is not said: that.",
        ),
        "120000",
    ),
    fixed("deadlines.stop_ms", Takes::Number(0, DAY_MS), "How long a worker asked to end may take, in milliseconds."),
    with(
        fixed("deadlines.stages_ms.*", Takes::Number(1, DAY_MS), "Longest that this stage may take, in milliseconds."),
        "decode = 20000",
    ),
    live(
        "retry.max_failures",
        Takes::Number(1, 1_000_000),
        "Failures of the device or of refmill until a job is buried.",
    ),
    live(
        "retry.max_crashes",
        Takes::Number(1, 1_000_000),
        "Workers that crashed under a job until it counts as poison.",
    ),
    live(
        "retry.max_losses",
        Takes::Number(1, 1_000_000),
        "Holders that vanished with a job until it counts as poison.",
    ),
    live(
        "retry.base_ms",
        Takes::Number(1, DAY_MS),
        "The first pause, in milliseconds; each further one is twice as long.",
    ),
    live("retry.most_ms", Takes::Number(1, DAY_MS), "The longest pause, in milliseconds."),
    live(
        "retention.done_days",
        Takes::Number(0, 65_535),
        "Done and cancelled jobs, in days; then the same image can be submitted again.",
    ),
    live("retention.dead_days", Takes::Number(0, 65_535), "Dead jobs, in days."),
];

const _: () = assert!(MAX_NAME == 64, "tenant.name tells its length");

impl Takes {
    /// What it takes, in words.
    #[must_use]
    pub fn shown(&self) -> String {
        match self {
            Self::Number(least, most) => format!("a whole number from {least} to {most}"),
            Self::Switch => "true or false".into(),
            Self::Text(what) => (*what).into(),
            Self::OneOf(words) => words.join(", "),
        }
    }
}

impl Key {
    /// The table that it stands in.
    #[must_use]
    pub fn section(&self) -> &'static str {
        self.path.rsplit_once('.').map_or("", |(section, _)| section)
    }

    /// Its name in that table.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.path.rsplit_once('.').map_or(self.path, |(_, name)| name)
    }

    /// Its default, where it has one, as TOML.
    #[must_use]
    pub fn default(&self) -> Option<String> {
        let defaults = toml::Value::try_from(Config::default()).ok()?;
        let mut value = &defaults;
        for name in self.path.split('.') {
            value = value.get(name)?;
        }
        (!value.is_table() && !value.is_array()).then(|| value.to_string())
    }
}

/// The key at this place, if there is one; places of arrays without their numbers.
#[must_use]
pub fn find(path: &str) -> Option<&'static Key> {
    let any = path.rsplit_once('.').map(|(section, _)| format!("{section}.*"));
    all().find(|key| key.path == path || Some(key.path) == any.as_deref())
}
