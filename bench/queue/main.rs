//! How many jobs a second a queue takes, gives and ends: `queue_rate [JOBS] [THREADS] [TENANTS]`. One connection for
//! all threads, as a server has it; jobs in turn of every tenant, weights from 1 to 5, every second one guaranteed;
//! reports of 3 KB; the file in the working folder.
//!
//! `queue_rate stream nats://HOST:PORT/STREAM JOBS SUPERVISORS JOB_MS` fills a new stream, then has so many supervisors,
//! each with a replica and one slot, work on it; a job takes so long.
#![allow(clippy::unwrap_used, clippy::cast_precision_loss, reason = "a bench that fails says so")]

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use refmill_supervisor::queue::nats::Access;
use refmill_supervisor::queue::sqlite::Durability;
use refmill_supervisor::queue::tenant::Class;
use refmill_supervisor::queue::{NewJob, Place, Queue, SqliteQueue, Tenant};

const REPORT: usize = 3_000;

fn main() {
    if std::env::args().nth(1).as_deref() == Some("stream") {
        return stream();
    }
    let number = |place: usize, usual: usize| std::env::args().nth(place).map_or(usual, |text| text.parse().unwrap());
    let (jobs, threads, tenants) = (number(1, 100_000), number(2, 4), number(3, 20));
    let folder = tempfile::tempdir_in(".").unwrap();
    let path = folder.path().join("bench.db");
    SqliteQueue::open(&path, Durability::Process, true).unwrap().set_tenants(&terms(tenants)).unwrap();
    // A commit that survives a power cut waits for the disk: few are enough to tell.
    let durable = jobs.div_ceil(20);
    let full = rate(durable, || put(&path, Durability::Full, tenants, 0..durable));
    let process = rate(jobs - durable, || put(&path, Durability::Process, tenants, durable..jobs));
    let report = "x".repeat(REPORT);
    let queue = SqliteQueue::open(&path, Durability::Process, false).unwrap();
    let finished = rate(jobs, || {
        thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(|| finish(&queue, &report)))));
    });
    println!("{jobs} jobs of {tenants} tenants");
    println!("enqueue, synced to disk      {full:>8.0} a second");
    println!("enqueue, not synced          {process:>8.0} a second");
    println!("claim and ack, {threads} threads     {finished:>8.0} pairs a second");
}

fn stream() {
    let argument = |place: usize| std::env::args().nth(place).unwrap();
    let place = Place::named(Path::new(&argument(2)), Access::default()).unwrap();
    let (jobs, supervisors): (usize, usize) = (argument(3).parse().unwrap(), argument(4).parse().unwrap());
    let takes = Duration::from_millis(argument(5).parse().unwrap());
    let queue = place.open(Durability::Process, true).unwrap();
    let mut waits: Vec<Duration> = (0..jobs)
        .map(|number| {
            let key = blake3::hash(&number.to_le_bytes()).to_hex().to_string();
            let start = Instant::now();
            queue.enqueue(&NewJob { key, payload: "x".repeat(1_500), ..NewJob::default() }).unwrap();
            start.elapsed()
        })
        .collect();
    waits.sort();
    let at = |part: usize| waits.get(waits.len() * part / 100).unwrap().as_secs_f64() * 1e3;
    let queues: Vec<SqliteQueue> = (0..supervisors).map(|_| place.open(Durability::Process, false).unwrap()).collect();
    let report = "x".repeat(REPORT);
    let finished = rate(jobs, || {
        thread::scope(|scope| {
            for queue in &queues {
                scope.spawn(|| {
                    while let Some(claimed) = queue.claim("bench", 30_000).unwrap() {
                        thread::sleep(takes);
                        queue.ack(claimed.lease, &report).unwrap();
                    }
                });
            }
        });
    });
    println!("{jobs} jobs of {} ms, {supervisors} supervisors", takes.as_millis());
    println!("enqueue, ms: median {:.2}, p99 {:.2}", at(50), at(99));
    println!("claim and ack {finished:>10.1} pairs a second");
}

fn rate(count: usize, work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    count as f64 / start.elapsed().as_secs_f64()
}

fn terms(tenants: usize) -> Vec<Tenant> {
    let class = |number| if number % 2 == 0 { Class::Guaranteed } else { Class::Burstable };
    let weight = |number| u32::try_from(number % 5 + 1).unwrap();
    (0..tenants).map(|number| Tenant { class: class(number), weight: weight(number), ..open(number) }).collect()
}

fn open(number: usize) -> Tenant {
    Tenant { max_running: Some(48), device_bytes: Some(12 << 30), ..Tenant::open(&format!("t{number}")) }
}

fn put(path: &Path, durability: Durability, tenants: usize, numbers: std::ops::Range<usize>) {
    let queue = SqliteQueue::open(path, durability, true).unwrap();
    for number in numbers {
        let (key, name) = (blake3::hash(&number.to_le_bytes()).to_hex().to_string(), format!("/photos/{number}.jpg"));
        let (tenant, payload) = (format!("t{}", number % tenants), "x".repeat(1_500));
        queue.enqueue(&NewJob { tenant, key, name, payload, ..NewJob::default() }).unwrap();
    }
}

fn finish(queue: &SqliteQueue, report: &str) {
    while let Some(claimed) = queue.claim("bench", 30_000).unwrap() {
        queue.ack(claimed.lease, report).unwrap();
    }
}
