//! Jobs changed by hand.

use super::*;

#[test]
fn cancelled_job_is_not_published_by_its_holder() {
    let Some(Fresh { queue, home: _home, .. }) = queue() else { return };
    let id = put(&queue, &new("a"));
    let lease = lease(&queue);
    queue.cancel(id).unwrap();
    assert!(is_stale(&queue.extend(lease, LEASE)) && is_stale(&queue.ack(lease, "{}")));
    assert_eq!(state(&queue, id), State::Cancelled);
}

#[test]
fn dead_job_gets_a_second_life_with_nothing_held_against_it() {
    let Some(Fresh { queue, home: _home, .. }) = queue() else { return };
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
    let Some(Fresh { queue, home: _home, .. }) = queue() else { return };
    let id = put(&queue, &new("a"));
    queue.bury(id, "looks odd").unwrap();
    let job = queue.job(id).unwrap();
    assert_eq!((job.state, job.reason.as_deref()), (State::Dead, Some("looks odd")));
}

#[test]
fn change_that_the_state_does_not_allow_is_refused_with_the_state() {
    let Some(Fresh { queue, home: _home, .. }) = queue() else { return };
    let id = put(&queue, &new("a"));
    assert_eq!(queue.retry(id).unwrap_err().to_string(), "job 1 is queued, it must be dead or cancelled");
    queue.ack(lease(&queue), "{}").unwrap();
    assert_eq!(queue.cancel(id).unwrap_err().to_string(), "job 1 is done, it must be queued or leased");
    assert_eq!(queue.bury(JobId(9), "x").unwrap_err().to_string(), "there is no job 9");
}
