//! What `queue/mod.rs` promises, of the queue in a stream: the suite of the queue in a file, and what holds only where
//! there is a server that can go away. Starts a NATS server a test.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper that fails is a test that fails")]

#[path = "../queue_promises/delivery.rs"]
mod delivery;
#[path = "../queue_promises/failure.rs"]
mod failure;
#[path = "../queue_promises/fresh.rs"]
mod fresh;
#[path = "../queue_promises/hand.rs"]
mod hand;
#[path = "../queue_promises/keeping.rs"]
mod keeping;
#[path = "../queue_promises/many.rs"]
mod many;
#[path = "../nats_server/mod.rs"]
mod nats_server;
#[path = "../queue_promises/order.rs"]
mod order;
mod stream;
#[path = "../queue_promises/tenants.rs"]
mod tenants;

use std::collections::HashSet;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use fresh::*;
use refmill::failure::Blame;
use refmill_supervisor::queue::nats::Access;
use refmill_supervisor::queue::sqlite::Durability;
use refmill_supervisor::queue::{
    Enqueued, Fault, Filter, Job, JobId, Lease, NewJob, Next, Place, Queue, QueueError, Retention, SqliteQueue,
    Standing, State, Tenant,
};

/// What the stream lies in.
pub type Home = nats_server::Server;

impl Fresh {
    /// Whether somebody who reads the whole stream anew sees what this replica has come to see.
    fn is_sound(&self) -> bool {
        seen(&self.again()) == seen(&self.queue)
    }
}

fn place(text: &str) -> Place {
    Place::named(Path::new(text), Access::default()).unwrap()
}

/// All that can be seen of a queue.
fn seen(queue: &SqliteQueue) -> (Vec<Job>, Vec<Standing>) {
    (queue.list(&Filter::default(), JobId(0), 100_000).unwrap(), queue.tenants().unwrap())
}

fn queue() -> Option<Fresh> {
    let server = Home::start()?;
    let place = place(&server.stream("jobs"));
    Some(Fresh::at(place, server))
}
