//! What `queue/mod.rs` promises, one test a promise. Generic over the queue: another backend joins with its own
//! `queue()`.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper that fails is a test that fails")]

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use refmill::failure::Blame;
use refmill_supervisor::queue::sqlite::Durability;
use refmill_supervisor::queue::{
    Claimed, Clock, Enqueued, Fault, JobId, Lease, NewJob, Next, Queue, QueueError, Retention, RetryPolicy,
    SqliteQueue, State,
};

const POLICY: RetryPolicy =
    RetryPolicy { max_failures: 3, max_crashes: 2, max_losses: 3, base_ms: 1_000, most_ms: 8_000 };
const LEASE: u32 = 10_000;

/// A queue of its own, in a folder of its own, by a clock of its own.
struct Fresh<Q> {
    queue: Q,
    clock: Clock,
    folder: tempfile::TempDir,
}

impl<Q> Fresh<Q> {
    fn path(&self) -> PathBuf {
        self.folder.path().join("q.db")
    }
}

fn open(path: &Path) -> SqliteQueue {
    SqliteQueue::open(path, Durability::Process, true).unwrap()
}

fn queue() -> Fresh<impl Queue> {
    let folder = tempfile::tempdir().unwrap();
    let clock = Clock::manual(1_000_000);
    let queue = open(&folder.path().join("q.db")).with(clock.clone(), POLICY);
    Fresh { queue, clock, folder }
}

fn new(key: &str) -> NewJob {
    NewJob { key: key.into(), name: format!("/{key}.jpg"), payload: "{}".into(), priority: 0, delay_ms: 0 }
}

fn put(queue: &impl Queue, job: &NewJob) -> JobId {
    match queue.enqueue(job).unwrap() {
        Enqueued::New(id) => id,
        known => panic!("{known:?}"),
    }
}

fn fill(queue: &impl Queue, jobs: u32) {
    for number in 0..jobs {
        put(queue, &new(&number.to_string()));
    }
}

fn claim(queue: &impl Queue) -> Option<Claimed> {
    queue.claim("test", LEASE).unwrap()
}

fn lease(queue: &impl Queue) -> Lease {
    claim(queue).unwrap().lease
}

fn state(queue: &impl Queue, id: JobId) -> State {
    queue.job(id).unwrap().state
}

fn is_stale(answer: &Result<(), QueueError>) -> bool {
    matches!(answer, Err(QueueError::Stale { .. }))
}

fn wait_ms(next: Next) -> i64 {
    match next {
        Next::Again { after_ms } => after_ms.into(),
        end => panic!("{end:?}"),
    }
}

const DEVICE: Fault = Fault::Failed(Blame::Device);

#[test]
fn accepted_job_is_there_after_the_queue_is_opened_again() {
    let Fresh { queue, folder, .. } = queue();
    let id = put(&queue, &new("a"));
    drop(queue);
    let job = open(&folder.path().join("q.db")).job(id).unwrap();
    assert_eq!((job.key.as_str(), job.name.as_str(), job.state), ("a", "/a.jpg", State::Queued));
}

#[test]
fn job_submitted_twice_is_one_job_in_every_state() {
    let Fresh { queue, .. } = queue();
    let id = put(&queue, &new("a"));
    assert_eq!(queue.enqueue(&new("a")).unwrap(), Enqueued::Known(id, State::Queued));
    let lease = lease(&queue);
    assert_eq!(queue.enqueue(&new("a")).unwrap(), Enqueued::Known(id, State::Leased));
    queue.ack(lease, "{}").unwrap();
    assert_eq!(queue.enqueue(&new("a")).unwrap(), Enqueued::Known(id, State::Done));
    assert!(claim(&queue).is_none());
}

#[test]
fn leased_job_is_given_to_nobody_else() {
    let Fresh { queue, .. } = queue();
    put(&queue, &new("a"));
    assert!(claim(&queue).is_some() && claim(&queue).is_none());
}

#[test]
fn lease_that_ran_out_is_given_to_somebody_else_under_a_higher_token() {
    let Fresh { queue, clock, .. } = queue();
    put(&queue, &new("a"));
    let first = lease(&queue);
    clock.advance(i64::from(LEASE));
    // The loss costs a pause, as a failure does.
    assert!(claim(&queue).is_none());
    clock.advance(1_000);
    let second = claim(&queue).unwrap();
    assert!(second.lease.token > first.token);
    assert_eq!((second.job.tally.losses, second.job.deliveries), (1, 2));
}

