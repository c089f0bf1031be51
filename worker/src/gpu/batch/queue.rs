//! A bounded queue between the host's threads and the lanes: who fills it waits where it is full.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// A queue of at most so many things.
#[derive(Debug)]
pub struct Queue<T> {
    inner: Mutex<Inner<T>>,
    changed: Condvar,
    most: usize,
}

#[derive(Debug)]
struct Inner<T> {
    waiting: VecDeque<T>,
    closed: bool,
}

impl<T> Queue<T> {
    /// An empty queue.
    pub fn new(most: usize) -> Self {
        let inner = Inner { waiting: VecDeque::with_capacity(most), closed: false };
        Self { inner: Mutex::new(inner), changed: Condvar::new(), most }
    }

    /// Adds one thing, once there is room; `false` where nobody takes any more.
    pub fn push(&self, thing: T) -> bool {
        let full = |inner: &mut Inner<T>| inner.waiting.len() >= self.most && !inner.closed;
        let waited = self.changed.wait_while(self.lock(), full);
        let mut inner = waited.unwrap_or_else(PoisonError::into_inner);
        if inner.closed {
            return false;
        }
        inner.waiting.push_back(thing);
        drop(inner);
        self.changed.notify_all();
        true
    }

    /// Takes up to `most`. With `wait` it gives none only when the queue is closed and empty.
    pub fn take(&self, most: usize, wait: bool) -> Vec<T> {
        let empty = |inner: &mut Inner<T>| wait && inner.waiting.is_empty() && !inner.closed;
        let waited = self.changed.wait_while(self.lock(), empty);
        let mut inner = waited.unwrap_or_else(PoisonError::into_inner);
        let count = most.min(inner.waiting.len());
        let taken = inner.waiting.drain(..count).collect();
        drop(inner);
        self.changed.notify_all();
        taken
    }

    /// Whether nothing waits at this moment.
    pub fn is_empty(&self) -> bool {
        self.lock().waiting.is_empty()
    }

    /// Lets takers run out, and pushers give up.
    pub fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Inner<T>> {
        // What is in it is whole whenever the lock is free: a thread that panicked changes nothing about that.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_pushed_is_taken_once_although_the_queue_is_small() {
        let queue = Queue::new(3);
        let sum = std::thread::scope(|scope| {
            let takers: Vec<_> = (0..2)
                .map(|_| {
                    scope.spawn(|| {
                        std::iter::from_fn(|| Some(queue.take(2, true)).filter(|taken| !taken.is_empty()))
                            .flatten()
                            .sum::<u64>()
                    })
                })
                .collect();
            (1..=1000).for_each(|number| assert!(queue.push(number)));
            queue.close();
            takers.into_iter().map(|taker| taker.join().unwrap()).sum::<u64>()
        });
        assert_eq!(sum, 500_500);
    }

    #[test]
    fn closed_queue_takes_nothing_more_and_gives_what_it_has() {
        let queue = Queue::new(2);
        assert!(queue.push(1));
        queue.close();
        assert!(!queue.push(2));
        assert_eq!((queue.take(9, true), queue.take(9, true)), (vec![1], vec![]));
    }
}
