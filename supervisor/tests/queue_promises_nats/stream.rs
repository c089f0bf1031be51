//! What holds where there is a server that can go away, and several replicas.

use refmill_supervisor::queue::nats::LinkError;

use super::*;

/// Puts a job into the queue, as often as it takes while the server is away.
fn put_in_the_end(queue: &SqliteQueue, key: &str) -> JobId {
    loop {
        match queue.enqueue(&new(key)) {
            Ok(Enqueued::New(id) | Enqueued::Known(id, _)) => return id,
            Err(QueueError::Stream { source: LinkError::Away(_), .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn server_that_is_killed_and_restarted_has_lost_nothing() {
    let Some(mut fresh) = queue() else { return };
    fill(&fresh.queue, 20);
    let held = lease(&fresh.queue);
    let done = lease(&fresh.queue);
    fresh.queue.ack(done, r#"{"n":1}"#).unwrap();
    let before = seen(&fresh.queue);
    fresh.home.kill();
    fresh.home.restart();
    assert_eq!(seen(&fresh.queue), before);
    assert!(fresh.is_sound());
    fresh.queue.ack(held, "{}").unwrap();
    assert_eq!(std::iter::from_fn(|| claim(&fresh.queue)).count(), 18);
}

#[test]
fn jobs_that_are_put_and_done_while_the_server_is_killed_again_and_again_are_each_done_once() {
    let Some(mut fresh) = queue() else { return };
    let (place, clock) = (fresh.place.clone(), fresh.clock.clone());
    let put = {
        let (place, clock) = (place.clone(), clock.clone());
        thread::spawn(move || {
            let queue = opened(&place).with(clock, POLICY);
            for number in 0..300 {
                put_in_the_end(&queue, &number.to_string());
            }
        })
    };
    let work = |name: &'static str| {
        let (place, clock) = (place.clone(), clock.clone());
        thread::spawn(move || {
            let queue = opened(&place).with(clock, POLICY);
            let mut acked = Vec::new();
            let mut rest = 0;
            while rest < 40 {
                match queue.claim(name, LEASE) {
                    Ok(Some(claimed)) => {
                        rest = 0;
                        // Where the answer is lost, the same is said again.
                        while let Err(error) = queue.ack(claimed.lease, name) {
                            assert!(matches!(error, QueueError::Stream { .. }), "{error}");
                        }
                        acked.push(claimed.lease.job);
                    }
                    Ok(None) => {
                        rest += 1;
                        thread::sleep(Duration::from_millis(50));
                    }
                    Err(QueueError::Stream { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
            }
            acked
        })
    };
    let workers = [work("one"), work("two")];
    for _ in 0..4 {
        thread::sleep(Duration::from_millis(150));
        fresh.home.kill();
        thread::sleep(Duration::from_millis(100));
        fresh.home.restart();
    }
    put.join().unwrap();
    let acked: Vec<JobId> = workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect();
    // A claim whose answer never came is a lease that nobody knows of; it ends, as that of a holder that vanished.
    let lost = fresh.queue.list(&Filter { state: Some(State::Leased), tenant: None }, JobId(0), 999).unwrap();
    let unique: HashSet<_> = acked.iter().collect();
    assert_eq!(unique.len(), acked.len());
    assert_eq!(acked.len() + lost.len(), 300);
    assert!(lost.len() < 10, "{lost:?}");
    fresh.queue.reclaim(true).unwrap();
    fresh.clock.advance(8_000);
    assert_eq!(std::iter::from_fn(|| claim(&fresh.queue)).count(), lost.len());
    assert!(fresh.is_sound());
}

#[test]
fn lease_of_one_supervisor_that_ran_out_goes_to_another_one() {
    let Some(fresh) = queue() else { return };
    put(&fresh.queue, &new("a"));
    let held = lease(&fresh.queue);
    let other = fresh.again();
    assert!(claim(&other).is_none());
    fresh.clock.advance(i64::from(LEASE));
    assert!(claim(&other).is_none());
    fresh.clock.advance(1_000);
    assert!(claim(&other).unwrap().lease.token > held.token);
    assert!(is_stale(&fresh.queue.ack(held, "{}")));
}

#[test]
fn stream_that_was_made_anew_is_read_anew() {
    let Some(fresh) = queue() else { return };
    fill(&fresh.queue, 3);
    let other = place(&fresh.home.stream("other"));
    let kept = opened(&other);
    put(&kept, &new("kept"));
    fresh.home.remove("jobs");
    let _again = fresh.again();
    assert_eq!(seen(&fresh.queue).0, []);
    assert_eq!(put(&fresh.queue, &new("a")), JobId(1));
    assert_eq!(seen(&kept).0.len(), 1);
}

#[test]
fn consumer_counts_what_is_queued_or_leased() {
    let Some(fresh) = queue() else { return };
    fill(&fresh.queue, 5);
    let first = lease(&fresh.queue);
    assert_eq!(fresh.home.lag("jobs"), 5);
    fresh.queue.ack(first, "{}").unwrap();
    let second = lease(&fresh.queue);
    fresh.queue.nak(second, Fault::Failed(Blame::Input), "x", None).unwrap();
    // One request later, what is over has been asked to be removed, in this order.
    seen(&fresh.queue);
    assert_eq!(fresh.home.lag("jobs"), 3);
    fresh.queue.retry(second.job).unwrap();
    assert_eq!(fresh.home.lag("jobs"), 4);
}

#[test]
fn job_that_was_forgotten_does_not_come_back() {
    let Some(fresh) = queue() else { return };
    let id = put(&fresh.queue, &new("a"));
    fresh.queue.ack(lease(&fresh.queue), "{}").unwrap();
    fresh.clock.advance(100);
    assert_eq!(fresh.queue.prune(Retention { done_ms: 100, dead_ms: 100 }).unwrap(), 1);
    let other = fresh.again();
    assert!(matches!(other.job(id), Err(QueueError::Absent { .. })));
    assert!(put(&other, &new("a")) > id);
    assert!(fresh.is_sound());
}

#[test]
fn queue_that_is_not_there_is_made_only_where_that_is_wanted() {
    let Some(server) = Home::start() else { return };
    let refused = place(&server.stream("none")).open(Durability::Full, false);
    assert!(matches!(refused, Err(QueueError::NoStream { .. })), "{refused:?}");
}

#[test]
fn stream_of_something_else_is_refused() {
    let Some(server) = Home::start() else { return };
    server.ask("STREAM.CREATE.other", r#"{"name":"other","subjects":["other.>"],"storage":"file"}"#);
    let refused = place(&server.stream("other")).open(Durability::Full, true);
    let told = refused.unwrap_err().to_string();
    assert!(told.contains("stream other is no queue of refmill: its max_msgs_per_subject is not 1"), "{told}");
}

#[test]
fn message_of_a_later_refmill_is_refused() {
    let Some(fresh) = queue() else { return };
    fresh.home.publish("jobs.tenants", r#"{"form":99}"#);
    let refused = fresh.queue.counts().unwrap_err();
    assert!(matches!(refused, QueueError::Newer { found: 99, known: 1, .. }), "{refused}");
}

#[test]
fn user_and_password_and_token_open_the_door_and_nothing_else_does() {
    let access = |user: Option<(&str, &str)>, token: Option<&str>| Access {
        user: user.map(|(user, password)| (user.into(), password.into())),
        token: token.map(Into::into),
        ..Access::default()
    };
    let opens = |server: &Home, access| {
        let place = Place::named(Path::new(&server.stream("jobs")), access).unwrap();
        match place.open(Durability::Full, true) {
            Ok(_) => true,
            Err(QueueError::Stream { source: LinkError::Refused(_), .. }) => false,
            Err(error) => panic!("{error}"),
        }
    };
    let Some(server) = Home::start_with(&["--user", "mill", "--pass", "secret"]) else { return };
    assert!(opens(&server, access(Some(("mill", "secret")), None)));
    assert!(!opens(&server, access(Some(("mill", "wrong")), None)) && !opens(&server, Access::default()));
    let Some(server) = Home::start_with(&["--auth", "t0ken"]) else { return };
    assert!(opens(&server, access(None, Some("t0ken"))));
    assert!(!opens(&server, access(None, Some("wrong"))));
}

/// A certificate for 127.0.0.1 and the CA that signed it, in a folder: `ca.pem`, `server.pem`, `server.key`.
fn certificates() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let openssl = |arguments: &str| {
        let made = Command::new("openssl").args(arguments.split(' ')).current_dir(folder.path()).output().unwrap();
        assert!(made.status.success(), "{made:?}");
    };
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
    openssl(&format!("req -x509 {key} -keyout ca.key -out ca.pem -subj /CN=ours -days 2"));
    openssl(&format!("req {key} -keyout server.key -out server.csr -subj /CN=server"));
    std::fs::write(folder.path().join("names"), "subjectAltName=IP:127.0.0.1\n").unwrap();
    openssl("x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -out server.pem -days 2 -extfile names");
    folder
}

#[test]
fn encrypted_server_is_believed_by_its_own_ca_alone() {
    let folder = certificates();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let options = ["--tls", "--tlscert", &at("server.pem"), "--tlskey", &at("server.key")];
    let Some(server) = Home::start_with(&options) else { return };
    let address = server.stream("jobs").replace("nats://", "tls://");
    let opens = |ca: Option<&str>| {
        let access = Access { ca: ca.map(|name| at(name).into()), ..Access::default() };
        Place::named(Path::new(&address), access).unwrap().open(Durability::Full, true).map(drop)
    };
    opens(Some("ca.pem")).unwrap();
    assert!(matches!(opens(None), Err(QueueError::Stream { .. })));
}
