//! Delivery: at least once, to one holder at a time.

use super::*;

#[test]
fn accepted_job_is_there_after_the_queue_is_opened_again() {
    let Some(Fresh { queue, place, home: _home, .. }) = queue() else { return };
    let id = put(&queue, &new("a"));
    drop(queue);
    let job = opened(&place).job(id).unwrap();
    assert_eq!((job.key.as_str(), job.name.as_str(), job.state), ("a", "/a.jpg", State::Queued));
}

#[test]
fn job_submitted_twice_is_one_job_in_every_state() {
    let Some(Fresh { queue, home: _home, .. }) = queue() else { return };
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
    let Some(Fresh { queue, home: _home, .. }) = queue() else { return };
    put(&queue, &new("a"));
    assert!(claim(&queue).is_some() && claim(&queue).is_none());
}

#[test]
fn lease_that_ran_out_is_given_to_somebody_else_under_a_higher_token() {
    let Some(Fresh { queue, clock, home: _home, .. }) = queue() else { return };
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
    let Some(Fresh { queue, clock, home: _home, .. }) = queue() else { return };
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
    let Some(Fresh { queue, clock, home: _home, .. }) = queue() else { return };
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
    let Some(Fresh { queue, clock, home: _home, .. }) = queue() else { return };
    let id = put(&queue, &new("a"));
    let lease = lease(&queue);
    queue.ack(lease, r#"{"n":1}"#).unwrap();
    let first = queue.job(id).unwrap();
    clock.advance(5);
    queue.ack(lease, r#"{"n":2}"#).unwrap();
    assert_eq!((queue.job(id).unwrap(), first.report.as_deref()), (first.clone(), Some(r#"{"n":1}"#)));
}

#[test]
fn released_job_is_due_at_once_with_nothing_held_against_it() {
    let Some(Fresh { queue, home: _home, .. }) = queue() else { return };
    put(&queue, &new("a"));
    let first = lease(&queue);
    queue.release(first).unwrap();
    let again = claim(&queue).unwrap();
    assert_eq!((again.job.deliveries, again.job.tally.losses), (1, 0));
    assert!(is_stale(&queue.ack(first, "{}")));
}