#[test]
fn heartbeat_keeps_a_lease_alive() {
    let Fresh { queue, clock, .. } = queue();
    put(&queue, &new("a"));
    let lease = lease(&queue);
    clock.advance(i64::from(LEASE) - 1);
    queue.extend(lease, LEASE).unwrap();
    clock.advance(i64::from(LEASE) - 1);
    assert_eq!(queue.reclaim(false).unwrap(), 0);
    queue.ack(lease, "{}").unwrap();
}

#[test]
fn stale_token_can_neither_ack_nor_nak_nor_extend_nor_release() {
    let Fresh { queue, clock, .. } = queue();
    let id = put(&queue, &new("a"));
    let old = lease(&queue);
    clock.advance(i64::from(LEASE) + 1_000);
    queue.reclaim(false).unwrap();
    clock.advance(1_000);
    let young = lease(&queue);
    let before = queue.job(id).unwrap();
    assert!(is_stale(&queue.ack(old, "{}")) && is_stale(&queue.extend(old, LEASE)));
    assert!(is_stale(&queue.nak(old, DEVICE, "x", None).map(drop)) && is_stale(&queue.release(old)));
    assert_eq!(queue.job(id).unwrap(), before);
    queue.ack(young, "{}").unwrap();
    assert!(is_stale(&queue.ack(old, "{}")));
}

