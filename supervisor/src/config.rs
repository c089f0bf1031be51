//! `refmill.toml`: what an operator has decided, read once into checked types. A key that is not known is an error, and
//! so is a value outside its range; the error names file, line, key, value and what the key takes.
//!
//! [`keys`] is the one list of keys. Checks, `refmill config init`, `refmill config keys` and `docs/operate.md` all come
//! from it, and a test holds it to the types here.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use refmill::finding::FindingCode;
use refmill::job::{ColourOptions, Intent};
use refmill::limits::Limits;
use refmill::policy::{Action, Policy};
use serde::{Deserialize, Serialize};

use crate::pool::posture::SandboxPolicy;
use crate::pool::{Deadlines, Rules, WatermarkPolicy};
use crate::queue::sqlite::Durability;
use crate::queue::tenant::{Class, Tenant};
use crate::queue::{Retention, RetryPolicy};
use crate::recipe::TextError;

mod check;
mod diff;
mod http;
pub mod keys;
mod log;
pub mod sections;
mod store;
mod text;

pub use diff::{Change, changes};
pub use http::{HttpConfig, RoleName, TokenConfig};
pub use log::{LogConfig, LogFormat, LogLevel};
pub use store::StoreConfig;
pub use text::{example, reference};

/// Longest configuration file, in bytes.
pub const MAX_CONFIG_BYTES: u64 = 1 << 20;
const MIB: u64 = 1 << 20;
const DAY_MS: i64 = 86_400_000;

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read configuration {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file is too long to be one.
    #[error("configuration {} has over {MAX_CONFIG_BYTES} bytes, the limit", path.display())]
    Long {
        /// The file.
        path: PathBuf,
    },
    /// The text says something that cannot be.
    #[error(transparent)]
    Text(#[from] TextError),
}

/// All that a configuration says, or leaves at its default.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The queue.
    pub queue: QueueConfig,
    /// Where artifacts go.
    pub output: OutputConfig,
    /// What is done about findings.
    pub policy: PolicyConfig,
    /// How colours are converted.
    pub colour: ColourConfig,
    /// The bounds of one image.
    pub limits: Limits,
    /// When workers are recycled by their memory.
    pub watermark: WatermarkPolicy,
    /// How long workers may take for what.
    pub deadlines: Deadlines,
    /// When a job is tried again.
    pub retry: RetryPolicy,
    /// How long jobs are kept that are over.
    pub retention: RetentionConfig,
    /// The devices, and how many workers are on each; one, chosen by itself, where there is none.
    #[serde(rename = "slot")]
    pub slots: Vec<SlotConfig>,
    /// How workers are confined.
    pub sandbox: SandboxConfig,
    /// How an S3 server is reached.
    pub store: StoreConfig,
    /// The HTTP server.
    pub http: HttpConfig,
    /// Who shares the queue; one tenant without caps where there is none.
    #[serde(rename = "tenant")]
    pub tenants: Vec<TenantConfig>,
    /// What the server says.
    pub log: LogConfig,
}

/// The queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct QueueConfig {
    /// The file, or the address of a stream.
    pub path: PathBuf,
    /// What a commit of the server survives.
    pub durability: Durability,
    /// How long a lease lasts without a heartbeat, in seconds.
    pub lease_s: u32,
    /// How long jobs in hand may take once the server is asked to end, in seconds.
    pub grace_s: u32,
    /// Who refmill is to the server of a stream.
    pub nats: NatsConfig,
}

/// Who refmill is to the server of a queue in a stream.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NatsConfig {
    /// The user.
    pub user: Option<String>,
    /// A file with the user's password.
    pub password_file: Option<PathBuf>,
    /// A file with a token.
    pub token_file: Option<PathBuf>,
    /// A `.creds` file.
    pub credentials: Option<PathBuf>,
    /// Certificates in PEM that are trusted beside the system's.
    pub ca: Option<PathBuf>,
}

/// Where artifacts go.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OutputConfig {
    /// The folder.
    pub folder: PathBuf,
}

/// What is done about findings.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PolicyConfig {
    /// Whether every defect that `findings` does not name is rejected.
    pub strict: bool,
    /// Actions by code.
    pub findings: BTreeMap<String, Action>,
}

/// How colours are converted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ColourConfig {
    /// The rendering intent.
    pub intent: Intent,
    /// Black point compensation.
    pub black_point_compensation: bool,
}

/// How long jobs are kept that are over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RetentionConfig {
    /// Done and cancelled ones, in days.
    pub done_days: u16,
    /// Dead ones, in days.
    pub dead_days: u16,
}

/// A device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SlotConfig {
    /// `auto`, `cpu`, or the UUID of a GPU or a MIG instance.
    pub device: String,
    /// Workers on it; one a core on the CPU and one on a GPU where it is not said.
    pub workers: Option<u16>,
}

/// How workers are confined.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SandboxConfig {
    /// How far they must be, or none is started.
    pub policy: Option<SandboxLevel>,
    /// Most host memory of one worker, in MiB.
    pub worker_memory_mib: Option<u32>,
}

/// What a file may ask of the confinement. To have none is asked on the command line, each time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SandboxLevel {
    /// Every layer.
    Strict,
    /// What the machine lets.
    Standard,
}

