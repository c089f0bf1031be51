//! SIGINT and SIGTERM end the run in order: no new job, workers killed, what was done is told. A second one ends
//! the program at once; its workers die with it. A server takes SIGHUP as well, as a [`Bell`].

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use nix::fcntl::OFlag;
use nix::sys::signal::{SigSet, Signal};
use nix::unistd::{pipe2, read, write};

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

    /// A stop that SIGINT and SIGTERM request; SIGHUP rings `hangup`, and without one it ends the program. Must be
    /// called before any other thread is started, since the signals are blocked in the calling thread and in those
    /// that it starts later.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn on_signals(hangup: Option<Bell>) -> io::Result<Self> {
        let stop = Self::new()?;
        let mut signals = SigSet::empty();
        signals.add(Signal::SIGINT);
        signals.add(Signal::SIGTERM);
        if hangup.is_some() {
            signals.add(Signal::SIGHUP);
        }
        signals.thread_block()?;
        let asked = stop.clone();
        thread::Builder::new().name("signals".into()).spawn(move || {
            while let Ok(signal) = signals.wait() {
                match (signal, &hangup) {
                    (Signal::SIGHUP, Some(bell)) => bell.ring(),
                    _ if asked.is_requested() => process::exit(INTERRUPTED_TWICE),
                    _ => asked.request(),
                }
            }
        })?;
        Ok(stop)
    }
}

/// Rung by one thread, heard by another: however often it rang, it is heard once, and a ring after that again.
#[derive(Debug, Clone)]
pub struct Bell(Arc<(OwnedFd, OwnedFd)>);

impl Bell {
    /// A bell that has not rung.
    ///
    /// # Errors
    /// What making a pipe says.
    pub fn new() -> io::Result<Self> {
        Ok(Self(Arc::new(pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK)?)))
    }

    /// Rings.
    pub fn ring(&self) {
        // A full pipe has rung often enough.
        write(&self.0.1, &[1]).ok();
    }

    /// Whether it has rung since this was last asked.
    #[must_use]
    pub fn has_rung(&self) -> bool {
        let mut rung = false;
        while read(&self.0.0, &mut [0; 64]).is_ok_and(|bytes| bytes > 0) {
            rung = true;
        }
        rung
    }
}

impl AsFd for Bell {
    /// Readable once it has rung.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.0.as_fd()
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
    fn bell_that_rang_often_is_heard_once_and_then_again() {
        let bell = Bell::new().unwrap();
        assert!(!bell.has_rung());
        (0..100_000).for_each(|_| bell.ring());
        assert!(bell.clone().has_rung() && !bell.has_rung());
        bell.ring();
        assert!(bell.has_rung());
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
