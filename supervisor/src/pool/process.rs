//! A worker as an operating system process: how it is ended and reaped, how it ended, and the last it said.

use std::collections::VecDeque;
use std::fmt;
use std::io::Read;
use std::process::{Child, ChildStderr};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;
use refmill::exit::WorkerExit;

/// How much of a worker's stderr is kept, in bytes.
const TAIL_BYTES: usize = 8 << 10;
/// How much of it goes into a message, in bytes.
const SHOWN_BYTES: usize = 300;
/// How long a killed process may take to go. Only a driver that does not return can make it longer.
const REAP: Duration = Duration::from_secs(5);
const STEP: Duration = Duration::from_millis(2);

/// A worker's process; killed and reaped when dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
    ending: Option<Ending>,
    stderr: Tail,
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// By itself, with this code.
    Exited(i32),
    /// By this signal; none where the number has no name.
    Signalled(Option<Signal>),
    /// It did not go in time, although killed.
    Stuck,
}

impl Process {
    pub(super) fn new(mut child: Child) -> Self {
        let stderr = Tail::follow(child.stderr.take());
        Self { child, ending: None, stderr }
    }

    /// The process id, which is also the id of its group.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits up to `grace` for the process to end by itself, kills what is left of its group, and reaps it.
    pub fn end(&mut self, grace: Duration) -> Ending {
        if let Some(ending) = self.ending {
            return ending;
        }
        // Exited or not, the group id stays ours until the leader is reaped: killing cannot hit a stranger.
        let by_itself = self.wait(grace);
        if let Ok(leader) = i32::try_from(self.pid()) {
            // An error means that nothing is left to kill.
            killpg(Pid::from_raw(leader), Signal::SIGKILL).ok();
        }
        let ending = by_itself.or_else(|| self.wait(REAP)).unwrap_or(Ending::Stuck);
        if ending != Ending::Stuck {
            // It has ended, so this only reaps; how it ended is known.
            drop(self.child.wait());
        }
        self.stderr.finish();
        self.ending = Some(ending);
        ending
    }

    /// Whether the process ends by itself, or has, within `time`. It is not reaped.
    #[must_use]
    pub fn has_ended(&self, time: Duration) -> bool {
        self.ending.is_some() || self.wait(time).is_some()
    }

    /// Waits without reaping.
    fn wait(&self, time: Duration) -> Option<Ending> {
        let pid = Pid::from_raw(i32::try_from(self.pid()).ok()?);
        let until = Instant::now().checked_add(time)?;
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        loop {
            match waitid(Id::Pid(pid), flags) {
                Ok(WaitStatus::Exited(_, code)) => return Some(Ending::Exited(code)),
                Ok(WaitStatus::Signaled(_, signal, _)) => return Some(Ending::Signalled(Some(signal))),
                // A signal without a name: a real-time one.
                Err(Errno::EINVAL) => return Some(Ending::Signalled(None)),
                _ if Instant::now() >= until => return None,
                _ => thread::sleep(STEP),
            }
        }
    }

    /// The last lines that the process wrote to stderr, on one line and without control characters.
    #[must_use]
    pub fn last_words(&self) -> String {
        self.stderr.shown()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end(Duration::ZERO);
    }
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited(code) => match WorkerExit::from_number(*code) {
                Some(exit) => write!(f, "exited with {code} ({})", meaning(exit)),
                None => write!(f, "exited with {code}"),
            },
            Self::Signalled(Some(signal)) => write!(f, "was killed by {signal}"),
            Self::Signalled(None) => write!(f, "was killed by a signal"),
            Self::Stuck => write!(f, "was killed and did not end within {} s", REAP.as_secs()),
        }
    }
}

fn meaning(exit: WorkerExit) -> &'static str {
    match exit {
        WorkerExit::Drained => "drained",
        WorkerExit::BadStart => "arguments or descriptors it cannot use",
        WorkerExit::Confinement => "a confinement step could not be applied",
        WorkerExit::Protocol => "a request outside the protocol",
        WorkerExit::NoDevice => "the device did not start",
        WorkerExit::StickyDevice => "the device failed for good",
    }
}

