//! `[http]`: where the server of `refmill serve` listens, what bounds it, and whose tokens it knows.

use std::net::SocketAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::Config;
use super::check::Fault;
use super::keys::{Key, Takes, fixed, with};
use super::sections::Section;
use crate::queue::tenant;

/// Where the server listens; nowhere unless it is said.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HttpConfig {
    /// An address.
    pub listen: Option<String>,
    /// Whether other machines may reach it.
    pub allow_remote: bool,
    /// A Unix socket.
    pub socket: Option<PathBuf>,
    /// Most connections at a time.
    pub connections: u16,
    /// Longest body but for an image's, in bytes.
    pub body_bytes: u32,
    /// How long a request may take, in seconds.
    pub timeout_s: u16,
    /// Who may ask.
    #[serde(rename = "token")]
    pub tokens: Vec<TokenConfig>,
}

/// A bearer token.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TokenConfig {
    /// What it is for.
    pub role: RoleName,
    /// Whose jobs, where it is a tenant's.
    pub tenant: Option<String>,
    /// The file that holds it.
    pub file: Option<PathBuf>,
    /// The variable that holds it, where no file does.
    pub variable: Option<String>,
}

/// What a token is for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RoleName {
    /// The jobs of a tenant.
    #[default]
    Tenant,
    /// Events of object stores.
    Events,
    /// Figures.
    Metrics,
    /// Everything, to look at.
    Operator,
}

impl Default for HttpConfig {
    fn default() -> Self {
        Self {
            listen: None,
            allow_remote: false,
            socket: None,
            connections: 64,
            body_bytes: 1 << 20,
            timeout_s: 60,
            tokens: Vec::new(),
        }
    }
}

pub(super) const SECTIONS: &[Section] = &[
    Section {
        name: "http",
        several: false,
        about: "The HTTP server of `serve`, which is off unless `listen` or `socket` is set. /healthz and /readyz take no \
                token, everything else does.",
    },
    Section { name: "http.token", several: true, about: "A bearer token: at least 16 of A-Z, a-z, 0-9 and -._~+/=." },
];

pub(super) const KEYS: &[Key] = &[
    with(
        fixed(
            "http.listen",
            Takes::Text("ADDRESS:PORT"),
            "An address of this machine. The server does not encrypt: what other machines are to reach stands behind a \
             proxy that does.",
        ),
        "\"127.0.0.1:8420\"",
    ),
    fixed("http.allow_remote", Takes::Switch, "Allow an address that other machines reach."),
    with(
        fixed("http.socket", Takes::Text("a path"), "A Unix socket, which only the same user may connect to."),
        "\"refmill.sock\"",
    ),
    fixed("http.connections", Takes::Number(1, 4_096), "Most connections at a time; further ones wait."),
    fixed(
        "http.body_bytes",
        Takes::Number(1_024, 64 << 20),
        "Longest body of a request, in bytes; an image's own bound is `limits.input_bytes`.",
    ),
    fixed(
        "http.timeout_s",
        Takes::Number(1, 3_600),
        "How long a request may take until its answer begins, in seconds, its body included.",
    ),
    with(
        fixed(
            "http.token.role",
            Takes::OneOf(&["tenant", "events", "metrics", "operator"]),
            "What it is for: the jobs of one tenant; events of object stores, and nothing else; figures, and nothing else; or everything of \
             everybody but submissions.",
        ),
        "\"tenant\"",
    ),
    with(
        fixed("http.token.tenant", Takes::Text("a name"), "Whose jobs. Where it is not said: `default`."),
        "\"studio\"",
    ),
    with(fixed("http.token.file", Takes::Text("a path"), "The file that holds it."), "\"studio.token\""),
    with(
        fixed(
            "http.token.variable",
            Takes::Text("a name"),
            "The environment's variable that holds it, without a file.",
        ),
        "\"REFMILL_TOKEN\"",
    ),
];

/// What is wrong, and where.
pub(super) fn check(config: &Config) -> Option<Fault> {
    let http = &config.http;
    let at = |key: &str| vec![format!("http.{key}")];
    if let Some(text) = &http.listen {
        match text.parse::<SocketAddr>() {
            Err(_) => {
                let message = format!("`http.listen` is `{text}`, it takes an IP address and a port: 127.0.0.1:8420");
                return Some((at("listen"), message));
            }
            Ok(address) if !address.ip().is_loopback() && !http.allow_remote => {
                let message = format!(
                    "`http.listen` is `{text}`, which other machines reach, and nothing is encrypted there; \
                     `http.allow_remote` allows it"
                );
                return Some((at("listen"), message));
            }
            Ok(_) => {}
        }
    }
    http.tokens.iter().enumerate().find_map(|(number, token)| {
        let fault = |key: &str, message| {
            Some((vec![format!("http.token[{number}].{key}"), format!("http.token[{number}]")], message))
        };
        match &token.tenant {
            _ if token.file.is_none() && token.variable.is_none() => {
                fault("file", "`http.token` has neither `file` nor `variable`: it is nowhere".into())
            }
            Some(_) if token.role != RoleName::Tenant => {
                fault("tenant", "`http.token.tenant` says whose jobs a token is for, and its `role` is another".into())
            }
            name => {
                let name = name.as_deref().unwrap_or(tenant::DEFAULT);
                let known = config.tenants.is_empty() && name == tenant::DEFAULT
                    || config.tenants.iter().any(|tenant| tenant.name == name);
                if known || token.role != RoleName::Tenant {
                    return None;
                }
                fault("tenant", format!("`http.token.tenant` is `{name}`, which no [[tenant]] is"))
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        Config::parse("refmill.toml", text).unwrap_err().to_string()
    }

    #[test]
    fn address_that_other_machines_reach_is_refused_unless_it_is_allowed() {
        let text = "[http]\nlisten = \"0.0.0.0:8420\"\n";
        assert!(refused(text).starts_with("refmill.toml:2:10: `http.listen` is `0.0.0.0:8420`, which other machines"));
        assert!(Config::parse("", &format!("{text}allow_remote = true")).is_ok());
        assert!(Config::parse("", "[http]\nlisten = \"[::1]:0\"").is_ok());
        assert!(refused("[http]\nlisten = \"localhost:80\"").contains("it takes an IP address and a port"));
    }

    #[test]
    fn token_is_somewhere_and_for_a_tenant_that_is_there() {
        let file = "[[http.token]]\nfile = \"t\"\n";
        assert!(Config::parse("", file).is_ok());
        assert!(refused("[[http.token]]\nrole = \"events\"").contains("neither `file` nor `variable`"));
        assert!(refused(&format!("{file}tenant = \"studio\"")).contains("which no [[tenant]] is"));
        assert!(refused(&format!("{file}role = \"events\"\ntenant = \"default\"")).contains("its `role` is another"));
        assert!(refused(&format!("{file}[[tenant]]\nname = \"studio\"")).contains("is `default`, which no"));
    }
}
