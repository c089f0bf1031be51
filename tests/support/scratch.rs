//! A folder of a test's own, and refmill run in it.

use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use refmill::report::Report;
use tempfile::TempDir;

use super::bins;
use super::fixtures::fixture;
use super::running::{Ended, Running};

/// The folder; removed with everything in it at the end of the test.
#[derive(Debug)]
pub struct Scratch(TempDir);

impl Scratch {
    pub fn new() -> Self {
        Self(tempfile::Builder::new().prefix("black-box-").tempdir().unwrap())
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes a file, and the folders above it.
    pub fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        path
    }

    /// Copies a fixture to `name`.
    pub fn copy(&self, name: &str, from: &str) -> PathBuf {
        self.write(name, fs::read(fixture(from)).unwrap())
    }

    pub fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).unwrap_or_else(|error| panic!("{name}: {error}; there are {:?}", self.names("")))
    }

    pub fn exists(&self, name: &str) -> bool {
        self.path(name).symlink_metadata().is_ok()
    }

    /// The report that was written to `name`.
    pub fn report(&self, name: &str) -> Report {
        serde_json::from_slice(&self.read(name)).unwrap()
    }

    /// What lies in a folder, sorted.
    pub fn names(&self, folder: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path(folder)).unwrap();
        let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// refmill with these arguments and nothing on standard input, to its end.
    pub fn refmill<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Ended {
        self.start(arguments).end()
    }

    /// `refmill run` on the CPU, which is there on every machine.
    pub fn run<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Ended {
        self.start_run(arguments).end()
    }

    /// `refmill run` on the CPU with `bytes` on standard input.
    pub fn run_with_stdin<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>, bytes: &[u8]) -> Ended {
        let mut running = self.start_run(arguments);
        running.feed(bytes);
        running.end()
    }

    /// As [`Scratch::run`], not waited for; standard input stays open until it is fed or waited for.
    pub fn start_run<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Running {
        let mut command = self.command();
        command.args(["run", "--device", "cpu"]).args(arguments);
        Running::start(command)
    }

    fn start<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Running {
        let mut command = self.command();
        command.args(arguments);
        Running::start(command)
    }

    fn command(&self) -> Command {
        let mut command = Command::new(bins::refmill());
        command.current_dir(self.0.path());
        command
    }

    /// A shell script that stands in for the worker: `first`, then the worker itself in the same process.
    pub fn worker_after(&self, first: &str) -> PathBuf {
        use std::os::unix::fs::PermissionsExt;
        let path = self.path("worker.sh");
        let mut file = fs::File::create(&path).unwrap();
        write!(file, "#!/bin/sh\n{first}\nexec '{}' \"$@\"\n", bins::worker().display()).unwrap();
        file.set_permissions(fs::Permissions::from_mode(0o755)).unwrap();
        path
    }
}

/// The last part of a path, for comparing reports.
pub fn file_name(path: &str) -> &str {
    Path::new(path).file_name().and_then(OsStr::to_str).unwrap()
}