/// The last bytes of a stream, kept by a thread that reads as long as somebody may write.
#[derive(Debug)]
struct Tail {
    bytes: Arc<Mutex<VecDeque<u8>>>,
    reader: Option<JoinHandle<()>>,
}

impl Tail {
    fn follow(stream: Option<ChildStderr>) -> Self {
        let bytes = Arc::new(Mutex::new(VecDeque::new()));
        let kept = Arc::clone(&bytes);
        let reader = stream.and_then(|mut stream| {
            let read = move || keep_last(&mut stream, &kept);
            thread::Builder::new().name("worker-stderr".into()).spawn(read).ok()
        });
        Self { bytes, reader }
    }

    /// Gives the reader a moment to take what a dead process left in the pipe. It is not joined: a descendant that
    /// left the group could keep the pipe open.
    fn finish(&self) {
        for _ in 0..100 {
            if self.reader.as_ref().is_none_or(JoinHandle::is_finished) {
                return;
            }
            thread::sleep(STEP);
        }
    }

    fn shown(&self) -> String {
        let bytes: Vec<u8> = {
            let kept = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
            kept.iter().skip(kept.len().saturating_sub(SHOWN_BYTES)).copied().collect()
        };
        let text = String::from_utf8_lossy(&bytes);
        let lines = text.lines().map(|line| line.replace(char::is_control, " ").trim().to_owned());
        lines.filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ")
    }
}

fn keep_last(stream: &mut dyn Read, kept: &Mutex<VecDeque<u8>>) {
    let mut chunk = [0; 4096];
    while let Ok(read @ 1..) = stream.read(&mut chunk) {
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.extend(chunk.iter().take(read));
        let excess = kept.len().saturating_sub(TAIL_BYTES);
        kept.drain(..excess);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::CommandExt;
    use std::process::{Command, Stdio};

    fn shell(script: &str) -> Process {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]).stderr(Stdio::piped()).process_group(0);
        Process::new(command.spawn().unwrap())
    }

    #[test]
    fn exit_code_of_ours_is_told_with_its_meaning() {
        let ending = shell("exit 65").end(Duration::from_secs(20));
        assert_eq!(ending.to_string(), "exited with 65 (a confinement step could not be applied)");
    }

    #[test]
    fn signal_is_told_by_name() {
        let ending = shell("kill -SEGV $$").end(Duration::from_secs(20));
        assert_eq!(ending.to_string(), "was killed by SIGSEGV");
    }

    #[test]
    fn process_that_does_not_go_is_killed_with_its_children() {
        let mut process = shell("sleep 1000 & echo $! >&2; wait");
        let child = std::iter::repeat_with(|| {
            thread::sleep(STEP);
            process.last_words()
        })
        .find(|words| !words.is_empty());
        assert_eq!(process.end(Duration::ZERO), Ending::Signalled(Some(Signal::SIGKILL)));
        let stat = format!("/proc/{}/stat", child.unwrap());
        // Gone, or dead and not yet reaped by whoever inherited it; it can take a moment until the kernel is there.
        let gone = || std::fs::read_to_string(&stat).map_or(true, |stat| stat.contains(") Z") || stat.contains(") X"));
        assert!((0..10_000).any(|_| {
            thread::sleep(STEP);
            gone()
        }));
    }

    #[test]
    fn only_the_end_of_stderr_is_kept_and_shown_without_control_characters() {
        let mut process = shell("head -c 100000 /dev/zero | tr '\\0' a >&2; printf '\\n\\033[31mlast\\n' >&2");
        process.end(Duration::from_secs(20));
        assert!(process.stderr.bytes.lock().unwrap().len() <= TAIL_BYTES);
        assert!(process.last_words().ends_with("a; [31mlast"), "{}", process.last_words());
    }
}
