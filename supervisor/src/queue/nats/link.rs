//! The way to one stream: a connection, a small runtime of its own, and the few requests that the queue needs. Nothing
//! outside this module waits in any other way than by blocking its thread.

use std::fmt;
use std::time::{Duration, Instant};

use async_nats::{Client, ConnectErrorKind, ConnectOptions, HeaderMap, Message};
use bytes::Bytes;
use futures_util::StreamExt;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::runtime::{Builder, Runtime};

use super::{Access, Address};

/// How long a connection may take to come about.
const CONNECT: Duration = Duration::from_secs(10);
/// How long one request may take.
const REQUEST: Duration = Duration::from_secs(5);
/// How long a server that is away is waited for, as long as a writer waits for another one in a file.
const PATIENCE: Duration = Duration::from_secs(10);
/// The pause before a request is made again.
const PAUSE: Duration = Duration::from_millis(50);
/// Messages that are asked for at a time.
const PAGE: u32 = 1_000;
/// The first server that answers with many messages at once and forgets some by themselves.
const SERVER: (i64, i64, i64) = (2, 11, 0);
/// How the server says that somebody else was faster.
const WRONG_LAST: u64 = 10_071;
/// How the server says that there is no such stream, and no such message.
const NO_STREAM: u64 = 10_059;
const NO_MESSAGE: u64 = 10_037;
/// The consumer that counts.
const LAG: &str = "lag";
/// The number of an attempt.
const ATTEMPT: &str = "Refmill-Attempt";

/// Why the server did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// It is not there, or does not answer.
    #[error("the server does not answer: {0}")]
    Away(String),
    /// It is there, and says no.
    #[error("the server refuses: {0}")]
    Refused(String),
    /// It does not know what the queue needs.
    #[error("the server has version {found}, the queue needs {}.{} or later", SERVER.0, SERVER.1)]
    Old {
        /// Its version.
        found: String,
    },
    /// What it says cannot be.
    #[error("the server's answer cannot be read: {0}")]
    Answer(String),
    /// A setting cannot be used.
    #[error("cannot use {what}: {why}")]
    Setting {
        /// Which.
        what: &'static str,
        /// Why.
        why: String,
    },
}

/// How far a stream has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// When the stream was made: another one of the same name is another one.
    pub created: String,
    /// The last sequence.
    pub last: u64,
    /// The server's time, in milliseconds since 1970.
    pub now_ms: Option<i64>,
}

/// A message to be stored.
#[derive(Debug)]
pub struct Offer {
    /// The end of its subject, after the stream's name.
    pub subject: String,
    /// What it holds.
    pub body: Vec<u8>,
    /// Whether the server forgets it by itself after a day.
    pub fades: bool,
}

/// How an offer was answered.
#[derive(Debug, PartialEq, Eq)]
pub enum Answer {
    /// Stored, under this sequence.
    Stored(u64),
    /// Somebody else was faster; this is the last sequence.
    Behind(u64),
}

/// A stored message.
#[derive(Debug)]
pub struct Stored {
    /// Its sequence.
    pub sequence: u64,
    /// The end of its subject, after the stream's name.
    pub subject: String,
    /// The number of the attempt that stored it.
    pub attempt: Option<String>,
    /// What it holds.
    pub body: Bytes,
}

/// A stream that can be asked.
pub struct Link {
    runtime: Runtime,
    client: Client,
    stream: String,
}

impl fmt::Debug for Link {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Link").field("stream", &self.stream).finish_non_exhaustive()
    }
}

