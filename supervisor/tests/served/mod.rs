//! A folder with a queue, and `refmill` run in it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use refmill_supervisor::queue::sqlite::Durability;
use refmill_supervisor::queue::{Filter, Job, JobId, Queue, SqliteQueue};

pub struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    pub fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Puts a sound image of a few bytes there.
    pub fn image(&self, name: &str) {
        let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/images/rgba.png");
        fs::copy(fixture, self.path(name)).unwrap();
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let program = Path::new(env!("CARGO_BIN_EXE_refmill"));
        assert!(program.with_file_name("refmill-worker").is_file(), "build the worker first");
        let mut command = Command::new(program);
        command.args(arguments).current_dir(self.folder.path()).stdin(Stdio::null());
        command
    }

    pub fn refmill(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// Starts a server that says what it says into a file.
    #[allow(dead_code, reason = "not every suite starts servers that way")]
    pub fn serve(&self, arguments: &[&str]) -> Child {
        self.serve_only(&[&["--device", "cpu", "--workers", "2", "--backoff", "10"], arguments].concat())
    }

    /// The same, with nothing said about devices.
    pub fn serve_only(&self, arguments: &[&str]) -> Child {
        let log = fs::File::options().create(true).append(true).open(self.path("log")).unwrap();
        self.command(&[&["serve"], arguments].concat()).stderr(log).spawn().unwrap()
    }

    #[allow(dead_code, reason = "not every suite has its queue in the folder")]
    pub fn queue(&self) -> SqliteQueue {
        SqliteQueue::open(&self.path("refmill.db"), Durability::Process, false).unwrap()
    }

    #[allow(dead_code, reason = "not every suite has its queue in the folder")]
    pub fn jobs(&self) -> Vec<Job> {
        self.queue().list(&Filter::default(), JobId(0), 100_000).unwrap()
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    /// Names of what was left half written in the output folder.
    #[allow(dead_code, reason = "not every suite that has a place looks for it")]
    pub fn half_written(&self) -> Vec<String> {
        let entries = fs::read_dir(self.path("out")).into_iter().flatten();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.starts_with(".refmill-")).collect()
    }

    #[allow(dead_code, reason = "not every suite that has a place looks for it")]
    /// Names in the output folder, sorted, without the hash and without what was left half written.
    pub fn published(&self) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.path("out")) else { return Vec::new() };
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names
            .filter(|name| !name.starts_with(".refmill-"))
            .map(|name| name.split_once('-').map(|(stem, rest)| format!("{stem}{}", rest.get(12..).unwrap())).unwrap())
            .collect();
        names.sort();
        names
    }
}

pub fn signal(pid: u32, signal: Signal) {
    // It may have ended by itself.
    kill(Pid::from_raw(pid.try_into().unwrap()), signal).ok();
}

/// The processes that `pid` started and that still run.
#[allow(dead_code, reason = "not every suite kills workers")]
pub fn children(pid: u32) -> Vec<u32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let lists = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    let all = lists.flat_map(|list| list.split_whitespace().map(|pid| pid.parse().unwrap()).collect::<Vec<u32>>());
    // Between fork and exec a child is still the supervisor's own program; stopped there, it would stop its parent.
    let is_worker =
        |pid: &u32| fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name == "refmill-worker\n");
    all.filter(is_worker).collect()
}
