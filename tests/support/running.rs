//! A program while it runs and after it ended. It never outlives its test: past the deadline it is killed.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use refmill::report::Report;

/// No test comes near it; a program that hangs does.
const DEADLINE: Duration = Duration::from_secs(180);
const STEP: Duration = Duration::from_millis(5);

/// A program that was started. Its output goes to files, so that it never waits for its reader.
#[derive(Debug)]
pub struct Running {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: File,
    stderr: File,
    deadline: Instant,
}

/// How a program ended.
#[derive(Debug)]
pub struct Ended {
    /// The exit code; none where a signal ended it.
    pub code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    pub stdout: Vec<u8>,
    pub stderr: String,
}

impl Running {
    pub fn start(mut command: Command) -> Self {
        let (stdout, stderr) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
        command.stdin(Stdio::piped()).stdout(stdout.try_clone().unwrap()).stderr(stderr.try_clone().unwrap());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let stdin = child.stdin.take();
        Self { child, stdin, stdout, stderr, deadline: Instant::now() + DEADLINE }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Writes all of standard input and closes it.
    pub fn feed(&mut self, bytes: &[u8]) {
        let mut stdin = self.stdin.take().expect("standard input was closed");
        // A program that has ended reads no more: its exit code tells more than this error.
        stdin.write_all(bytes).ok();
    }

    /// Waits until `found` finds something.
    pub fn wait_for<T>(&mut self, what: &str, mut found: impl FnMut() -> Option<T>) -> T {
        loop {
            if let Some(found) = found() {
                return found;
            }
            if Instant::now() > self.deadline {
                panic!("{what} did not come about; standard error: {}", text(&self.stderr));
            }
            thread::sleep(STEP);
        }
    }

    /// Waits until this many whole lines are on standard output, and gives them.
    pub fn lines(&mut self, count: usize) -> Vec<String> {
        let stdout = self.stdout.try_clone().unwrap();
        self.wait_for("a line", || {
            let text = text(&stdout);
            let lines: Vec<String> = text.split_inclusive('\n').map(str::to_owned).collect();
            (lines.iter().filter(|line| line.ends_with('\n')).count() >= count).then_some(lines)
        })
    }

    /// Waits until a worker of this program has closed its confinement, and gives its process id.
    pub fn worker(&mut self) -> u32 {
        let parent = self.pid();
        self.wait_for("a worker", || {
            children(parent).into_iter().find(|&child| status(child, "Seccomp").as_deref() == Some("2"))
        })
    }

    /// Closes standard input and waits for the end.
    pub fn end(mut self) -> Ended {
        drop(self.stdin.take());
        while self.child.try_wait().unwrap().is_none() {
            if Instant::now() > self.deadline {
                panic!("no end within {DEADLINE:?}; standard error: {}", text(&self.stderr));
            }
            thread::sleep(STEP);
        }
        let status = self.child.wait().unwrap();
        let stdout = bytes(&self.stdout);
        let stderr = text(&self.stderr);
        Ended { code: status.code(), signal: status.signal(), stdout, stderr }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // After `end` there is nothing to kill and the errors say so.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

impl Ended {
    /// Asserts the exit code, and shows what the program said where it is another.
    #[track_caller]
    pub fn with_code(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "signal {:?}, standard error: {}", self.signal, self.stderr);
        self
    }

    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.stdout).unwrap()
    }

    /// The reports on standard output, one a line and nothing else.
    pub fn reports(&self) -> Vec<Report> {
        let report = |line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        self.text().lines().map(report).collect()
    }
}

fn bytes(file: &File) -> Vec<u8> {
    // Read at offsets: the position belongs to the program too, which writes at it.
    let mut bytes = vec![0; usize::try_from(file.metadata().unwrap().len()).unwrap()];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

fn text(file: &File) -> String {
    String::from_utf8(bytes(file)).unwrap()
}

/// The processes whose parent is `parent`.
pub fn children(parent: u32) -> Vec<u32> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|&pid| status(pid, "PPid") == Some(parent.to_string())).collect()
}

/// One field of `/proc/PID/status`; none where there is no such process any more.
pub fn status(pid: u32, field: &str) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
    Some(line.trim().to_owned())
}

/// Whether a process has ended; one that nobody has reaped counts.
pub fn is_gone(pid: u32) -> bool {
    status(pid, "State").is_none_or(|state| state.starts_with(['Z', 'X']))
}

/// Sends a signal, by its name without `SIG`.
pub fn signal(pid: u32, name: &str) {
    let sent = Command::new("sh").args(["-c", &format!("kill -{name} {pid}")]).status().unwrap();
    assert!(sent.success(), "{name} could not be sent to {pid}");
}
