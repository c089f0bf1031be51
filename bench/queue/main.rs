//! How many jobs a second a queue takes, gives and ends: `queue_rate [JOBS] [THREADS]`. One connection for all
//! threads, as a server has it; reports of 3 KB; the file in the working folder.
#![allow(clippy::unwrap_used, clippy::cast_precision_loss, reason = "a bench that fails says so")]

use std::path::Path;
use std::thread;
use std::time::Instant;

use refmill_supervisor::queue::sqlite::Durability;
use refmill_supervisor::queue::{NewJob, Queue, SqliteQueue};

const REPORT: usize = 3_000;

fn main() {
    let number = |place: usize, usual: usize| std::env::args().nth(place).map_or(usual, |text| text.parse().unwrap());
    let (jobs, threads) = (number(1, 20_000), number(2, 4));
    let folder = tempfile::tempdir_in(".").unwrap();
    let path = folder.path().join("bench.db");
    // A commit that survives a power cut waits for the disk: few are enough to tell.
    let durable = jobs.div_ceil(20);
    let full = rate(durable, || put(&path, Durability::Full, 0..durable));
    let process = rate(jobs, || put(&path, Durability::Process, durable..durable + jobs));
    let report = "x".repeat(REPORT);
    let queue = SqliteQueue::open(&path, Durability::Process, false).unwrap();
    let finished = rate(durable + jobs, || {
        thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(|| finish(&queue, &report)))));
    });
    println!("enqueue, synced to disk      {full:>8.0} a second");
    println!("enqueue, not synced          {process:>8.0} a second");
    println!("claim and ack, {threads} threads     {finished:>8.0} pairs a second");
}

fn rate(count: usize, work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    count as f64 / start.elapsed().as_secs_f64()
}

fn put(path: &Path, durability: Durability, numbers: std::ops::Range<usize>) {
    let queue = SqliteQueue::open(path, durability, true).unwrap();
    for number in numbers {
        let (key, name) = (blake3::hash(&number.to_le_bytes()).to_hex().to_string(), format!("/photos/{number}.jpg"));
        queue.enqueue(&NewJob { key, name, payload: "x".repeat(1_500), priority: 0, delay_ms: 0 }).unwrap();
    }
}

fn finish(queue: &SqliteQueue, report: &str) {
    while let Some(claimed) = queue.claim("bench", 30_000).unwrap() {
        queue.ack(claimed.lease, report).unwrap();
    }
}
