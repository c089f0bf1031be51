//! Which job is next.

use super::*;

#[test]
fn higher_priority_goes_first_and_then_the_older_job() {
    let Some(Fresh { queue, home: _home, .. }) = queue() else { return };
    let low = put(&queue, &NewJob { priority: -1, ..new("low") });
    let first = put(&queue, &new("first"));
    let second = put(&queue, &new("second"));
    let high = put(&queue, &NewJob { priority: 5, ..new("high") });
    let order: Vec<JobId> = (0..4).map(|_| lease(&queue).job).collect();
    assert_eq!(order, [high, first, second, low]);
}

#[test]
fn delayed_job_waits_for_its_time_and_holds_up_nobody() {
    let Some(Fresh { queue, clock, home: _home, .. }) = queue() else { return };
    let late = put(&queue, &NewJob { priority: 9, delay_ms: 500, ..new("late") });
    let now = put(&queue, &new("now"));
    assert_eq!(lease(&queue).job, now);
    clock.advance(499);
    assert!(claim(&queue).is_none());
    clock.advance(1);
    assert_eq!(lease(&queue).job, late);
}
