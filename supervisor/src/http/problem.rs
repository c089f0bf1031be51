//! What the server says when it does not do what was asked: problem details (RFC 9457) with a stable code. What is
//! refmill's own matter goes to the log and not over the wire.

use axum::http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use refmill::failure::{Blame, Code, Failure};
use serde::Serialize;

use crate::queue::QueueError;

/// After how many seconds a full queue may be asked again.
const RETRY_S: u16 = 5;

/// Why a request is not answered as it was meant. Codes are never renamed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// No token, or one that nobody has.
    Unauthorized,
    /// A token that is for something else.
    Forbidden,
    /// No such path, job or artifact.
    NotFound,
    /// Another method is needed.
    MethodNotAllowed,
    /// It cannot be read.
    BadRequest,
    /// Its body is of another kind than is read here.
    UnsupportedMediaType,
    /// Its body is longer than the limit.
    BodyTooLong,
    /// The job's state does not allow it.
    JobState,
    /// It took longer than a request may take.
    Timeout,
    /// Jobs are not worked on now.
    NotReady,
    /// The queue or the store does not answer.
    Unavailable,
    /// What a submission would have been told on the command line.
    Failed(Code),
}

impl Reason {
    /// Every reason of the server's own.
    pub const OWN: [Self; 11] = [
        Self::Unauthorized,
        Self::Forbidden,
        Self::NotFound,
        Self::MethodNotAllowed,
        Self::BadRequest,
        Self::UnsupportedMediaType,
        Self::BodyTooLong,
        Self::JobState,
        Self::Timeout,
        Self::NotReady,
        Self::Unavailable,
    ];

    /// The code as it stands in answers.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::Unauthorized => "unauthorized",
            Self::Forbidden => "forbidden",
            Self::NotFound => "not_found",
            Self::MethodNotAllowed => "method_not_allowed",
            Self::BadRequest => "bad_request",
            Self::UnsupportedMediaType => "unsupported_media_type",
            Self::BodyTooLong => "body_too_long",
            Self::JobState => "job_state",
            Self::Timeout => "timeout",
            Self::NotReady => "not_ready",
            Self::Unavailable => "unavailable",
            Self::Failed(code) => code.as_str(),
        }
    }

    /// What is true of every problem of this code.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Self::Unauthorized => "A known bearer token is needed",
            Self::Forbidden => "The token is not for this",
            Self::NotFound => "There is no such thing",
            Self::MethodNotAllowed => "Another method is needed",
            Self::BadRequest => "The request cannot be read",
            Self::UnsupportedMediaType => "The body is of another kind",
            Self::BodyTooLong => "The body is too long",
            Self::JobState => "The job's state does not allow it",
            Self::Timeout => "The request took too long",
            Self::NotReady => "Jobs are not worked on now",
            Self::Unavailable => "The queue or the store does not answer",
            Self::Failed(_) => "The submission is refused",
        }
    }

    /// The status that goes with it (RFC 9110, section 15).
    #[must_use]
    pub fn status(self) -> StatusCode {
        match self {
            Self::Unauthorized => StatusCode::UNAUTHORIZED,
            Self::Forbidden | Self::Failed(Code::TenantUnknown) => StatusCode::FORBIDDEN,
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::BadRequest => StatusCode::BAD_REQUEST,
            Self::UnsupportedMediaType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::BodyTooLong => StatusCode::PAYLOAD_TOO_LARGE,
            Self::JobState => StatusCode::CONFLICT,
            Self::Failed(Code::QueueFull) => StatusCode::TOO_MANY_REQUESTS,
            Self::Failed(code) if code.blame() == Blame::Internal => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Failed(_) => StatusCode::UNPROCESSABLE_ENTITY,
            Self::Timeout | Self::NotReady | Self::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

/// A problem as it is answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Why.
    pub reason: Reason,
    /// What is true of this one.
    pub detail: String,
}

#[derive(Serialize)]
struct Details<'a> {
    r#type: String,
    title: &'static str,
    status: u16,
    detail: &'a str,
    code: &'static str,
}

impl Problem {
    /// A problem of this reason.
    #[must_use]
    pub fn of(reason: Reason, detail: impl Into<String>) -> Self {
        Self { reason, detail: detail.into() }
    }

    /// A submission's own failure.
    #[must_use]
    pub fn failed(failure: &Failure) -> Self {
        Self::of(Reason::Failed(failure.code), failure.message.clone())
    }

    /// What the queue says. What only its operator can mend is told to `log`.
    #[must_use]
    pub fn of_queue(error: &QueueError, log: &dyn Fn(&str)) -> Self {
        match error {
            QueueError::Refused(refusal) => Self::failed(&refusal.failure()),
            QueueError::Absent { id } => Self::of(Reason::NotFound, format!("there is no job {id}")),
            QueueError::State { .. } | QueueError::Stale { .. } => Self::of(Reason::JobState, error.to_string()),
            error => {
                log(&format!("http: {error}"));
                Self::of(Reason::Unavailable, "the queue does not answer now; try again")
            }
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let (reason, status) = (self.reason, self.reason.status());
        let details = Details {
            r#type: format!("urn:refmill:problem:{}", reason.code()),
            title: reason.title(),
            status: status.as_u16(),
            detail: &self.detail,
            code: reason.code(),
        };
        // Texts and a number: it always serialises.
        let text = serde_json::to_string(&details).unwrap_or_default() + "\n";
        let mut response = (status, [(CONTENT_TYPE, "application/problem+json")], text).into_response();
        match status {
            StatusCode::UNAUTHORIZED => {
                response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
                response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(RETRY_S));
            }
            _ => {}
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::tenant::Refusal;

    #[test]
    fn refusal_of_the_queue_keeps_its_code_and_is_told_apart_by_status() {
        let full = QueueError::Refused(Refusal::Full { name: "a".into(), queued: 2, cap: 2 });
        let quota = QueueError::Refused(Refusal::Quota { name: "a".into(), need: 2, quota: 1 });
        let status = |error| Problem::of_queue(&error, &|text| panic!("{text}")).reason.status().as_u16();
        assert_eq!((status(full), status(quota)), (429, 422));
    }

    #[test]
    fn what_the_operator_must_mend_is_told_to_the_log_alone() {
        let told = std::sync::Mutex::new(String::new());
        let error = QueueError::NoFile { path: "/secret/queue.db".into() };
        let problem = Problem::of_queue(&error, &|text| told.lock().unwrap().push_str(text));
        assert!(told.into_inner().unwrap().contains("/secret/queue.db"));
        assert!(problem.reason == Reason::Unavailable && !problem.detail.contains("secret"));
    }
}
