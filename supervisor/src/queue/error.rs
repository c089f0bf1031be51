//! What a queue says when it did not do what it was asked.

use super::nats::LinkError;
use super::tenant::Refusal;
use super::{JobId, State};

/// Why the queue did not do what it was asked. Nothing has changed in any of these cases.
#[derive(Debug, thiserror::Error)]
pub enum QueueError {
    /// The file cannot be opened or made.
    #[error("cannot open queue {path}: {source}")]
    Open {
        /// The file.
        path: String,
        /// Why.
        source: rusqlite::Error,
    },
    /// The file is not there, and was not to be made.
    #[error("queue {path} does not exist; `refmill submit` makes one")]
    NoFile {
        /// The file.
        path: String,
    },
    /// The file is a database of something else.
    #[error("{path} is a database, but not a queue of refmill")]
    Foreign {
        /// The file.
        path: String,
    },
    /// The file was written by a later refmill.
    #[error("queue {path} has form {found}, this refmill reads up to {known}")]
    Newer {
        /// The file.
        path: String,
        /// Its form.
        found: i64,
        /// The latest form that is known here.
        known: i64,
    },
    /// The database refused.
    #[error("cannot {what}: {source}")]
    Sql {
        /// What was tried.
        what: &'static str,
        /// Why it failed.
        source: rusqlite::Error,
    },
    /// There is no such stream, and none was to be made.
    #[error("queue {name} does not exist; `refmill submit` or `serve` makes the stream")]
    NoStream {
        /// Its address.
        name: String,
    },
    /// The stream, or the way to it, refused.
    #[error("cannot {what}, queue {name}: {source}")]
    Stream {
        /// What was tried.
        what: &'static str,
        /// The stream's address.
        name: String,
        /// Why it failed.
        source: LinkError,
    },
    /// The job is not taken.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The lease is no longer, or never was, the job's own.
    #[error("lease {token} of job {job} is stale")]
    Stale {
        /// The job.
        job: JobId,
        /// The token.
        token: i64,
    },
    /// No such job.
    #[error("there is no job {id}")]
    Absent {
        /// As asked.
        id: JobId,
    },
    /// The job is in a state that does not allow it.
    #[error("job {id} is {}, it must be {wanted}", state.as_str())]
    State {
        /// The job.
        id: JobId,
        /// Its state.
        state: State,
        /// The states that allow it.
        wanted: &'static str,
    },
}
