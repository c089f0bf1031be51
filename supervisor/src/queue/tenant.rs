//! Tenants: who shares a queue, and on which terms. A job belongs to one. The terms are the configuration's; the queue
//! keeps them, so that whoever submits goes by the same.

use std::fmt;

use refmill::failure::{Code, Failure};
use serde::{Deserialize, Serialize};

/// The tenant of whoever names none, and the only one where none is configured.
pub const DEFAULT: &str = "default";

/// Longest name, in bytes.
pub const MAX_NAME: usize = 64;
/// Most tenants of one queue: a claim looks at each that has work.
pub const MAX_TENANTS: usize = 256;
/// Highest weight.
pub const MAX_WEIGHT: u32 = 1_000;

/// Who goes first among tenants whose jobs have the same priority, as far as [`super::share::LEAD`] allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// Before the others.
    Guaranteed,
    /// What they leave, and never less than its share.
    Burstable,
}

impl Class {
    /// The class as it is written.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Guaranteed => "guaranteed",
            Self::Burstable => "burstable",
        }
    }
}

/// A tenant's terms. A cap that is not set does not hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tenant {
    /// Its name, see [`is_name`].
    pub name: String,
    /// Who goes first.
    pub class: Class,
    /// Its share of the claims beside the other tenants' weights; 1 to [`MAX_WEIGHT`].
    pub weight: u32,
    /// Most jobs that wait. One more is refused.
    pub max_queued: Option<u64>,
    /// Most jobs in hand at once.
    pub max_running: Option<u32>,
    /// Most device memory of the jobs in hand together, in bytes, each by its own bound
    /// ([`super::spec::device_bytes`]).
    pub device_bytes: Option<u64>,
}

impl Tenant {
    /// A tenant without any cap.
    #[must_use]
    pub fn open(name: &str) -> Self {
        let (class, weight) = (Class::Burstable, 1);
        Self { name: name.into(), class, weight, max_queued: None, max_running: None, device_bytes: None }
    }
}

/// A tenant and what it has in the queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Standing {
    /// Its terms.
    #[serde(flatten)]
    pub tenant: Tenant,
    /// Whether the configuration names it. What one that it no longer names has left is worked on, under
    /// [`Tenant::open`]'s terms, and nothing is taken for it.
    pub configured: bool,
    /// Jobs that wait.
    pub queued: u64,
    /// Jobs in hand.
    pub leased: u64,
    /// Device memory that those may need, in bytes.
    pub device_bytes_in_use: u64,
    /// Virtual time, see [`super::share`].
    #[serde(skip)]
    pub pass: i64,
}

/// Why a job is not taken. Nothing else of its tenant or of another is touched.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Nobody of that name.
    #[error("tenant `{name}` is not configured; the queue knows {}", Names(known))]
    Unknown {
        /// As asked.
        name: String,
        /// Who is.
        known: Vec<String>,
    },
    /// Its part of the queue is full.
    #[error("tenant `{name}` has {queued} jobs queued, its cap is {cap}; submit again once some are done")]
    Full {
        /// The tenant.
        name: String,
        /// How many wait.
        queued: u64,
        /// How many may.
        cap: u64,
    },
    /// It could never run.
    #[error("the job may need {need} bytes of device memory by its limits, tenant `{name}` has a quota of {quota}")]
    Quota {
        /// The tenant.
        name: String,
        /// The most that the job can need.
        need: u64,
        /// The most that the tenant may have.
        quota: u64,
    },
}

impl Refusal {
    /// The refusal as the submission's own failure.
    #[must_use]
    pub fn failure(&self) -> Failure {
        let code = match self {
            Self::Unknown { .. } => Code::TenantUnknown,
            Self::Full { .. } => Code::QueueFull,
            Self::Quota { .. } => Code::OverQuota,
        };
        Failure::new(code, self.to_string())
    }
}

impl Standing {
    /// Whether it is what a queue begins with: the tenant of whoever names none, without caps.
    #[must_use]
    pub fn is_unset(&self) -> bool {
        self.tenant == Tenant::open(DEFAULT)
    }

    /// Whether a further job is taken that may need so much device memory.
    ///
    /// # Errors
    /// [`Refusal::Full`], [`Refusal::Quota`]
    pub fn admit(&self, need: u64) -> Result<(), Refusal> {
        let name = || self.tenant.name.clone();
        match (self.tenant.max_queued, self.tenant.device_bytes) {
            (_, Some(quota)) if need > quota => Err(Refusal::Quota { name: name(), need, quota }),
            (Some(cap), _) if self.queued >= cap => Err(Refusal::Full { name: name(), queued: self.queued, cap }),
            _ => Ok(()),
        }
    }
}

/// Whether a tenant may have this name: 1 to [`MAX_NAME`] of a-z, 0-9, `_`, `-`.
#[must_use]
pub fn is_name(text: &str) -> bool {
    let letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-".contains(&byte);
    (1..=MAX_NAME).contains(&text.len()) && text.bytes().all(letter)
}

struct Names<'a>(&'a [String]);

impl fmt::Display for Names<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// More would fill the screen.
        const SHOWN: usize = 8;
        let shown: Vec<&str> = self.0.iter().take(SHOWN).map(String::as_str).collect();
        formatter.write_str(&shown.join(", "))?;
        match self.0.len().checked_sub(SHOWN) {
            Some(more @ 1..) => write!(formatter, " and {more} more"),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_is_short_and_plain() {
        assert!(is_name("studio-7_a") && is_name(&"a".repeat(64)));
        assert!(!is_name("") && !is_name("Studio") && !is_name("a b") && !is_name("a/b") && !is_name(&"a".repeat(65)));
    }

    #[test]
    fn refusal_names_as_many_tenants_as_fit() {
        let known = (0..10).map(|number| format!("t{number}")).collect();
        let text = Refusal::Unknown { name: "x".into(), known }.to_string();
        assert!(text.ends_with("knows t0, t1, t2, t3, t4, t5, t6, t7 and 2 more"), "{text}");
    }
}