impl Link {
    /// Connects, and makes the stream where `create` says so.
    ///
    /// # Errors
    /// [`LinkError`]; `Ok(None)` where there is no such stream and none was to be made.
    pub fn open(address: &Address, access: &Access, create: bool) -> Result<Option<Self>, LinkError> {
        // Somebody else in this process may have chosen already, and then that choice holds.
        rustls::crypto::ring::default_provider().install_default().ok();
        let runtime = Builder::new_multi_thread().worker_threads(1).thread_name("queue").enable_all().build();
        let runtime = runtime.map_err(|error| LinkError::Setting { what: "a runtime", why: error.to_string() })?;
        let options = options(address, access)?;
        let client = runtime.block_on(options.connect(address.server())).map_err(|error| match error.kind() {
            ConnectErrorKind::Authentication | ConnectErrorKind::AuthorizationViolation | ConnectErrorKind::Tls => {
                LinkError::Refused(error.to_string())
            }
            _ => LinkError::Away(error.to_string()),
        })?;
        let (major, minor, patch) = SERVER;
        if !client.is_server_compatible(major, minor, patch) {
            return Err(LinkError::Old { found: client.server_info().version });
        }
        let link = Self { runtime, client, stream: address.stream.clone() };
        Ok(link.prepare(create)?.then_some(link))
    }

    /// Sees to it that the stream and the counting consumer are there. Returns whether they are.
    fn prepare(&self, create: bool) -> Result<bool, LinkError> {
        let stream = &self.stream;
        let info = self.asked(&format!("STREAM.INFO.{stream}"), &Value::Null)?;
        let config = match (code(&info), create) {
            (Some(NO_STREAM), false) => return Ok(false),
            (Some(NO_STREAM), true) => {
                let config = json!({
                    "name": stream, "subjects": [format!("{stream}.>")], "storage": "file", "retention": "limits",
                    "discard": "old", "max_msgs_per_subject": 1, "allow_direct": true, "allow_msg_ttl": true,
                    "compression": "s2", "num_replicas": 1,
                });
                // Two that make it at once make the same one.
                fine(self.asked(&format!("STREAM.CREATE.{stream}"), &config)?)?
            }
            _ => fine(info)?,
        };
        let config = config.get("config").cloned().unwrap_or_default();
        let wrong = [("max_msgs_per_subject", json!(1)), ("allow_direct", json!(true)), ("allow_msg_ttl", json!(true))];
        if let Some((key, value)) = wrong.iter().find(|(key, value)| config.get(*key) != Some(value)) {
            return Err(LinkError::Refused(format!(
                "stream {stream} is no queue of refmill: its {key} is not {value}"
            )));
        }
        let consumer = json!({
            "stream_name": stream,
            "config": {
                "durable_name": LAG, "name": LAG, "ack_policy": "explicit", "deliver_policy": "all",
                "filter_subject": format!("{stream}.job.live.*"),
            },
        });
        fine(self.asked(&format!("CONSUMER.CREATE.{stream}.{LAG}.{stream}.job.live.*"), &consumer)?)?;
        Ok(true)
    }

    /// How far the stream has come, by the server that leads it.
    ///
    /// # Errors
    /// [`LinkError`]
    pub fn head(&self) -> Result<Head, LinkError> {
        #[derive(Deserialize)]
        struct Info {
            created: String,
            ts: Option<String>,
            state: State,
        }
        #[derive(Deserialize)]
        struct State {
            last_seq: u64,
        }
        let info = fine(self.asked(&format!("STREAM.INFO.{}", self.stream), &Value::Null)?)?;
        let info: Info = serde_json::from_value(info).map_err(|error| LinkError::Answer(error.to_string()))?;
        Ok(Head { created: info.created, last: info.state.last_seq, now_ms: info.ts.as_deref().and_then(milliseconds) })
    }

    /// Offers a message as the one after `last`. An error leaves open whether it was stored.
    ///
    /// # Errors
    /// [`LinkError`]
    pub fn offer(&self, last: u64, attempt: &str, offer: &Offer) -> Result<Answer, LinkError> {
        let mut headers = HeaderMap::new();
        headers.insert("Nats-Expected-Last-Sequence", last.to_string());
        headers.insert(ATTEMPT, attempt);
        if offer.fades {
            headers.insert("Nats-TTL", "24h");
        }
        let subject = format!("{}.{}", self.stream, offer.subject);
        let request = self.client.request_with_headers(subject, headers, offer.body.clone().into());
        let answer = self.within(request)?;
        let answer: Value =
            serde_json::from_slice(&answer.payload).map_err(|error| LinkError::Answer(error.to_string()))?;
        if code(&answer) == Some(WRONG_LAST) {
            // "wrong last sequence: 7"; where that is not a number, the head is asked.
            let told = answer.pointer("/error/description").and_then(Value::as_str).unwrap_or_default();
            let told = told.rsplit(' ').next().and_then(|text| text.parse().ok());
            return Ok(Answer::Behind(told.map_or_else(|| self.head().map(|head| head.last), Ok)?));
        }
        let answer = fine(answer)?;
        let sequence = answer.get("seq").and_then(Value::as_u64);
        sequence.map(Answer::Stored).ok_or_else(|| LinkError::Answer(answer.to_string()))
    }

