//! `[store]`: how an S3 server is reached. Keys of access are no part of it: they come from where the AWS tools have
//! them.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// How an S3 server is reached. What is not said comes from the variables and the files of the AWS tools.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StoreConfig {
    /// The server.
    pub endpoint: Option<String>,
    /// Whether the bucket is part of the host's name rather than of the path.
    pub virtual_hosted: bool,
    /// The region that requests are signed for.
    pub region: Option<String>,
    /// The profile in the files of the AWS tools.
    pub profile: Option<String>,
    /// Certificates that are trusted instead of the system's.
    pub ca: Option<PathBuf>,
    /// Whether an endpoint may be one that is not encrypted.
    pub allow_http: bool,
    /// How many requests run at a time.
    pub requests: u16,
    /// How many bytes go over the wire in a second, both ways together.
    pub bytes_per_second: Option<u64>,
    /// How long the server may be silent, in seconds.
    pub timeout_s: u16,
    /// For how long a request is tried again that the server could not answer, in seconds.
    pub retry_s: u16,
}

impl Default for StoreConfig {
    fn default() -> Self {
        Self {
            endpoint: None,
            virtual_hosted: false,
            region: None,
            profile: None,
            ca: None,
            allow_http: false,
            requests: 16,
            bytes_per_second: None,
            timeout_s: 30,
            retry_s: 60,
        }
    }
}
