//! What a service manager hears, and how a server ends.

use std::os::unix::net::UnixDatagram;
use std::process::{Child, Stdio};
use std::time::Duration;

use nix::sys::signal::Signal;
use refmill_supervisor::queue::{Queue, State};

use super::served::{Place, signal};
use super::{drain, standing, submit, wait_for};

/// A server under a manager that waits 600 ms for a sign of life.
fn managed(place: &Place) -> (Child, UnixDatagram) {
    let manager = UnixDatagram::bind(place.path("notify")).unwrap();
    manager.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    std::fs::write(place.path("refmill.toml"), "").unwrap();
    let mut command = place.command(&["serve", "--device", "cpu", "--workers", "1", "--config", "refmill.toml"]);
    let log = std::fs::File::create(place.path("log")).unwrap();
    command.env("NOTIFY_SOCKET", place.path("notify")).env("WATCHDOG_USEC", "600000").stderr(log);
    (command.stdout(Stdio::null()).spawn().unwrap(), manager)
}

fn next(manager: &UnixDatagram) -> String {
    let mut bytes = [0; 512];
    let length = manager.recv(&mut bytes).unwrap();
    String::from_utf8(bytes[..length].to_vec()).unwrap()
}

/// What comes until `word` has come `times` times.
fn until(manager: &UnixDatagram, word: &str, times: usize) -> Vec<String> {
    let mut heard = Vec::new();
    while heard.iter().filter(|state| *state == word).count() < times {
        heard.push(next(manager));
    }
    heard
}

#[test]
fn manager_hears_of_readiness_life_reload_and_end() {
    let place = Place::new();
    let (mut server, manager) = managed(&place);
    until(&manager, "READY=1", 1);
    until(&manager, "WATCHDOG=1", 2);
    signal(server.id(), Signal::SIGHUP);
    until(&manager, "RELOADING=1", 1);
    until(&manager, "READY=1", 1);
    signal(server.id(), Signal::SIGTERM);
    until(&manager, "STOPPING=1", 1);
    assert_eq!(server.wait().unwrap().code(), Some(0));
}

#[test]
fn no_sign_of_life_comes_while_the_queue_does_not_move() {
    let place = Place::new();
    let (mut server, manager) = managed(&place);
    until(&manager, "WATCHDOG=1", 1);
    let other = rusqlite::Connection::open(place.path("refmill.db")).unwrap();
    other.busy_timeout(Duration::from_secs(10)).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    wait_for("a complaint", || place.log().contains("no progress: cannot take the queue's lock").then_some(()));
    let mut heard = until(&manager, "STATUS=no progress: cannot take the queue's lock: database is locked", 1);
    heard.retain(|state| state == "WATCHDOG=1");
    // One may have been on its way, and one more been decided on.
    assert!(heard.len() <= 2, "{heard:?}");
    other.execute_batch("COMMIT").unwrap();
    until(&manager, "WATCHDOG=1", 2);
    signal(server.id(), Signal::SIGTERM);
    server.wait().unwrap();
}

#[test]
fn second_signal_ends_at_once_and_the_next_server_does_what_was_in_hand() {
    let place = Place::new();
    let (mut server, _) = standing(&place, &[]);
    signal(server.id(), Signal::SIGTERM);
    wait_for("its word", || place.log().contains("asked to end").then_some(()));
    signal(server.id(), Signal::SIGTERM);
    assert_eq!(server.wait().unwrap().code(), Some(130));
    assert_eq!(place.jobs()[0].state, State::Leased);
    assert_eq!((drain(&place, &[]), place.jobs()[0].state), (Some(0), State::Done));
}

#[test]
fn files_that_a_killed_server_left_half_written_are_removed_and_others_are_not() {
    let place = Place::new();
    submit(&place, &["a.png"]);
    place.queue().claim("somebody who is gone", 60_000).unwrap();
    std::fs::create_dir(place.path("out")).unwrap();
    let names = [".refmill-aB3xYz", ".refmill-mine", "b.png"].map(|name| place.path("out").join(name));
    names.iter().for_each(|path| std::fs::write(path, "half").unwrap());
    assert_eq!(drain(&place, &[]), Some(0));
    assert_eq!(names.map(|path| path.exists()), [false, true, true]);
    assert!(place.log().contains("1 half-written files of a killed supervisor removed in "), "{}", place.log());
}
