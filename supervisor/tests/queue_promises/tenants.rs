//! Tenants: caps that hold for themselves alone, and a share by weight.

use refmill_supervisor::queue::tenant::{Class, Refusal};
use refmill_supervisor::queue::{Job, Standing};

use super::*;

fn shared(tenants: &[Tenant]) -> Option<Fresh> {
    let fresh = queue()?;
    fresh.queue.set_tenants(tenants).unwrap();
    Some(fresh)
}

fn tenant(name: &str) -> Tenant {
    Tenant::open(name)
}

fn of(tenant: &str, key: &str) -> NewJob {
    NewJob { tenant: tenant.into(), ..new(&format!("{tenant}-{key}")) }
}

fn put_many(queue: &SqliteQueue, tenant: &str, jobs: u32) {
    for number in 0..jobs {
        put(queue, &of(tenant, &number.to_string()));
    }
}

fn put_urgent(queue: &SqliteQueue, tenant: &str, jobs: u32) {
    for number in 0..jobs {
        put(queue, &NewJob { priority: 9, ..of(tenant, &number.to_string()) });
    }
}

/// Whose jobs come in which order; all of them stay in hand.
fn order(queue: &SqliteQueue, claims: usize) -> String {
    (0..claims).map_while(|_| claim(queue)).map(|claimed| claimed.job.tenant).collect()
}

fn standing(queue: &SqliteQueue, name: &str) -> Option<Standing> {
    queue.tenants().unwrap().into_iter().find(|standing| standing.tenant.name == name)
}

fn refused(queue: &SqliteQueue, job: &NewJob) -> Refusal {
    match queue.enqueue(job) {
        Err(QueueError::Refused(refusal)) => refusal,
        other => panic!("{other:?}"),
    }
}

fn dead(queue: &SqliteQueue, id: JobId) -> Job {
    let job = queue.job(id).unwrap();
    assert_eq!(job.state, State::Dead);
    job
}

#[test]
fn queue_without_tenants_has_one_that_may_do_anything() {
    let Some(fresh) = queue() else { return };
    let standings = fresh.queue.tenants().unwrap();
    assert_eq!(standings.iter().map(|standing| &standing.tenant).collect::<Vec<_>>(), [&tenant("default")]);
    put(&fresh.queue, &new("a"));
}

#[test]
fn tenant_that_is_not_configured_is_refused_with_those_that_are() {
    let Some(fresh) = shared(&[tenant("a"), tenant("b")]) else { return };
    let refusal = refused(&fresh.queue, &new("x"));
    assert_eq!(refusal.to_string(), "tenant `default` is not configured; the queue knows a, b");
    assert_eq!(refusal.failure().code.as_str(), "tenant_unknown");
}

#[test]
fn jobs_over_the_cap_are_refused_until_some_are_claimed() {
    let Some(fresh) = shared(&[Tenant { max_queued: Some(2), ..tenant("a") }, tenant("b")]) else { return };
    put_many(&fresh.queue, "a", 2);
    let refusal = refused(&fresh.queue, &of("a", "more"));
    assert_eq!(refusal, Refusal::Full { name: "a".into(), queued: 2, cap: 2 });
    assert_eq!(refusal.failure().code.as_str(), "queue_full");
    put_many(&fresh.queue, "b", 5);
    assert!(matches!(fresh.queue.enqueue(&of("a", "0")), Ok(Enqueued::Known(..))));
    assert_eq!(order(&fresh.queue, 1), "a");
    put(&fresh.queue, &of("a", "more"));
}

#[test]
fn tenant_has_no_more_jobs_in_hand_than_it_may() {
    let Some(fresh) = shared(&[Tenant { max_running: Some(2), ..tenant("a") }, tenant("b")]) else { return };
    put_many(&fresh.queue, "a", 9);
    put_many(&fresh.queue, "b", 3);
    let order = order(&fresh.queue, 9);
    assert_eq!((order.matches('a').count(), order.matches('b').count()), (2, 3));
    let lease =
        fresh.queue.list(&Filter { state: Some(State::Leased), tenant: Some("a".into()) }, JobId(0), 1).unwrap();
    let first = lease.first().map(|job| Lease { job: job.id, token: job.token }).unwrap();
    fresh.queue.ack(first, "{}").unwrap();
    assert_eq!((claim(&fresh.queue).unwrap().job.tenant.as_str(), claim(&fresh.queue)), ("a", None));
}

#[test]
fn jobs_in_hand_stay_within_the_quota_of_device_memory() {
    let Some(fresh) = shared(&[Tenant { device_bytes: Some(100), ..tenant("a") }]) else { return };
    let sized = |key, device_bytes| NewJob { device_bytes, ..of("a", key) };
    assert!(matches!(refused(&fresh.queue, &sized("x", 101)), Refusal::Quota { need: 101, quota: 100, .. }));
    put(&fresh.queue, &sized("1", 60));
    put(&fresh.queue, &sized("2", 60));
    put(&fresh.queue, &sized("3", 10));
    let first = lease(&fresh.queue);
    // The second does not fit beside it, and keeps its place before the third.
    assert!(claim(&fresh.queue).is_none());
    assert_eq!(standing(&fresh.queue, "a").unwrap().device_bytes_in_use, 60);
    fresh.queue.ack(first, "{}").unwrap();
    assert_eq!(order(&fresh.queue, 9), "aa");
    assert_eq!(standing(&fresh.queue, "a").unwrap().device_bytes_in_use, 70);
}

