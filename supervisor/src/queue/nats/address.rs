//! Which stream is meant, and who asks for it.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// The port of NATS.
const PORT: u16 = 4222;
/// Longest name of a stream: it is part of every subject.
const MAX_NAME: usize = 64;

/// A stream: `nats://host:port/stream`, or `tls://` where the connection must be encrypted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// Whether the connection must be encrypted.
    pub tls: bool,
    /// The server's name or address.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// The stream's name.
    pub stream: String,
}

/// Who refmill is to the server.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Access {
    /// A user and its password.
    pub user: Option<(String, String)>,
    /// A token.
    pub token: Option<String>,
    /// The text of a `.creds` file: a JWT and the seed that signs.
    pub credentials: Option<String>,
    /// Certificates in PEM that are trusted beside the system's.
    pub ca: Option<PathBuf>,
}

// A secret stands in no message.
impl fmt::Debug for Access {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let who = match self {
            Self { credentials: Some(_), .. } => "credentials",
            Self { user: Some(_), .. } => "user",
            Self { token: Some(_), .. } => "token",
            _ => "nobody",
        };
        formatter.debug_struct("Access").field("who", &who).field("ca", &self.ca).finish()
    }
}

/// Why a text names no stream.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` names no stream: it takes nats://host:port/stream or tls://host:port/stream, the stream of \
         a-z, A-Z, 0-9, `_`, `-`, and user or password by their own settings"
)]
pub struct AddressError {
    /// As it was written, without what could be a password.
    pub text: String,
}

impl Address {
    /// Whether a text means a stream rather than a file.
    #[must_use]
    pub fn is_meant(text: &str) -> bool {
        ["nats://", "tls://"].iter().any(|scheme| text.starts_with(scheme))
    }

    /// Where the client connects.
    #[must_use]
    pub fn server(&self) -> String {
        let scheme = if self.tls { "tls" } else { "nats" };
        format!("{scheme}://{}:{}", self.host, self.port)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.server(), self.stream)
    }
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let wrong = || AddressError { text: text.rsplit_once('@').map_or(text, |(_, rest)| rest).to_owned() };
        let (scheme, rest) = text.split_once("://").ok_or_else(wrong)?;
        let tls = match scheme {
            "nats" => false,
            "tls" => true,
            _ => return Err(wrong()),
        };
        let (server, stream) = rest.split_once('/').ok_or_else(wrong)?;
        let (host, port) = match server.rsplit_once(':') {
            // An IPv6 address without a port ends in its bracket.
            Some((host, port)) if !port.ends_with(']') => (host, port.parse().map_err(|_| wrong())?),
            _ => (server, PORT),
        };
        let letter = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
        let is_name = (1..=MAX_NAME).contains(&stream.len()) && stream.bytes().all(letter);
        let is_host = !host.is_empty() && !host.contains(['@', '/', '?', '#', ' ']);
        if !is_name || !is_host {
            return Err(wrong());
        }
        Ok(Self { tls, host: host.to_owned(), port, stream: stream.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_is_read_with_and_without_a_port() {
        let read = |text: &str| text.parse::<Address>().unwrap();
        assert_eq!(read("nats://queue.internal/jobs").to_string(), "nats://queue.internal:4222/jobs");
        assert_eq!(read("tls://[::1]:5222/a_B-1").to_string(), "tls://[::1]:5222/a_B-1");
        assert_eq!(read("nats://[::1]/jobs").port, 4222);
    }

    #[test]
    fn address_that_names_no_stream_is_refused_without_its_password() {
        let texts = ["nats://host", "nats://host/", "nats://host/a.b", "nats:///q", "http://host/q", "nats://h:x/q"];
        assert!(texts.iter().all(|text| text.parse::<Address>().is_err()));
        let refused = "nats://me:secret@host/q".parse::<Address>().unwrap_err();
        assert_eq!(refused.text, "host/q");
    }

    #[test]
    fn secrets_are_not_shown() {
        let access = Access { user: Some(("me".into(), "secret".into())), ..Access::default() };
        assert!(!format!("{access:?}").contains("secret"));
    }
}