/// Who shares the queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TenantConfig {
    /// Its name.
    pub name: String,
    /// Who goes first.
    #[serde(default = "burstable")]
    pub class: Class,
    /// Its share beside the other weights.
    #[serde(default = "one")]
    pub weight: u32,
    /// Most jobs in hand; 48 for a guaranteed and 6 for a burstable tenant where it is not said.
    pub max_concurrency: Option<u32>,
    /// Most device memory of the jobs in hand; 12 GiB and 4 GiB where it is not said.
    pub gpu_memory_mib: Option<u64>,
    /// Most jobs that wait.
    #[serde(default = "many")]
    pub max_queued: u64,
}

fn burstable() -> Class {
    Class::Burstable
}

fn one() -> u32 {
    1
}

fn many() -> u64 {
    100_000
}

impl Default for QueueConfig {
    fn default() -> Self {
        let nats = NatsConfig::default();
        Self { path: "refmill.db".into(), durability: Durability::Process, lease_s: 30, grace_s: 30, nats }
    }
}

impl Default for OutputConfig {
    fn default() -> Self {
        Self { folder: "out".into() }
    }
}

impl Default for ColourConfig {
    fn default() -> Self {
        let ColourOptions { intent, black_point_compensation } = ColourOptions::default();
        Self { intent, black_point_compensation }
    }
}

impl Default for RetentionConfig {
    fn default() -> Self {
        Self { done_days: 7, dead_days: 30 }
    }
}

impl Config {
    /// The configuration in a file.
    ///
    /// # Errors
    /// [`ConfigError`]
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let failed = |source| ConfigError::Read { path: path.to_owned(), source };
        let mut text = String::new();
        let bytes = File::open(path).and_then(|file| file.take(MAX_CONFIG_BYTES + 1).read_to_string(&mut text));
        if bytes.map_err(failed)? as u64 > MAX_CONFIG_BYTES {
            return Err(ConfigError::Long { path: path.to_owned() });
        }
        Ok(Self::parse(&path.display().to_string(), &text)?)
    }

    /// The configuration in a file, and the defaults without one.
    ///
    /// # Errors
    /// [`ConfigError`]
    pub fn load(path: Option<&Path>) -> Result<Self, ConfigError> {
        path.map_or_else(|| Ok(Self::default()), Self::read)
    }

    /// Reads a configuration; `file` is what errors call the text.
    ///
    /// # Errors
    /// The first error with its place.
    pub fn parse(file: &str, text: &str) -> Result<Self, TextError> {
        check::parse(file, text)
    }

    /// The effective configuration, as it would stand in a file.
    #[must_use]
    pub fn to_toml(&self) -> String {
        // Tables, numbers and texts: it always serialises.
        toml::to_string_pretty(self).unwrap_or_default()
    }

    /// The same with what a running server takes of `new`.
    #[must_use]
    pub fn with_live(mut self, new: &Self) -> Self {
        self.queue.grace_s = new.queue.grace_s;
        self.policy.clone_from(&new.policy);
        self.retry = new.retry;
        self.retention = new.retention;
        self.tenants.clone_from(&new.tenants);
        self
    }

    /// What holds for all workers.
    #[must_use]
    pub fn rules(&self) -> Rules {
        Rules { deadlines: self.deadlines.clone(), watermark: self.watermark }
    }

    /// The tenants' terms. Without a GPU among the devices no quota of its memory holds.
    #[must_use]
    pub fn tenants(&self, with_gpu: bool) -> Vec<Tenant> {
        if self.tenants.is_empty() {
            return vec![Tenant::open(crate::queue::tenant::DEFAULT)];
        }
        let terms = |tenant: &TenantConfig| {
            let terms = tenant.terms();
            Tenant { device_bytes: terms.device_bytes.filter(|_| with_gpu), ..terms }
        };
        self.tenants.iter().map(terms).collect()
    }
}

impl TenantConfig {
    fn terms(&self) -> Tenant {
        let (concurrency, mib) = match self.class {
            Class::Guaranteed => (48, 12 * 1_024),
            Class::Burstable => (6, 4 * 1_024),
        };
        Tenant {
            name: self.name.clone(),
            class: self.class,
            weight: self.weight,
            max_queued: Some(self.max_queued),
            max_running: Some(self.max_concurrency.unwrap_or(concurrency)),
            device_bytes: Some(self.gpu_memory_mib.unwrap_or(mib).saturating_mul(MIB)),
        }
    }
}

impl PolicyConfig {
    /// The same in the words of the contract. Names of no finding are left out; [`Config::parse`] lets none through.
    #[must_use]
    pub fn policy(&self) -> Policy {
        let code = |name: &String| FindingCode::ALL.iter().copied().find(|code| code.as_str() == name);
        let actions = self.findings.iter().filter_map(|(name, action)| Some((code(name)?, *action)));
        Policy { strict: self.strict, actions: actions.collect() }
    }
}

impl From<ColourConfig> for ColourOptions {
    fn from(colour: ColourConfig) -> Self {
        let ColourConfig { intent, black_point_compensation } = colour;
        Self { intent, black_point_compensation }
    }
}

impl From<SandboxLevel> for SandboxPolicy {
    fn from(level: SandboxLevel) -> Self {
        match level {
            SandboxLevel::Strict => Self::Strict,
            SandboxLevel::Standard => Self::Standard,
        }
    }
}

impl From<RetentionConfig> for Retention {
    fn from(retention: RetentionConfig) -> Self {
        let ms = |days: u16| i64::from(days).saturating_mul(DAY_MS);
        Self { done_ms: ms(retention.done_days), dead_ms: ms(retention.dead_days) }
    }
}

#[cfg(test)]
mod tests;
