//! The file: whose it is, and which form it has.

use super::*;

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
    let Some(fresh) = queue() else { return };
    let database = rusqlite::Connection::open(fresh.path()).unwrap();
    database.pragma_update(None, "user_version", 99).unwrap();
    let refused = SqliteQueue::open(&fresh.path(), Durability::Full, true).unwrap_err();
    assert!(matches!(refused, QueueError::Newer { found: 99, known: 2, .. }), "{refused}");
}

#[test]
fn queue_that_is_not_there_is_made_only_where_that_is_wanted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("q.db");
    assert!(matches!(SqliteQueue::open(&path, Durability::Full, false), Err(QueueError::NoFile { .. })));
    assert!(!path.exists());
}

/// A queue as the first form had it, with a job in each state.
fn first_form(path: &Path) {
    let database = rusqlite::Connection::open(path).unwrap();
    database.execute_batch(include_str!("../../src/queue/sql/migrations/001.sql")).unwrap();
    database.pragma_update(None, "application_id", 0x5246_4d51).unwrap();
    database.pragma_update(None, "user_version", 1).unwrap();
    database
        .execute_batch(
            "INSERT INTO job (key, name, payload, priority, state, not_before, token, holder, lease_until, created,
                updated, reason)
            VALUES
                ('late', '/late.jpg', '{}', 5, 'queued', 1000500, 0, NULL, NULL, 1, 1, NULL),
                ('now', '/now.jpg', '{}', 0, 'queued', 1, 4, NULL, NULL, 1, 1, 'device: sticky'),
                ('held', '/held.jpg', '{}', 0, 'leased', 1, 7, 'process 1', 1000900, 1, 1, NULL),
                ('done', '/done.jpg', '{}', 0, 'done', 1, 1, NULL, NULL, 1, 1, NULL),
                ('dead', '/dead.jpg', '{}', 0, 'dead', 1, 1, NULL, NULL, 1, 1, 'corrupt: no end');",
        )
        .unwrap();
}

#[test]
fn queue_of_the_first_form_is_brought_to_this_one_and_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (path, clock) = (folder.path().join("q.db"), Clock::manual(1_000_000));
    first_form(&path);
    let queue = open(&path).with(clock.clone(), POLICY);
    let standing = queue.tenants().unwrap().remove(0);
    assert_eq!((standing.tenant, standing.queued, standing.leased), (Tenant::open("default"), 2, 1));
    assert_eq!(queue.list(&Filter::default(), JobId(0), 9).unwrap().len(), 5);
    queue.ack(Lease { job: JobId(3), token: 7 }, "{}").unwrap();
    assert_eq!((lease(&queue), claim(&queue)), (Lease { job: JobId(2), token: 5 }, None));
    clock.advance(500);
    assert_eq!(lease(&queue).job, JobId(1));
    assert_eq!(queue.enqueue(&new("dead")).unwrap(), Enqueued::Known(JobId(5), State::Dead));
    queue.retry(JobId(5)).unwrap();
    assert_eq!(lease(&queue).job, JobId(5));
}
