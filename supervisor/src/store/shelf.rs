//! What was fetched ahead of the workers: a queue bounded by count and by bytes, which many fill and many empty.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A queue of things that take memory.
#[derive(Debug)]
pub struct Shelf<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
    most_bytes: u64,
}

#[derive(Debug)]
struct State<T> {
    ready: VecDeque<T>,
    // Of what is ready, of what is being fetched, and of what was taken but not unpacked.
    bytes: u64,
    fillers: usize,
}

/// What there is to take.
#[derive(Debug, PartialEq, Eq)]
pub enum Taken<T> {
    /// A thing.
    One(T),
    /// Nothing yet.
    Later,
    /// Nothing any more.
    Over,
}

impl<T> Shelf<T> {
    /// Empty, with room for this many bytes, and with so many who fill it.
    #[must_use]
    pub fn new(most_bytes: u64, fillers: usize) -> Self {
        let state = State { ready: VecDeque::new(), bytes: 0, fillers };
        Self { state: Mutex::new(state), changed: Condvar::new(), most_bytes }
    }

    /// Waits for room; one thing always has room, however large. False once `give_up` says so.
    pub fn reserve(&self, bytes: u64, give_up: &dyn Fn() -> bool) -> bool {
        let mut state = self.state();
        while state.bytes > 0 && state.bytes.saturating_add(bytes) > self.most_bytes {
            if give_up() {
                return false;
            }
            state = self.wait(state, Duration::from_millis(100));
        }
        state.bytes = state.bytes.saturating_add(bytes);
        true
    }

    /// Gives reserved room back.
    pub fn release(&self, bytes: u64) {
        let mut state = self.state();
        state.bytes = state.bytes.saturating_sub(bytes);
        self.changed.notify_all();
    }

    /// Adds a thing.
    pub fn put(&self, thing: T) {
        self.state().ready.push_back(thing);
        self.changed.notify_all();
    }

    /// One of those who fill it does so no more.
    pub fn filler_ended(&self) {
        let mut state = self.state();
        state.fillers = state.fillers.saturating_sub(1);
        self.changed.notify_all();
    }

    /// The next thing, after a wait of at most `wait`.
    pub fn take(&self, wait: Duration) -> Taken<T> {
        let mut state = self.state();
        if state.ready.is_empty() && state.fillers > 0 {
            state = self.wait(state, wait);
        }
        match state.ready.pop_front() {
            Some(thing) => Taken::One(thing),
            None if state.fillers > 0 => Taken::Later,
            None => Taken::Over,
        }
    }

    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&'a self, state: MutexGuard<'a, State<T>>, wait: Duration) -> MutexGuard<'a, State<T>> {
        self.changed.wait_timeout(state, wait).map_or_else(|poisoned| poisoned.into_inner().0, |(state, _)| state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    const SOON: Duration = Duration::from_millis(1);

    #[test]
    fn over_is_said_only_when_nobody_fills_it_and_it_is_empty() {
        let shelf = Shelf::new(10, 1);
        assert_eq!(shelf.take(SOON), Taken::Later);
        shelf.put('a');
        shelf.filler_ended();
        assert_eq!((shelf.take(SOON), shelf.take(SOON)), (Taken::One('a'), Taken::Over));
    }

    #[test]
    fn what_is_larger_than_all_room_goes_alone() {
        let shelf = Shelf::<char>::new(10, 1);
        assert!(shelf.reserve(50, &|| true));
        assert!(!shelf.reserve(1, &|| true));
        shelf.release(50);
        assert!(shelf.reserve(1, &|| true));
    }

    #[test]
    fn who_waits_for_room_gets_it() {
        let shelf = Shelf::<char>::new(10, 1);
        assert!(shelf.reserve(8, &|| false));
        thread::scope(|scope| {
            let other = scope.spawn(|| shelf.reserve(8, &|| false));
            shelf.release(8);
            assert!(other.join().unwrap());
        });
    }
}
