//! What a store answers when it does not do what was asked.

use std::error::Error;

use refmill::failure::truncate_utf8;

/// Longest part of a server's answer that stands in a message, in bytes.
const MAX_ANSWER: usize = 200;

/// What kind of no it is: decides what is done about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// No such bucket, object or file.
    NotFound,
    /// The credentials are not known, or do not suffice.
    Denied,
    /// The object is another one than was asked for by its ETag.
    Changed,
    /// Something is there that is not to be replaced.
    Exists,
    /// The server does not know what was asked.
    Unsupported,
    /// No connection, no answer in time, or a server that cannot answer now; tried again until time was up.
    Unavailable,
    /// The user wants to stop.
    Interrupted,
    /// Anything else: trying again would end the same.
    Refused,
}

/// Why something could not be listed, read or written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct StoreError {
    /// What kind of no it is.
    pub kind: Kind,
    /// What was tried, and what was answered.
    pub message: String,
}

impl StoreError {
    /// An error of this kind: what was tried, and why not.
    #[must_use]
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    /// The user wants to stop.
    #[must_use]
    pub fn interrupted() -> Self {
        Self::new(Kind::Interrupted, "interrupted")
    }

    /// The same with what was tried in front.
    #[must_use]
    pub fn about(self, what: &str) -> Self {
        Self { message: format!("{what}: {}", self.message), ..self }
    }

    /// What a status and the body that came with it mean.
    #[must_use]
    pub fn from_status(status: u16, body: &str) -> Self {
        let kind = match status {
            404 => Kind::NotFound,
            401 | 403 => Kind::Denied,
            304 | 412 => Kind::Changed,
            501 => Kind::Unsupported,
            408 | 409 | 429 | 500..=599 => Kind::Unavailable,
            _ => Kind::Refused,
        };
        let message = match (element(body, "Code"), element(body, "Message")) {
            (Some(code), Some(message)) => format!("the server says {status} {code}: {message}"),
            (Some(code), None) => format!("the server says {status} {code}"),
            _ => format!("the server says {status}"),
        };
        Self::new(kind, message)
    }

    /// What an error of the client library means.
    #[must_use]
    pub fn from_client(error: &object_store::Error) -> Self {
        use object_store::Error as Client;
        let kind = match error {
            Client::NotFound { .. } => Kind::NotFound,
            Client::AlreadyExists { .. } => Kind::Exists,
            Client::Precondition { .. } | Client::NotModified { .. } => Kind::Changed,
            Client::PermissionDenied { .. } | Client::Unauthenticated { .. } => Kind::Denied,
            Client::NotImplemented { .. } => Kind::Unsupported,
            Client::Generic { .. } => {
                return status_within(error).unwrap_or_else(|| Self::new(Kind::Unavailable, innermost(error)));
            }
            _ => Kind::Refused,
        };
        status_within(error).map_or_else(|| Self::new(kind, innermost(error)), |said| Self { kind, ..said })
    }
}

/// What the server said, where it said anything. The client's own type for it is not public; its text is.
fn status_within(error: &object_store::Error) -> Option<StoreError> {
    let text = last(error).to_string();
    let said = text.strip_prefix("Server returned non-2xx status code: ")?;
    let status = said.get(..3)?.parse().ok()?;
    Some(StoreError::from_status(status, said))
}

/// The reason below all that only say where it was noticed.
#[must_use]
pub fn innermost(error: &(dyn Error + 'static)) -> String {
    clean(&last(error).to_string())
}

fn last<'a>(error: &'a (dyn Error + 'static)) -> &'a (dyn Error + 'static) {
    let mut last = error;
    while let Some(next) = last.source() {
        last = next;
    }
    last
}

/// The text of the first element of this name: an error's body is small, and nothing else of it is of use.
fn element(body: &str, name: &str) -> Option<String> {
    let rest = body.split_once(&format!("<{name}>"))?.1;
    let text = rest.split_once(&format!("</{name}>"))?.0;
    Some(clean(text))
}

/// One line without control characters, and not a long one.
fn clean(text: &str) -> String {
    let mut text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    truncate_utf8(&mut text, MAX_ANSWER);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_decides_the_kind_and_the_bodys_code_is_told() {
        let body = "<Error><Code>NoSuchBucket</Code><Message>no\nsuch</Message></Error>";
        let error = StoreError::from_status(404, body);
        assert_eq!((error.kind, error.message.as_str()), (Kind::NotFound, "the server says 404 NoSuchBucket: no such"));
        assert_eq!(StoreError::from_status(403, "").message, "the server says 403");
        let kinds = [412, 409, 503, 501, 400].map(|status| StoreError::from_status(status, "").kind);
        let expected = [Kind::Changed, Kind::Unavailable, Kind::Unavailable, Kind::Unsupported, Kind::Refused];
        assert_eq!(kinds, expected);
    }

    #[test]
    fn long_answer_is_cut() {
        let body = format!("<Code>{}</Code>", "x".repeat(5_000));
        assert!(StoreError::from_status(400, &body).message.len() < 300);
    }
}
