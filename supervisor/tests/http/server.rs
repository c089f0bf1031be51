//! What holds for every request: bounds, health, problems, the socket.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;

use nix::sys::signal::Signal;
use refmill_supervisor::queue::State;

use crate::client::{Server, answer, exchange, request, wait_for};
use crate::served::{Place, children, signal};

const LISTEN: &str = "[http]\nlisten = \"127.0.0.1:0\"\n";

#[test]
fn server_listens_nowhere_unless_it_is_configured() {
    let place = Place::new();
    assert_eq!(place.serve(&["--drain"]).wait().unwrap().code(), Some(0));
    assert!(!place.log().contains("listens at"), "{}", place.log());
}

#[test]
fn health_needs_no_token_and_readiness_ends_with_the_wish_to_end() {
    let mut server = Server::start(LISTEN);
    let alive = server.get("/healthz", "");
    assert_eq!((alive.status, alive.json()["status"].as_str()), (200, Some("alive")));
    let ready = server.get("/readyz", "");
    assert_eq!((ready.status, ready.json()["status"].as_str()), (200, Some("ready")));
    // Workers that stand still keep the server from ending.
    let workers = children(server.pid());
    workers.iter().for_each(|worker| signal(*worker, Signal::SIGSTOP));
    server.place.image("a.png");
    assert!(server.place.refmill(&["submit", "--recipe", "clip", "a.png"]).status.success());
    wait_for("a lease", || server.place.jobs().first().filter(|job| job.state == State::Leased).map(drop));
    signal(server.pid(), Signal::SIGTERM);
    let ends = wait_for("the end of readiness", || Some(server.get("/readyz", "")).filter(|said| said.status != 200));
    assert_eq!(ends.problem(), (503, "not_ready".into()));
    assert_eq!(ends.header("retry-after"), Some("5"));
    assert_eq!(server.get("/healthz", "").status, 200);
    workers.iter().for_each(|worker| signal(*worker, Signal::SIGCONT));
    assert_eq!(server.wait(), Some(0));
}

#[test]
fn what_is_not_there_and_what_cannot_be_read_are_problems() {
    let server = Server::start(LISTEN);
    assert_eq!(server.get("/nothing", "").problem(), (404, "not_found".into()));
    let posted = exchange(server.connect(), &request("POST /healthz", "", "text/plain", b"x"));
    assert_eq!(posted.problem(), (405, "method_not_allowed".into()));
    assert_eq!(exchange(server.connect(), b"GET / HTTP/9\r\n\r\n").status, 400);
}

#[test]
fn head_that_does_not_come_to_an_end_is_not_waited_for() {
    let server = Server::start(&format!("{LISTEN}timeout_s = 1\n"));
    let mut slow = server.connect();
    slow.write_all(b"GET /healthz HTTP/1.1\r\nX-Slow: ").unwrap();
    // What it says, if anything, ends with the connection.
    let mut rest = [0; 1_024];
    while slow.read(&mut rest).is_ok_and(|bytes| bytes > 0) {}
    assert_eq!(server.get("/healthz", "").status, 200);
}

#[test]
fn head_that_is_too_long_is_refused() {
    let server = Server::start(LISTEN);
    let long = format!("GET /healthz HTTP/1.1\r\nX-Long: {}\r\n\r\n", "x".repeat(1 << 20));
    assert_eq!(exchange(server.connect(), long.as_bytes()).status, 431);
}

#[test]
fn connection_over_the_limit_waits_until_another_ends() {
    let server = Server::start(&format!("{LISTEN}connections = 2\n"));
    let held: Vec<TcpStream> = (0..2).map(|_| server.connect()).collect();
    let mut third = server.connect();
    third.write_all(&request("GET /healthz", "", "", b"")).unwrap();
    third.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    assert!(third.read(&mut [0]).is_err(), "answered beside two others");
    drop(held);
    third.set_read_timeout(None).unwrap();
    assert_eq!(answer(third).status, 200);
}

#[test]
fn socket_is_this_users_own_replaces_a_dead_one_and_goes_with_the_server() {
    let place = Place::new();
    let path = place.path("refmill.sock");
    // As a server that was killed leaves it.
    drop(UnixListener::bind(&path).unwrap());
    let mut server = Server::start_in(place, &format!("{LISTEN}socket = \"refmill.sock\"\n"), &[]);
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let asked = exchange(UnixStream::connect(&path).unwrap(), &request("GET /readyz", "", "", b""));
    assert_eq!(asked.status, 200);
    let second = server.place.refmill(&["serve", "--config", "refmill.toml", "--queue", "other.db", "--device", "cpu"]);
    let told = String::from_utf8(second.stderr).unwrap();
    assert!(second.status.code() == Some(2) && told.contains("somebody listens there already"), "{told}");
    signal(server.pid(), Signal::SIGTERM);
    assert_eq!((server.wait(), path.exists()), (Some(0), false));
}

#[test]
fn file_in_the_place_of_the_socket_is_left_alone() {
    let place = Place::new();
    fs::write(place.path("refmill.toml"), "[http]\nsocket = \"notes\"\n").unwrap();
    fs::write(place.path("notes"), "mine").unwrap();
    let refused = place.refmill(&["serve", "--config", "refmill.toml", "--device", "cpu"]);
    let told = String::from_utf8(refused.stderr).unwrap();
    assert!(refused.status.code() == Some(2) && told.contains("cannot listen at notes: a file that is no"), "{told}");
    assert_eq!(fs::read_to_string(place.path("notes")).unwrap(), "mine");
}

#[test]
fn token_that_is_short_or_nowhere_ends_the_start() {
    let place = Place::new();
    let started = |token: &str| {
        fs::write(place.path("refmill.toml"), format!("{LISTEN}[[http.token]]\n{token}\n")).unwrap();
        let refused = place.refmill(&["serve", "--config", "refmill.toml", "--device", "cpu"]);
        assert_eq!(refused.status.code(), Some(2));
        String::from_utf8(refused.stderr).unwrap()
    };
    fs::write(place.path("short"), "secret\n").unwrap();
    let told = started("file = \"short\"");
    assert!(told.contains("token in short is none: it takes at least 16") && !told.contains("secret"), "{told}");
    assert!(started("file = \"missing\"").contains("cannot read missing: No such file"));
    assert!(started("variable = \"REFMILL_NO_SUCH\"").contains("variable REFMILL_NO_SUCH"));
}
