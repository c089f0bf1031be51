//! The servers and clients that tests talk to, each a process that ends with its owner.

use std::ffi::OsString;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

pub const BUCKET: &str = "pictures";
pub const KEY: &str = "GK31c2f218a2e44f485b94239e";
pub const SECRET: &str = "b892c0665f0ada8a4755dae98baa3b133590e11dae3bcc1f9d769d67f16c3835";
/// No server takes so long to start.
const DEADLINE: Duration = Duration::from_secs(60);

fn python() -> OsString {
    std::env::var_os("REFMILL_TEST_PYTHON").unwrap_or_else(|| "python3".into())
}

fn program() -> OsString {
    std::env::var_os("REFMILL_TEST_S3_SERVER").unwrap_or_else(|| "garage".into())
}

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/store").join(name)
}

/// Says aloud that a test does not run, and why. With `CI` set it fails instead.
fn skipped(why: &str) {
    assert!(std::env::var_os("CI").is_none(), "{why}");
    eprintln!("skipped: {why}");
}

fn free_port() -> u16 {
    TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port()
}

/// A process that ends with its owner.
pub struct Owned(pub Child);

impl Drop for Owned {
    fn drop(&mut self) {
        // After it was waited for there is nothing to kill.
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// One node of Garage with one bucket, and a client for it.
pub struct Server {
    folder: tempfile::TempDir,
    process: Option<Owned>,
    port: u16,
    client: Client,
}

struct Client {
    _process: Owned,
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Server {
    /// None, said aloud, where the programs are missing.
    pub fn start() -> Option<Self> {
        let runs = |command: &mut Command| command.output().is_ok_and(|output| output.status.success());
        if !runs(Command::new(program()).arg("--version")) {
            skipped("there is no S3 server: `cargo install garage --locked`, and set REFMILL_TEST_S3_SERVER");
            return None;
        }
        if !runs(Command::new(python()).args(["-c", "import boto3"])) {
            skipped("python has no boto3: `pip install boto3`, and set REFMILL_TEST_PYTHON");
            return None;
        }
        let (folder, port) = (tempfile::tempdir().unwrap(), free_port());
        let at = |name: &str| folder.path().join(name).display().to_string();
        let config = format!(
            "metadata_dir = \"{}\"\ndata_dir = \"{}\"\ndb_engine = \"sqlite\"\nreplication_factor = 1\n\
             rpc_bind_addr = \"127.0.0.1:{}\"\nrpc_secret = \"{SECRET}\"\n\
             [s3_api]\ns3_region = \"garage\"\napi_bind_addr = \"127.0.0.1:{port}\"\n",
            at("meta"),
            at("data"),
            free_port(),
        );
        fs::write(folder.path().join("garage.toml"), config).unwrap();
        let process = Some(spawn(&folder, port));
        let client = Client::start(port);
        Some(Self { folder, process, port, client })
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn kill(&mut self) {
        drop(self.process.take());
    }

    pub fn restart(&mut self) {
        self.process = Some(spawn(&self.folder, self.port));
    }

    pub fn put(&mut self, key: &str, file: &Path) {
        self.client.ask(&json!(["put", BUCKET, key, file]));
    }

    /// Objects `PREFIX00000.png` and so on, all with the bytes of one file.
    pub fn copies(&mut self, prefix: &str, count: usize, file: &Path) {
        self.client.ask(&json!(["copies", BUCKET, prefix, count, file]));
    }

    pub fn delete(&mut self, key: &str) {
        self.client.ask(&json!(["delete", BUCKET, key]));
    }

    pub fn get(&mut self, key: &str) -> Vec<u8> {
        let file = self.folder.path().join("got");
        self.client.ask(&json!(["get", BUCKET, key, file]));
        fs::read(file).unwrap()
    }

    /// Keys and ETags, sorted.
    pub fn list(&mut self, prefix: &str) -> Vec<(String, String)> {
        serde_json::from_value(self.client.ask(&json!(["list", BUCKET, prefix]))).unwrap()
    }

    pub fn keys(&mut self, prefix: &str) -> Vec<String> {
        self.list(prefix).into_iter().map(|(key, _)| key).collect()
    }
}

fn spawn(folder: &tempfile::TempDir, port: u16) -> Owned {
    let log = fs::File::options().create(true).append(true).open(folder.path().join("log")).unwrap();
    let mut command = Command::new(program());
    command.arg("-c").arg(folder.path().join("garage.toml")).args(["server", "--single-node", "--default-bucket"]);
    command.env("GARAGE_DEFAULT_BUCKET", BUCKET);
    command.env("GARAGE_DEFAULT_ACCESS_KEY", KEY).env("GARAGE_DEFAULT_SECRET_KEY", SECRET);
    command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
    let mut process = Owned(command.spawn().unwrap());
    let deadline = Instant::now() + DEADLINE;
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        let ended = process.0.try_wait().unwrap();
        let log = || fs::read_to_string(folder.path().join("log")).unwrap_or_default();
        assert!(ended.is_none() && Instant::now() < deadline, "the server did not start: {ended:?} {}", log());
        thread::sleep(Duration::from_millis(20));
    }
    process
}

impl Client {
    fn start(port: u16) -> Self {
        let mut command = Command::new(python());
        command.arg(script("objects.py")).arg(format!("http://127.0.0.1:{port}")).args([KEY, SECRET]);
        let mut process = Owned(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap());
        let (commands, answers) = (process.0.stdin.take().unwrap(), process.0.stdout.take().unwrap());
        Self { _process: process, commands, answers: BufReader::new(answers) }
    }

    fn ask(&mut self, command: &Value) -> Value {
        writeln!(self.commands, "{command}").unwrap();
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        let answer: Value = serde_json::from_str(&line).unwrap();
        answer.get("ok").cloned().unwrap_or_else(|| panic!("{command}: {answer}"))
    }
}

/// What stands between refmill and a server.
pub struct Proxy {
    _process: Owned,
    pub port: u16,
}

impl Proxy {
    pub fn start(server: u16, options: &[&str]) -> Self {
        let mut command = Command::new(python());
        command.arg(script("proxy.py")).arg(server.to_string()).args(options);
        let mut process = Owned(command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap());
        let mut line = String::new();
        BufReader::new(process.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Self { _process: process, port: line.trim().parse().unwrap() }
    }
}