#[test]
fn job_that_a_smaller_quota_shuts_out_is_a_dead_letter_and_holds_up_nobody() {
    let Some(fresh) = shared(&[tenant("a")]) else { return };
    let large = put(&fresh.queue, &NewJob { device_bytes: 500, ..of("a", "large") });
    let small = put(&fresh.queue, &NewJob { device_bytes: 5, ..of("a", "small") });
    fresh.queue.set_tenants(&[Tenant { device_bytes: Some(100), ..tenant("a") }]).unwrap();
    assert_eq!(lease(&fresh.queue).job, small);
    let reason = dead(&fresh.queue, large).reason.unwrap();
    assert_eq!(
        reason,
        "over_quota: the job may need 500 bytes of device memory by its limits, tenant `a` has a quota of 100"
    );
}

#[test]
fn claims_follow_the_weights() {
    let Some(fresh) = shared(&[Tenant { weight: 3, ..tenant("a") }, tenant("b")]) else { return };
    put_many(&fresh.queue, "b", 30);
    put_many(&fresh.queue, "a", 30);
    assert_eq!(order(&fresh.queue, 40).matches('a').count(), 30);
}

#[test]
fn guaranteed_tenant_and_high_priority_go_first_and_starve_nobody() {
    let Some(fresh) = shared(&[Tenant { class: Class::Guaranteed, ..tenant("g") }, tenant("b"), tenant("p")]) else {
        return;
    };
    put_urgent(&fresh.queue, "p", 30);
    put_many(&fresh.queue, "b", 30);
    put_many(&fresh.queue, "g", 30);
    let order = order(&fresh.queue, 60);
    assert!(order.starts_with("pppppppppgggggggggb"), "{order}");
    assert!(["b", "g", "p"].iter().all(|name| order.matches(name).count() >= 14), "{order}");
}

#[test]
fn tenant_that_was_idle_gets_its_share_and_no_more() {
    let Some(fresh) = shared(&[tenant("a"), tenant("b")]) else { return };
    put_many(&fresh.queue, "a", 60);
    order(&fresh.queue, 40);
    put_many(&fresh.queue, "b", 20);
    let order = order(&fresh.queue, 20);
    assert_eq!(order.matches('b').count(), 10, "{order}");
}

#[test]
fn share_goes_on_where_it_was_when_the_queue_is_opened_again() {
    let Some(fresh) = shared(&[Tenant { weight: 3, ..tenant("a") }, tenant("b")]) else { return };
    put_many(&fresh.queue, "a", 40);
    put_many(&fresh.queue, "b", 40);
    let reopened = |claims| order(&fresh.again(), claims);
    let order: String = (0..40).map(|_| reopened(1)).collect();
    assert_eq!(order.matches('a').count(), 30, "{order}");
}

#[test]
fn poison_of_one_tenant_never_blocks_another() {
    let Some(fresh) = shared(&[tenant("a"), tenant("b")]) else { return };
    let poison = put(&fresh.queue, &NewJob { priority: 9, ..of("a", "poison") });
    put_many(&fresh.queue, "b", 4);
    let mut done = String::new();
    while let Some(claimed) = claim(&fresh.queue) {
        if claimed.lease.job == poison {
            fresh.queue.nak(claimed.lease, Fault::Crashed, "SIGSEGV", None).unwrap();
            fresh.clock.advance(1_000);
        } else {
            fresh.queue.ack(claimed.lease, "{}").unwrap();
            done += &claimed.job.tenant;
        }
    }
    assert!(dead(&fresh.queue, poison).reason.unwrap().starts_with("quarantined"));
    assert_eq!(done, "bbbb");
}

#[test]
fn tenant_that_is_no_longer_configured_keeps_its_jobs_and_gets_no_more() {
    let Some(fresh) = shared(&[Tenant { max_running: Some(1), ..tenant("a") }, tenant("b")]) else { return };
    put_many(&fresh.queue, "a", 2);
    fresh.queue.set_tenants(&[tenant("b")]).unwrap();
    assert!(matches!(refused(&fresh.queue, &of("a", "more")), Refusal::Unknown { .. }));
    assert_eq!(order(&fresh.queue, 9), "aa");
    assert!(!standing(&fresh.queue, "a").unwrap().configured);
    fresh.queue.list(&Filter::default(), JobId(0), 9).unwrap().iter().for_each(|job| {
        fresh.queue.ack(Lease { job: job.id, token: job.token }, "{}").unwrap();
    });
    fresh.clock.advance(100);
    fresh.queue.prune(Retention { done_ms: 100, dead_ms: 100 }).unwrap();
    fresh.queue.set_tenants(&[tenant("b")]).unwrap();
    assert_eq!(standing(&fresh.queue, "a"), None);
}

#[test]
fn jobs_are_listed_by_tenant_and_state() {
    let Some(fresh) = shared(&[tenant("a"), tenant("b")]) else { return };
    put_many(&fresh.queue, "a", 3);
    put_many(&fresh.queue, "b", 1);
    lease(&fresh.queue);
    let listed = |state, tenant: &str| {
        fresh.queue.list(&Filter { state, tenant: Some(tenant.into()) }, JobId(0), 9).unwrap().len()
    };
    assert_eq!((listed(None, "a"), listed(Some(State::Queued), "a"), listed(Some(State::Leased), "b")), (3, 2, 0));
}