    /// Up to a page of what is stored from `first` on, in order.
    ///
    /// # Errors
    /// [`LinkError`]
    pub fn read(&self, first: u64) -> Result<Vec<Stored>, LinkError> {
        let asked = json!({"seq": first, "batch": PAGE, "next_by_subj": format!("{}.>", self.stream)});
        self.patiently(|| {
            let page = async {
                let away = |error: &dyn fmt::Display| LinkError::Away(error.to_string());
                let inbox = self.client.new_inbox();
                let mut answers = self.client.subscribe(inbox.clone()).await.map_err(|error| away(&error))?;
                let subject = format!("$JS.API.DIRECT.GET.{}", self.stream);
                let sent = self.client.publish_with_reply(subject, inbox, asked.to_string().into());
                sent.await.map_err(|error| away(&error))?;
                let mut page = Vec::new();
                loop {
                    let next = tokio::time::timeout(REQUEST, answers.next()).await;
                    let message = next.map_err(|error| away(&error))?.ok_or_else(|| away(&"the connection ended"))?;
                    match message.status.map(|status| status.as_u16()) {
                        None => page.push(self.stored(message)?),
                        // The end of the page, and nothing there.
                        Some(204 | 404) => return Ok(page),
                        Some(503) => return Err(away(&"nobody answers for the stream")),
                        Some(_) => return Err(LinkError::Refused(message.description.unwrap_or_default())),
                    }
                }
            };
            self.runtime.block_on(page)
        })
    }

    /// Whether the server that leads the stream has anything from `first` on. Others may be behind it.
    ///
    /// # Errors
    /// [`LinkError`]
    pub fn has_from(&self, first: u64) -> Result<bool, LinkError> {
        let asked = json!({"seq": first, "next_by_subj": format!("{}.>", self.stream)});
        let answer = self.asked(&format!("STREAM.MSG.GET.{}", self.stream), &asked)?;
        if code(&answer) == Some(NO_MESSAGE) {
            return Ok(false);
        }
        fine(answer).map(|_| true)
    }

    /// Asks that a subject's messages before `sequence` are removed, and does not wait for it.
    pub fn forget(&self, subject: &str, sequence: u64) {
        let asked = json!({"filter": format!("{}.{subject}", self.stream), "seq": sequence});
        let to = format!("$JS.API.STREAM.PURGE.{}", self.stream);
        // What stays is seen to by retention.
        self.runtime
            .block_on(self.client.publish_with_reply(to, self.client.new_inbox(), asked.to_string().into()))
            .ok();
    }

    /// The same, and waits.
    ///
    /// # Errors
    /// [`LinkError`]
    pub fn remove(&self, subject: &str, sequence: u64) -> Result<(), LinkError> {
        let asked = json!({"filter": format!("{}.{subject}", self.stream), "seq": sequence});
        fine(self.asked(&format!("STREAM.PURGE.{}", self.stream), &asked)?).map(drop)
    }

    fn stored(&self, message: Message) -> Result<Stored, LinkError> {
        let headers = message.headers.unwrap_or_default();
        let text = |name: &str| headers.get(name).map(|value| value.as_str().to_owned());
        let (sequence, subject) = (text("Nats-Sequence"), text("Nats-Subject").unwrap_or_default());
        let sequence = sequence.and_then(|text| text.parse().ok());
        let end = subject.strip_prefix(&self.stream).and_then(|end| end.strip_prefix('.'));
        match (sequence, end) {
            (Some(sequence), Some(end)) => {
                Ok(Stored { sequence, subject: end.to_owned(), attempt: text(ATTEMPT), body: message.payload })
            }
            _ => Err(LinkError::Answer(format!("a message of {subject}"))),
        }
    }

