//! Another process at the same queue, for the tests: `queue_client QUEUE claim` claims until nothing is due and prints
//! the numbers; `queue_client QUEUE churn` puts, claims, acks and fails jobs until it is killed.
#![allow(clippy::unwrap_used, reason = "a stand-in that fails is a test that fails")]

use std::path::Path;

use refmill::failure::Blame;
use refmill_supervisor::queue::nats::Access;
use refmill_supervisor::queue::sqlite::Durability;
use refmill_supervisor::queue::{Fault, NewJob, Place, Queue, Retention, SqliteQueue};

fn main() {
    let mut arguments = std::env::args().skip(1);
    let place = Place::named(Path::new(&arguments.next().unwrap()), Access::default()).unwrap();
    let queue = place.open(Durability::Process, true).unwrap();
    match arguments.next().as_deref() {
        Some("claim") => {
            while let Some(claimed) = queue.claim("client", 60_000).unwrap() {
                println!("{}", claimed.lease.job);
            }
        }
        _ => churn(&queue),
    }
}

fn churn(queue: &SqliteQueue) {
    for number in 0_u64.. {
        let key = format!("{}-{number}", std::process::id());
        let job = NewJob { key, name: "/a.jpg".into(), payload: "x".repeat(3_000), ..NewJob::default() };
        queue.enqueue(&job).unwrap();
        let Some(claimed) = queue.claim("client", 60_000).unwrap() else { continue };
        if number % 5 == 4 {
            queue.nak(claimed.lease, Fault::Failed(Blame::Input), "x", Some("{}")).unwrap();
        } else {
            queue.ack(claimed.lease, &"y".repeat(5_000)).unwrap();
        }
        if number % 50 == 49 {
            queue.prune(Retention { done_ms: 20, dead_ms: 20 }).unwrap();
        }
    }
}
