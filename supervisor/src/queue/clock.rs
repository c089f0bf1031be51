//! The time that the queue goes by: the machine's, or a test's own.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// Tells the time in milliseconds since 1970.
#[derive(Debug, Clone, Default)]
pub struct Clock(Option<Arc<AtomicI64>>);

impl Clock {
    /// The machine's clock.
    #[must_use]
    pub fn system() -> Self {
        Self(None)
    }

    /// A clock that stands at `start` until it is moved; its clones move with it.
    #[must_use]
    pub fn manual(start: i64) -> Self {
        Self(Some(Arc::new(AtomicI64::new(start))))
    }

    /// Moves a manual clock. The machine's clock is not moved.
    pub fn advance(&self, by_ms: i64) {
        if let Some(now) = &self.0 {
            now.fetch_add(by_ms, Ordering::SeqCst);
        }
    }

    /// Now.
    #[must_use]
    pub fn now_ms(&self) -> i64 {
        match &self.0 {
            Some(now) => now.load(Ordering::SeqCst),
            None => {
                let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
            }
        }
    }

    /// Now, by a machine's clock that is so far ahead of this machine's. A manual clock is the same everywhere.
    #[must_use]
    pub fn elsewhere_ms(&self, ahead_ms: i64) -> i64 {
        match &self.0 {
            Some(_) => self.now_ms(),
            None => self.now_ms().saturating_add(ahead_ms),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manual_clock_moves_when_it_is_moved() {
        let clock = Clock::manual(5);
        let same = clock.clone();
        clock.advance(10);
        assert_eq!(same.now_ms(), 15);
    }

    #[test]
    fn system_clock_is_past_2020() {
        assert!(Clock::system().now_ms() > 1_577_836_800_000);
    }
}
