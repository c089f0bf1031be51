//! A client of the bytes on the wire, and a server to ask.

use std::fs;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::process::Child;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::served::{Place, signal};

/// No server takes so long for anything.
const DEADLINE: Duration = Duration::from_secs(120);

/// Waits until `found` finds something.
pub fn wait_for<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + DEADLINE;
    loop {
        match found() {
            Some(found) => return found,
            None => assert!(Instant::now() < deadline, "{what} did not come about"),
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// An answer.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("{self:?}"))
    }

    /// Status and code of a problem, which must be one by its type.
    #[track_caller]
    pub fn problem(&self) -> (u16, String) {
        assert!(self.head.contains("content-type: application/problem+json"), "{}", self.head);
        let problem = self.json();
        assert_eq!(problem["status"], self.status);
        assert!(problem["type"].is_string() && problem["title"].is_string() && problem["detail"].is_string());
        (self.status, problem["code"].as_str().unwrap().to_owned())
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        let line = self.head.lines().find_map(|line| line.split_once(": ").filter(|(key, _)| *key == name));
        line.map(|(_, value)| value)
    }
}

/// Sends one request and reads its answer to the end of the connection.
pub fn exchange(mut stream: impl Read + Write, request: &[u8]) -> Answer {
    // A server that has seen enough may have closed its side; what it said can still be read.
    stream.write_all(request).ok();
    answer(stream)
}

/// Reads an answer to the end of the connection.
pub fn answer(mut stream: impl Read) -> Answer {
    let mut all = Vec::new();
    io::copy(&mut stream, &mut all).ok();
    let end = all.windows(4).position(|window| window == b"\r\n\r\n").unwrap_or_else(|| panic!("{all:?}"));
    let head = String::from_utf8(all[..end].to_vec()).unwrap();
    let body = all[end + 4..].to_vec();
    Answer { status: head.split(' ').nth(1).unwrap().parse().unwrap(), head, body }
}

/// A request with a body of this type; without a type there is none.
pub fn request(line: &str, token: &str, kind: &str, body: &[u8]) -> Vec<u8> {
    let token = if token.is_empty() { String::new() } else { format!("Authorization: Bearer {token}\r\n") };
    let kind = if kind.is_empty() {
        String::new()
    } else {
        format!("Content-Type: {kind}\r\nContent-Length: {}\r\n", body.len())
    };
    let head = format!("{line} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{token}{kind}\r\n");
    [head.as_bytes(), body].concat()
}

/// A `refmill serve` that answers HTTP.
pub struct Server {
    pub place: Place,
    pub port: u16,
    process: Child,
}

impl Server {
    /// Starts it with this configuration; it listens where the kernel likes.
    pub fn start(config: &str) -> Self {
        Self::start_in(Place::new(), config, &[])
    }

    pub fn start_in(place: Place, config: &str, variables: &[(&str, &str)]) -> Self {
        fs::write(place.path("refmill.toml"), config).unwrap();
        let (process, port) = spawn(&place, variables);
        Self { place, port, process }
    }

    /// Ends it at once and starts it again.
    #[allow(dead_code, reason = "not every suite kills it")]
    pub fn restart(&mut self, variables: &[(&str, &str)]) {
        self.kill();
        (self.process, self.port) = spawn(&self.place, variables);
    }

    pub fn kill(&mut self) {
        signal(self.process.id(), Signal::SIGKILL);
        self.process.wait().unwrap();
    }

    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    pub fn wait(&mut self) -> Option<i32> {
        self.process.wait().unwrap().code()
    }

    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        stream
    }

    pub fn get(&self, path: &str, token: &str) -> Answer {
        exchange(self.connect(), &request(&format!("GET {path}"), token, "", b""))
    }

    #[allow(dead_code, reason = "not every suite posts")]
    pub fn post(&self, path: &str, token: &str, body: &str) -> Answer {
        let request = request(&format!("POST {path}"), token, "application/json", body.as_bytes());
        exchange(self.connect(), &request)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // After it was waited for there is nothing to kill.
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

fn spawn(place: &Place, variables: &[(&str, &str)]) -> (Child, u16) {
    let log = fs::File::options().create(true).append(true).open(place.path("log")).unwrap();
    let before = place.log().len();
    let line = ["serve", "--config", "refmill.toml", "--device", "cpu", "--workers", "2", "--backoff", "10"];
    let mut command = place.command(&line);
    command.envs(variables.iter().copied()).stderr(log);
    let mut process = command.spawn().unwrap();
    let port = wait_for("an address", || {
        let log = place.log();
        let said = &log[before..];
        assert!(process.try_wait().unwrap().is_none(), "{said}");
        let (_, rest) = said.split_once("listens at http://127.0.0.1:")?;
        rest.split_once('\n')?.0.parse().ok()
    });
    wait_for("readiness", || place.log()[before..].contains("ready on").then_some(()));
    (process, port)
}
