//! Tenants from outside: what `submit` refuses, and what one tenant's jobs cost the others.
use std::fs;

use super::fake_worker;
use super::served::Place;
use refmill_supervisor::queue::sqlite::Durability;
use refmill_supervisor::queue::{Queue, SqliteQueue, State, Tenant};

/// A place whose queue has these tenants.
fn shared(tenants: &[Tenant]) -> Place {
    let place = Place::new();
    let queue = SqliteQueue::open(&place.path("refmill.db"), Durability::Process, true).unwrap();
    queue.set_tenants(tenants).unwrap();
    place
}

fn submit(place: &Place, tenant: &str, names: &[&str]) -> std::process::Output {
    names.iter().for_each(|name| fs::write(place.path(name), name).unwrap());
    place.refmill(&[&["submit", "--json", "--no-image", "--no-tensors", "--tenant", tenant], names].concat())
}

/// The error codes of the answers, in their order; none for a job that was taken.
fn codes(output: &std::process::Output) -> Vec<Option<String>> {
    let lines = std::str::from_utf8(&output.stdout).unwrap().lines();
    let answers = lines.map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    answers.map(|answer| answer["error"]["code"].as_str().map(ToOwned::to_owned)).collect()
}

#[test]
fn submission_over_the_cap_is_refused_with_its_code_and_exit_code() {
    let place = shared(&[Tenant { max_queued: Some(1), ..Tenant::open("a") }]);
    let submitted = submit(&place, "a", &["1.jpg", "2.jpg"]);
    assert_eq!((submitted.status.code(), codes(&submitted)), (Some(5), vec![None, Some("queue_full".into())]));
}

#[test]
fn submission_for_nobody_is_refused_with_its_code() {
    let place = shared(&[Tenant::open("a")]);
    let submitted = submit(&place, "b", &["1.jpg"]);
    assert_eq!((submitted.status.code(), codes(&submitted)), (Some(3), vec![Some("tenant_unknown".into())]));
}

#[test]
fn poison_of_one_tenant_costs_another_nothing() {
    let place = shared(&[Tenant::open("a"), Tenant::open("b")]);
    submit(&place, "a", &["1.crash", "2.crash", "3.crash"]);
    submit(&place, "b", &["1.ok", "2.ok", "3.ok"]);
    let drained =
        place.serve(&["--drain", "--worker", fake_worker().to_str().unwrap(), "--sandbox=off"]).wait().unwrap();
    let jobs = place.jobs();
    let of = |tenant: &str| jobs.iter().filter(|job| job.tenant == tenant).map(|job| job.state).collect::<Vec<_>>();
    assert_eq!((drained.code(), of("a"), of("b")), (Some(1), vec![State::Dead; 3], vec![State::Done; 3]));
    assert!(jobs.iter().filter(|job| job.tenant == "b").all(|job| job.deliveries == 1), "{}", place.log());
}

#[test]
fn jobs_are_listed_and_counted_by_tenant() {
    let place = shared(&[Tenant::open("a"), Tenant { max_running: Some(6), ..Tenant::open("b") }]);
    submit(&place, "a", &["1.jpg"]);
    submit(&place, "b", &["1.jpg", "2.jpg"]);
    let listed = place.refmill(&["jobs", "list", "--tenant", "b", "--state", "queued", "--json"]);
    assert_eq!(std::str::from_utf8(&listed.stdout).unwrap().lines().count(), 2);
    let status: serde_json::Value = serde_json::from_slice(&place.refmill(&["status", "--json"]).stdout).unwrap();
    let of = |place: usize| (&status["tenants"][place]["name"], &status["tenants"][place]["queued"]);
    assert_eq!((of(0), of(1)), ((&"a".into(), &1.into()), (&"b".into(), &2.into())));
    let text = place.refmill(&["status"]).stdout;
    assert!(std::str::from_utf8(&text).unwrap().contains("2 queued  0 of 6 leased"), "{text:?}");
}
