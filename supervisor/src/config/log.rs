//! `[log]`: what `serve` says on standard error, and for whom.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::keys::{Key, Takes, fixed};

/// What the server says.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LogConfig {
    /// For whom it is written.
    pub format: LogFormat,
    /// The least that is said.
    pub level: LogLevel,
}

/// For whom lines are written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// People: the bare sentence
    #[default]
    Text,
    /// Programs: one JSON object a line, with time, level, and what the sentence is about
    Json,
}

/// The least that is said.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// What ends the server.
    Error,
    /// What somebody should see to: rejected images, lost workers.
    Warn,
    /// Every job, every worker that is replaced.
    #[default]
    Info,
    /// Claims and releases too.
    Debug,
}

/// The keys of the table.
pub(super) const KEYS: &[Key] = &[
    fixed(
        "log.format",
        Takes::OneOf(&["text", "json"]),
        "`text` for people: the bare sentence, without a time, which a journal adds. `json` for programs: one object a \
         line.",
    ),
    fixed(
        "log.level",
        Takes::OneOf(&["error", "warn", "info", "debug"]),
        "The least that is said. `warn` has rejected images and lost workers, `info` every job too, `debug` every \
         claim.",
    ),
];
