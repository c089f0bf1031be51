//! One supervisor a queue file: a lock beside it that the kernel drops when its holder ends, however it ends. Whoever
//! has it knows that every lease in the file belongs to nobody any more.

use std::ffi::OsString;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::process;

/// Longest text that is read from the lock file, in bytes: a process id.
const MAX_TEXT: u64 = 32;

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
    /// Takes the lock of the queue at `queue`, without waiting.
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
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(LockError::Held { path: queue.to_owned(), pid: pid(&file) }),
            Err(TryLockError::Error(source)) => return Err(failed(source)),
        }
        let written = file.set_len(0).and_then(|()| file.rewind()).and_then(|()| writeln!(file, "{}", process::id()));
        written.map_err(failed)?;
        Ok(Self { _file: file })
    }
}

/// The process id in the lock file, which its holder wrote just after it had the lock.
fn pid(file: &File) -> String {
    let mut text = String::new();
    let read = file.take(MAX_TEXT).read_to_string(&mut text);
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
}