#[test]
fn ack_that_is_repeated_is_answered_as_the_first_one_and_changes_nothing() {
    let Fresh { queue, clock, .. } = queue();
    let id = put(&queue, &new("a"));
    let lease = lease(&queue);
    queue.ack(lease, r#"{"n":1}"#).unwrap();
    let first = queue.job(id).unwrap();
    clock.advance(5);
    queue.ack(lease, r#"{"n":2}"#).unwrap();
    assert_eq!((queue.job(id).unwrap(), first.report.as_deref()), (first.clone(), Some(r#"{"n":1}"#)));
}

#[test]
fn failure_of_the_image_is_buried_at_once_with_its_reason() {
    let faults = [Blame::Input, Blame::Limits, Blame::Unsupported].map(Fault::Failed);
    let buried = |fault| {
        let Fresh { queue, .. } = queue();
        let id = put(&queue, &new("a"));
        assert_eq!(queue.nak(lease(&queue), fault, "corrupt: no end", Some("{}")).unwrap(), Next::Buried);
        queue.job(id).unwrap()
    };
    let told = |job: &refmill_supervisor::queue::Job| {
        job.state == State::Dead && job.reason.as_deref() == Some("corrupt: no end") && job.report.is_some()
    };
    assert!(faults.map(buried).iter().all(told));
}

#[test]
fn failure_of_the_device_is_tried_again_after_a_growing_pause_and_then_buried() {
    let Fresh { queue, clock, .. } = queue();
    let id = put(&queue, &new("a"));
    let first = wait_ms(queue.nak(lease(&queue), DEVICE, "device: sticky", None).unwrap());
    clock.advance(first - 1);
    assert!(claim(&queue).is_none());
    clock.advance(1);
    let second = wait_ms(queue.nak(lease(&queue), DEVICE, "device: sticky", None).unwrap());
    assert!((500..=1_000).contains(&first) && (1_000..=2_000).contains(&second), "{first} {second}");
    clock.advance(second);
    assert_eq!(queue.nak(lease(&queue), DEVICE, "device: sticky", None).unwrap(), Next::Exhausted);
    let reason = queue.job(id).unwrap().reason.unwrap();
    assert_eq!(reason, "given up after 3 failures; the last: device: sticky");
}

#[test]
fn job_under_which_workers_crash_is_quarantined() {
    let Fresh { queue, clock, .. } = queue();
    let id = put(&queue, &new("a"));
    clock.advance(wait_ms(queue.nak(lease(&queue), Fault::Crashed, "SIGSEGV", None).unwrap()));
    assert_eq!(queue.nak(lease(&queue), Fault::Crashed, "SIGSEGV", None).unwrap(), Next::Quarantined);
    assert!(queue.job(id).unwrap().reason.unwrap().starts_with("quarantined: 2 workers crashed"));
}

#[test]
fn job_whose_holders_vanish_is_quarantined() {
    let Fresh { queue, clock, .. } = queue();
    let id = put(&queue, &new("a"));
    (0..3).for_each(|_| {
        lease(&queue);
        assert_eq!(queue.reclaim(true).unwrap(), 1);
        clock.advance(8_000);
    });
    let job = queue.job(id).unwrap();
    assert_eq!((job.state, job.tally.losses), (State::Dead, 3));
}

#[test]
fn higher_priority_goes_first_and_then_the_older_job() {
    let Fresh { queue, .. } = queue();
    let low = put(&queue, &NewJob { priority: -1, ..new("low") });
    let first = put(&queue, &new("first"));
    let second = put(&queue, &new("second"));
    let high = put(&queue, &NewJob { priority: 5, ..new("high") });
    let order: Vec<JobId> = (0..4).map(|_| lease(&queue).job).collect();
    assert_eq!(order, [high, first, second, low]);
}

#[test]
fn delayed_job_waits_for_its_time_and_holds_up_nobody() {
    let Fresh { queue, clock, .. } = queue();
    let late = put(&queue, &NewJob { priority: 9, delay_ms: 500, ..new("late") });
    let now = put(&queue, &new("now"));
    assert_eq!(lease(&queue).job, now);
    clock.advance(499);
    assert!(claim(&queue).is_none());
    clock.advance(1);
    assert_eq!(lease(&queue).job, late);
}

#[test]
fn released_job_is_due_at_once_with_nothing_held_against_it() {
    let Fresh { queue, .. } = queue();
    put(&queue, &new("a"));
    let first = lease(&queue);
    queue.release(first).unwrap();
    let again = claim(&queue).unwrap();
    assert_eq!((again.job.deliveries, again.job.tally.losses), (1, 0));
    assert!(is_stale(&queue.ack(first, "{}")));
}

#[test]
fn cancelled_job_is_not_published_by_its_holder() {
    let Fresh { queue, .. } = queue();
    let id = put(&queue, &new("a"));
    let lease = lease(&queue);
    queue.cancel(id).unwrap();
    assert!(is_stale(&queue.extend(lease, LEASE)) && is_stale(&queue.ack(lease, "{}")));
    assert_eq!(state(&queue, id), State::Cancelled);
}

#[test]
fn dead_job_gets_a_second_life_with_nothing_held_against_it() {
    let Fresh { queue, .. } = queue();
    let id = put(&queue, &new("a"));
    let first = lease(&queue);
    queue.nak(first, Fault::Failed(Blame::Input), "x", Some("{}")).unwrap();
    queue.retry(id).unwrap();
    let job = queue.job(id).unwrap();
    assert_eq!((job.state, job.tally.failures, job.reason, job.report), (State::Queued, 0, None, None));
    assert!(lease(&queue).token > first.token);
}

#[test]
fn job_buried_by_hand_keeps_the_reason() {
    let Fresh { queue, .. } = queue();
    let id = put(&queue, &new("a"));
    queue.bury(id, "looks odd").unwrap();
    let job = queue.job(id).unwrap();
    assert_eq!((job.state, job.reason.as_deref()), (State::Dead, Some("looks odd")));
}

#[test]
fn change_that_the_state_does_not_allow_is_refused_with_the_state() {
    let Fresh { queue, .. } = queue();
    let id = put(&queue, &new("a"));
    assert_eq!(queue.retry(id).unwrap_err().to_string(), "job 1 is queued, it must be dead or cancelled");
    queue.ack(lease(&queue), "{}").unwrap();
    assert_eq!(queue.cancel(id).unwrap_err().to_string(), "job 1 is done, it must be queued or leased");
    assert_eq!(queue.bury(JobId(9), "x").unwrap_err().to_string(), "there is no job 9");
}

#[test]
fn job_that_is_over_is_kept_for_as_long_as_retention_says() {
    let Fresh { queue, clock, .. } = queue();
    let done = put(&queue, &new("done"));
    queue.ack(lease(&queue), "{}").unwrap();
    let dead = put(&queue, &new("dead"));
    queue.bury(dead, "x").unwrap();
    let waiting = put(&queue, &new("waiting"));
    let retention = Retention { done_ms: 100, dead_ms: 200 };
    clock.advance(99);
    assert_eq!(queue.prune(retention).unwrap(), 0);
    clock.advance(1);
    assert_eq!(queue.prune(retention).unwrap(), 1);
    assert!(matches!(queue.job(done), Err(QueueError::Absent { .. })));
    clock.advance(100);
    assert_eq!(queue.prune(retention).unwrap(), 1);
    assert_eq!(state(&queue, waiting), State::Queued);
    assert!(put(&queue, &new("done")) > waiting);
}

#[test]
fn counts_are_by_state_with_the_oldest() {
    let Fresh { queue, clock, .. } = queue();
    put(&queue, &new("a"));
    clock.advance(7);
    put(&queue, &new("b"));
    put(&queue, &new("c"));
    lease(&queue);
    let counts = queue.counts().unwrap();
    let told: HashSet<_> = counts.iter().map(|count| (count.state, count.jobs, count.oldest)).collect();
    assert_eq!(told, HashSet::from([(State::Leased, 1, Some(1_000_000)), (State::Queued, 2, Some(1_000_007))]));
}

#[test]
fn threads_that_claim_at_once_never_get_the_same_job() {
    let fresh = queue();
    fill(&fresh.queue, 400);
    let taken = |path: PathBuf| {
        let queue = open(&path).with(fresh.clock.clone(), POLICY);
        std::iter::from_fn(move || claim(&queue).map(|claimed| claimed.lease.job)).collect::<Vec<_>>()
    };
    let jobs: Vec<JobId> = thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| taken(fresh.path()))).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!((jobs.len(), jobs.iter().collect::<HashSet<_>>().len()), (400, 400));
}

/// The stand-in for another process, which cargo builds beside the tests.
fn other(path: &Path, what: &str) -> Child {
    let test = std::env::current_exe().unwrap();
    let program = test.parent().and_then(Path::parent).unwrap().join("examples/queue_client");
    assert!(program.is_file(), "{} is not built; build the package's examples", program.display());
    Command::new(program).arg(path).arg(what).stdout(Stdio::piped()).spawn().unwrap()
}

#[test]
fn processes_that_claim_at_once_never_get_the_same_job() {
    let fresh = queue();
    fill(&fresh.queue, 300);
    let clients: Vec<Child> = (0..3).map(|_| other(&fresh.path(), "claim")).collect();
    let claimed: String = clients
        .into_iter()
        .map(|client| String::from_utf8(client.wait_with_output().unwrap().stdout).unwrap())
        .collect();
    let jobs: Vec<&str> = claimed.lines().collect();
    assert_eq!((jobs.len(), jobs.iter().collect::<HashSet<_>>().len()), (300, 300));
}

#[test]
fn process_killed_in_the_middle_of_anything_leaves_a_sound_queue() {
    let fresh = queue();
    let kept = put(&fresh.queue, &NewJob { priority: -9, ..new("kept") });
    (0..12).for_each(|round| {
        let mut client = other(&fresh.path(), "churn");
        thread::sleep(Duration::from_millis(60 + round * 7));
        client.kill().unwrap();
        client.wait().unwrap();
    });
    let database = rusqlite::Connection::open(fresh.path()).unwrap();
    let verdict: String = database.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(verdict, "ok");
    let done = fresh.queue.list(Some(State::Done), JobId(0), 10).unwrap();
    assert_eq!((state(&fresh.queue, kept), done.len()), (State::Queued, 10));
}

#[test]
fn file_of_something_else_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("other.db");
    rusqlite::Connection::open(&path).unwrap().execute_batch("CREATE TABLE t (x)").unwrap();
    assert!(matches!(SqliteQueue::open(&path, Durability::Full, true), Err(QueueError::Foreign { .. })));
    std::fs::write(&path, "no database at all, and long enough to have a header in it".repeat(9)).unwrap();
    assert!(matches!(SqliteQueue::open(&path, Durability::Full, true), Err(QueueError::Open { .. })));
}

#[test]
fn queue_of_a_later_refmill_is_refused() {
    let fresh = queue();
    let database = rusqlite::Connection::open(fresh.path()).unwrap();
    database.pragma_update(None, "user_version", 99).unwrap();
    let refused = SqliteQueue::open(&fresh.path(), Durability::Full, true).unwrap_err();
    assert!(matches!(refused, QueueError::Newer { found: 99, known: 1, .. }), "{refused}");
}

#[test]
fn queue_that_is_not_there_is_made_only_where_that_is_wanted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("q.db");
    assert!(matches!(SqliteQueue::open(&path, Durability::Full, false), Err(QueueError::NoFile { .. })));
    assert!(!path.exists());
}
