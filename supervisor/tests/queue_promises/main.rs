//! What `queue/mod.rs` promises, one test a promise, of the queue in a file. `queue_promises_nats` asks the same of the
//! queue in a stream.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper that fails is a test that fails")]

mod delivery;
mod failure;
mod file;
mod fresh;
mod hand;
mod keeping;
mod many;
mod order;
mod tenants;

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use fresh::*;
use refmill::failure::Blame;
use refmill_supervisor::queue::sqlite::Durability;
use refmill_supervisor::queue::{
    Clock, Enqueued, Fault, Filter, JobId, Lease, NewJob, Next, Place, Queue, QueueError, Retention, SqliteQueue,
    State, Tenant,
};

/// What the file lies in.
pub type Home = tempfile::TempDir;

impl Fresh {
    fn path(&self) -> PathBuf {
        self.home.path().join("q.db")
    }

    /// Whether nothing of it is broken.
    fn is_sound(&self) -> bool {
        let database = rusqlite::Connection::open(self.path()).unwrap();
        database.query_row("PRAGMA integrity_check", [], |row| row.get::<_, String>(0)).unwrap() == "ok"
    }
}

fn open(path: &Path) -> SqliteQueue {
    opened(&Place::File(path.to_owned()))
}

/// There is always one; other queues need a server.
#[allow(clippy::unnecessary_wraps, reason = "the other suite may have none")]
fn queue() -> Option<Fresh> {
    let home = tempfile::tempdir().unwrap();
    let place = Place::File(home.path().join("q.db"));
    Some(Fresh::at(place, home))
}
