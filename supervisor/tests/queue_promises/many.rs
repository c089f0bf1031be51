//! Threads and processes at one queue.

use super::*;

#[test]
fn threads_that_claim_at_once_never_get_the_same_job() {
    let Some(fresh) = queue() else { return };
    fill(&fresh.queue, 400);
    let taken = || {
        let queue = fresh.again();
        std::iter::from_fn(move || claim(&queue).map(|claimed| claimed.lease.job)).collect::<Vec<_>>()
    };
    let jobs: Vec<JobId> = thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(taken)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!((jobs.len(), jobs.iter().collect::<HashSet<_>>().len()), (400, 400));
}

/// The stand-in for another process, which cargo builds beside the tests.
fn other(place: &Place, what: &str) -> Child {
    let test = std::env::current_exe().unwrap();
    let program = test.parent().and_then(Path::parent).unwrap().join("examples/queue_client");
    assert!(program.is_file(), "{} is not built; build the package's examples", program.display());
    Command::new(program).arg(place.to_string()).arg(what).stdout(Stdio::piped()).spawn().unwrap()
}

#[test]
fn processes_that_claim_at_once_never_get_the_same_job() {
    let Some(fresh) = queue() else { return };
    fill(&fresh.queue, 300);
    let clients: Vec<Child> = (0..3).map(|_| other(&fresh.place, "claim")).collect();
    let claimed: String = clients
        .into_iter()
        .map(|client| String::from_utf8(client.wait_with_output().unwrap().stdout).unwrap())
        .collect();
    let jobs: Vec<&str> = claimed.lines().collect();
    assert_eq!((jobs.len(), jobs.iter().collect::<HashSet<_>>().len()), (300, 300));
}

#[test]
fn process_killed_in_the_middle_of_anything_leaves_a_sound_queue() {
    let Some(fresh) = queue() else { return };
    let kept = put(&fresh.queue, &NewJob { priority: -9, ..new("kept") });
    (0..12).for_each(|round| {
        let mut client = other(&fresh.place, "churn");
        thread::sleep(Duration::from_millis(60 + round * 7));
        client.kill().unwrap();
        client.wait().unwrap();
    });
    assert!(fresh.is_sound());
    let standing = fresh.queue.tenants().unwrap().remove(0);
    let counts = fresh.queue.counts().unwrap();
    let count = |state| counts.iter().find(|count| count.state == state).map_or(0, |count| count.jobs);
    assert_eq!((standing.queued, standing.leased), (count(State::Queued), count(State::Leased)));
    // The number tells that there was much to interrupt: most of it is forgotten by now.
    let next = put(&fresh.queue, &new("next"));
    assert!(state(&fresh.queue, kept) == State::Queued && next > JobId(24), "{next}");
}
