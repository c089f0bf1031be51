//! How long jobs are kept, and how they are counted.

use super::*;

#[test]
fn job_that_is_over_is_kept_for_as_long_as_retention_says() {
    let Some(Fresh { queue, clock, home: _home, .. }) = queue() else { return };
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
    let Some(Fresh { queue, clock, home: _home, .. }) = queue() else { return };
    put(&queue, &new("a"));
    clock.advance(7);
    put(&queue, &new("b"));
    put(&queue, &new("c"));
    lease(&queue);
    let counts = queue.counts().unwrap();
    let told: HashSet<_> = counts.iter().map(|count| (count.state, count.jobs, count.oldest)).collect();
    assert_eq!(told, HashSet::from([(State::Leased, 1, Some(1_000_000)), (State::Queued, 2, Some(1_000_007))]));
}
