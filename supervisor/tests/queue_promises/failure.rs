//! What becomes of jobs that failed.

use super::*;

#[test]
fn failure_of_the_image_is_buried_at_once_with_its_reason() {
    let faults = [Blame::Input, Blame::Limits, Blame::Unsupported].map(Fault::Failed);
    let Some(Fresh { queue, home: _home, .. }) = queue() else { return };
    let buried = |fault| {
        let id = put(&queue, &new(&format!("{fault:?}")));
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
    let Some(Fresh { queue, clock, home: _home, .. }) = queue() else { return };
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
    let Some(Fresh { queue, clock, home: _home, .. }) = queue() else { return };
    let id = put(&queue, &new("a"));
    clock.advance(wait_ms(queue.nak(lease(&queue), Fault::Crashed, "SIGSEGV", None).unwrap()));
    assert_eq!(queue.nak(lease(&queue), Fault::Crashed, "SIGSEGV", None).unwrap(), Next::Quarantined);
    assert!(queue.job(id).unwrap().reason.unwrap().starts_with("quarantined: 2 workers crashed"));
}

#[test]
fn job_whose_holders_vanish_is_quarantined() {
    let Some(Fresh { queue, clock, home: _home, .. }) = queue() else { return };
    let id = put(&queue, &new("a"));
    (0..3).for_each(|_| {
        lease(&queue);
        assert_eq!(queue.reclaim(true).unwrap(), 1);
        clock.advance(8_000);
    });
    let job = queue.job(id).unwrap();
    assert_eq!((job.state, job.tally.losses), (State::Dead, 3));
}
