//! One supervisor a queue file: a lock beside it that the kernel drops when its holder ends, however it ends. Whoever
//! has it knows that every lease in the file belongs to nobody any more.

use std::ffi::OsString;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::process;
use std::thread;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::kill;
use nix::unistd::Pid;

/// Longest text that is read from the lock file, in bytes: a process id.
const MAX_TEXT: u64 = 32;
/// How long, and how often, it is waited for what a killed holder left.
const WAIT: Duration = Duration::from_millis(10);
const WAITS: u32 = 500;

/// The lock, held until dropped.
#[derive(Debug)]
pub struct ServeLock {
    // Never read: closing it is what gives the lock back.
    _file: File,
}

/// Why the lock was not had.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Somebody has it.
    #[error("queue {} is served by process {pid} already", path.display())]
    Held {
        /// The queue.
        path: PathBuf,
        /// By its own account.
        pid: String,
    },
    /// The file beside the queue cannot be used.
    #[error("cannot lock {}: {source}", path.display())]
    Io {
        /// The lock file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl ServeLock {
    /// Takes the lock of the queue at `queue`, without waiting for a holder that lives.
    ///
    /// # Errors
    /// [`LockError`]
    pub fn take(queue: &Path) -> Result<Self, LockError> {
        let mut path = OsString::from(queue);
        path.push(".lock");
        let path = PathBuf::from(path);
        let failed = |source| LockError::Io { path: path.clone(), source };
        let open = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
        let mut file = open.map_err(failed)?;
        let mut waits = 0;
        loop {
            match file.try_lock() {
                Ok(()) => break,
                // The child of one that was killed, on its way to exec, holds what its parent held until it sees that.
                Err(TryLockError::WouldBlock) if waits < WAITS && is_gone(&file) => {
                    waits += 1;
                    thread::sleep(WAIT);
                }
                Err(TryLockError::WouldBlock) => {
                    return Err(LockError::Held { path: queue.to_owned(), pid: pid(&file) });
                }
                Err(TryLockError::Error(source)) => return Err(failed(source)),
            }
        }
        let written = file.set_len(0).and_then(|()| file.rewind()).and_then(|()| writeln!(file, "{}", process::id()));
        written.map_err(failed)?;
        Ok(Self { _file: file })
    }
}

/// Whether who wrote the lock file has ended.
fn is_gone(file: &File) -> bool {
    pid(file).parse().is_ok_and(|pid| kill(Pid::from_raw(pid), None) == Err(Errno::ESRCH))
}

/// The process id in the lock file, which its holder wrote just after it had the lock.
fn pid(mut file: &File) -> String {
    let mut text = String::new();
    let read = file.rewind().and_then(|()| file.take(MAX_TEXT).read_to_string(&mut text));
    let pid: Option<u32> = read.ok().and_then(|_| text.trim().parse().ok());
    pid.map_or_else(|| "(unknown)".into(), |pid| pid.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn second_supervisor_is_refused_with_the_first_ones_pid() {
        let folder = tempfile::tempdir().unwrap();
        let queue = folder.path().join("q.db");
        let first = ServeLock::take(&queue).unwrap();
        let error = ServeLock::take(&queue).unwrap_err().to_string();
        assert!(error.ends_with(&format!("q.db is served by process {} already", process::id())), "{error}");
        drop(first);
        assert!(ServeLock::take(&queue).is_ok());
    }

    #[test]
    fn lock_that_a_killed_supervisors_child_still_holds_is_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let queue = folder.path().join("q.db");
        let held = ServeLock::take(&queue).unwrap();
        // No process has this id: it is over the kernel's own limit.
        std::fs::write(folder.path().join("q.db.lock"), "4194305\n").unwrap();
        let child = thread::spawn(move || {
            thread::sleep(Duration::from_millis(50));
            drop(held);
        });
        assert!(ServeLock::take(&queue).is_ok());
        child.join().unwrap();
    }
}