    /// An answer of JetStream's own interface, waited for.
    fn asked(&self, what: &str, body: &Value) -> Result<Value, LinkError> {
        let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        self.patiently(|| {
            let answer = self.within(self.client.request(format!("$JS.API.{what}"), body.clone().into()))?;
            serde_json::from_slice(&answer.payload).map_err(|error| LinkError::Answer(error.to_string()))
        })
    }

    fn within(
        &self,
        request: impl Future<Output = Result<Message, async_nats::RequestError>>,
    ) -> Result<Message, LinkError> {
        self.runtime.block_on(request).map_err(|error| LinkError::Away(error.to_string()))
    }

    /// Asks again while the server is away. Only for questions: what changes anything is asked once.
    fn patiently<T>(&self, ask: impl Fn() -> Result<T, LinkError>) -> Result<T, LinkError> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match ask() {
                Err(LinkError::Away(_)) if Instant::now() < deadline => std::thread::sleep(PAUSE),
                answer => return answer,
            }
        }
    }
}

fn options(address: &Address, access: &Access) -> Result<ConnectOptions, LinkError> {
    let mut options = ConnectOptions::new()
        .name("refmill")
        .connection_timeout(CONNECT)
        .request_timeout(Some(REQUEST))
        .require_tls(address.tls)
        // A server that was restarted is found again soon.
        .reconnect_delay_callback(|attempts| PAUSE * u32::try_from(attempts.min(20)).unwrap_or(20));
    if let Some(credentials) = &access.credentials {
        let refused =
            |error: std::io::Error| LinkError::Setting { what: "the NATS credentials", why: error.to_string() };
        options = options.credentials(credentials).map_err(refused)?;
    }
    if let Some((user, password)) = &access.user {
        options = options.user_and_password(user.clone(), password.clone());
    }
    if let Some(token) = &access.token {
        options = options.token(token.clone());
    }
    if let Some(ca) = &access.ca {
        options = options.add_root_certificates(ca.clone());
    }
    Ok(options)
}

/// The number of the error in an answer of JetStream.
fn code(answer: &Value) -> Option<u64> {
    answer.pointer("/error/err_code").and_then(Value::as_u64)
}

fn fine(answer: Value) -> Result<Value, LinkError> {
    match answer.get("error") {
        None => Ok(answer),
        Some(error) => {
            let told = error.get("description").and_then(Value::as_str).unwrap_or("without a reason");
            // The leader changes, or the disk is not read yet.
            let later = error.get("code").and_then(Value::as_u64) == Some(503);
            Err(if later { LinkError::Away(told.into()) } else { LinkError::Refused(told.into()) })
        }
    }
}

/// RFC 3339 in UTC, as the server writes it, in milliseconds since 1970.
fn milliseconds(text: &str) -> Option<i64> {
    let number = |range: std::ops::Range<usize>| text.get(range)?.parse::<i64>().ok();
    let (year, month, day) = (number(0..4)?, number(5..7)?, number(8..10)?);
    let seconds = number(11..13)? * 3_600 + number(14..16)? * 60 + number(17..19)?;
    let fraction: String = text.get(19..)?.trim_start_matches('.').chars().take_while(char::is_ascii_digit).collect();
    let fraction = format!("{fraction:0<3}").get(..3)?.parse::<i64>().ok()?;
    // Days since 1970 of the proleptic Gregorian calendar, with years that begin in March.
    let (year, month) = if month <= 2 { (year - 1, month + 9) } else { (year, month - 3) };
    let days = year * 365 + year / 4 - year / 100 + year / 400 + (month * 153 + 2) / 5 + day - 1 - 719_468;
    Some((days * 86_400 + seconds) * 1_000 + fraction)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_of_the_server_is_read() {
        assert_eq!(milliseconds("1970-01-01T00:00:00Z"), Some(0));
        assert_eq!(milliseconds("2026-12-07T09:43:13.546788272Z"), Some(1_796_636_593_546));
        assert_eq!(milliseconds("2024-02-29T23:59:59.5Z"), Some(1_709_251_199_500));
        assert_eq!(milliseconds("yesterday"), None);
    }
}
