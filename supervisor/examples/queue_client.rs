//! Another process at the same queue, for the tests: `queue_client FILE claim` claims until nothing is due and prints
//! the numbers; `queue_client FILE churn` puts, claims, acks and fails jobs until it is killed.
#![allow(clippy::unwrap_used, reason = "a stand-in that fails is a test that fails")]

use std::path::PathBuf;

use refmill::failure::Blame;
use refmill_supervisor::queue::sqlite::Durability;
use refmill_supervisor::queue::{Fault, NewJob, Queue, Retention, SqliteQueue};

fn main() {
    let mut arguments = std::env::args().skip(1);
    let path = PathBuf::from(arguments.next().unwrap());
    let queue = SqliteQueue::open(&path, Durability::Process, true).unwrap();
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
