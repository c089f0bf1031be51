//! SIGINT and SIGTERM end the run in order: no new job, workers killed, what was done is told. A second one ends
//! the program at once; its workers die with it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use nix::fcntl::OFlag;
use nix::sys::signal::{SigSet, Signal};
use nix::unistd::{pipe2, write};

/// Exit code of a run that was interrupted twice: 128 and SIGINT, as shells have it.
const INTERRUPTED_TWICE: i32 = 130;

/// Whether to stop, for as many threads as like to wait for it.
#[derive(Debug, Clone)]
pub struct Stop(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    requested: AtomicBool,
    read: OwnedFd,
    write: OwnedFd,
}

impl Stop {
    /// Nothing asked yet.
    ///
    /// # Errors
    /// What making a pipe says.
    pub fn new() -> io::Result<Self> {
        let (read, write) = pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK)?;
        Ok(Self(Arc::new(Inner { requested: AtomicBool::new(false), read, write })))
    }

    /// Asks everyone to stop. May be said more than once.
    pub fn request(&self) {
        self.0.requested.store(true, Ordering::SeqCst);
        // The byte is never read: the pipe stays readable for everyone. A full pipe is readable already.
        write(&self.0.write, &[1]).ok();
    }

    /// Whether it was asked.
    #[must_use]
    pub fn is_requested(&self) -> bool {
        self.0.requested.load(Ordering::SeqCst)
    }

    /// A stop that SIGINT and SIGTERM request. Must be called before any other thread is started, since the
    /// signals are blocked in the calling thread and in those that it starts later.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn on_signals() -> io::Result<Self> {
        let stop = Self::new()?;
        let mut signals = SigSet::empty();
        signals.add(Signal::SIGINT);
        signals.add(Signal::SIGTERM);
        signals.thread_block()?;
        let asked = stop.clone();
        thread::Builder::new().name("signals".into()).spawn(move || {
            while signals.wait().is_ok() {
                if asked.is_requested() {
                    process::exit(INTERRUPTED_TWICE);
                }
                asked.request();
            }
        })?;
        Ok(stop)
    }
}

impl AsFd for Stop {
    /// Readable once the stop is requested; never to be read.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.read.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

    fn readable(stop: &Stop) -> bool {
        poll(&mut [PollFd::new(stop.as_fd(), PollFlags::POLLIN)], PollTimeout::ZERO).unwrap() == 1
    }

    #[test]
    fn request_is_seen_by_every_clone() {
        let stop = Stop::new().unwrap();
        let other = stop.clone();
        assert!(!other.is_requested() && !readable(&other));
        stop.request();
        stop.request();
        assert!(other.is_requested() && readable(&other) && readable(&stop));
    }
}
