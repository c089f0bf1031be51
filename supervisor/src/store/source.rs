//! A batch as a source of tasks: what is listed is looked up among what is done, fetched ahead of the workers, and
//! published where it goes.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::Receiver;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use refmill::failure::{Code, Failure, Stage};
use refmill::report::{Outcome, Report};

use super::connection::Patience;
use super::inputs::{Entry, Inputs};
use super::mark::{Found, Mark};
use super::outputs::{Outputs, Publication};
use super::shelf::{Shelf, Taken};
use crate::intake::Origin;
use crate::memory::{OutputRegion, SealedInput};
use crate::pool::{Given, Order, Supply, Task, TaskSource};
use crate::publish;
use crate::shutdown::Stop;

/// What is fetched ahead takes at most so much memory, in bytes; a single larger input goes alone.
const AHEAD: u64 = 512 << 20;
/// How often a job is given to a worker, as in a run.
const ATTEMPTS: u32 = 2;

/// What holds for all inputs of a batch.
pub struct Batch<'a> {
    /// Where they come from.
    pub inputs: &'a Inputs,
    /// Where artifacts go.
    pub outputs: &'a Outputs,
    /// What is asked of each.
    pub order: &'a Order,
    /// The same as a text, for the mark.
    pub wishes: &'a str,
    /// Whether to replace what refmill did not make.
    pub force: bool,
    /// Whether rejected inputs are tried again although they are done.
    pub again: bool,
    /// The user's wish that no other be begun.
    pub stop: &'a Stop,
    /// Who hears what came of each.
    pub tell: &'a (dyn Fn(Told<'_>) + Sync),
}

impl fmt::Debug for Batch<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Batch").field("inputs", &self.inputs).finish_non_exhaustive()
    }
}

/// What came of an input.
#[derive(Debug)]
pub enum Told<'a> {
    /// It was done already, and this is what its report says.
    Skipped(&'a Entry, &'a Found),
    /// It is done.
    Finished(&'a Entry, &'a Mark, &'a Report),
}

/// The source.
pub struct BatchSource<'a> {
    batch: Batch<'a>,
    shelf: Shelf<Item>,
    held: Mutex<HashMap<usize, Item>>,
    numbers: AtomicUsize,
}

#[derive(Debug)]
struct Item {
    entry: Entry,
    mark: Mark,
    has_older: bool,
    input: Option<Result<SealedInput, Failure>>,
}

impl fmt::Debug for BatchSource<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("BatchSource").field("shelf", &self.shelf).finish_non_exhaustive()
    }
}

impl<'a> BatchSource<'a> {
    /// A source that `feeders` threads will feed.
    #[must_use]
    pub fn new(batch: Batch<'a>, feeders: usize) -> Self {
        Self { batch, shelf: Shelf::new(AHEAD, feeders), held: Mutex::default(), numbers: AtomicUsize::new(0) }
    }

    /// Fetches what is listed until there is no more or the user wants to stop.
    pub fn feed(&self, listed: &Mutex<Receiver<Entry>>) {
        let next = || listed.lock().unwrap_or_else(PoisonError::into_inner).recv().ok();
        while let Some(entry) = next() {
            if self.batch.stop.is_requested() {
                break;
            }
            if let Some(item) = self.look_up(entry) {
                self.shelf.put(item);
            }
        }
        self.shelf.filler_ended();
    }

    /// Skips what is done; fetches what is not.
    fn look_up(&self, entry: Entry) -> Option<Item> {
        let Batch { inputs, outputs, order, wishes, again, stop, .. } = self.batch;
        let mark = Mark::new(wishes, &entry.etag);
        let found = match outputs.found(&entry.name, &Patience::until(stop)) {
            Ok(found) => found,
            Err(_) if stop.is_requested() => return None,
            Err(error) => {
                let message = format!("cannot look for the report of {}: {}", entry.address, error.message);
                let failure = Failure::new(Code::Unwritable, message).at(Stage::Publish);
                return Some(Item { entry, mark, has_older: false, input: Some(Err(failure)) });
            }
        };
        if let Some(found) = &found
            && found.batch.as_ref().is_some_and(|older| older.key == mark.key)
            && !(again && found.outcome == Outcome::Reject)
        {
            (self.batch.tell)(Told::Skipped(&entry, found));
            return None;
        }
        let has_older = found.is_some_and(|found| found.batch.is_some());
        let bytes = entry.bytes.min(order.limits.input_bytes);
        if !self.shelf.reserve(bytes, &|| stop.is_requested()) {
            return None;
        }
        let input = inputs.read(&entry, order.limits.input_bytes, stop);
        if input.is_err() {
            self.shelf.release(bytes);
            if stop.is_requested() {
                return None;
            }
        }
        Some(Item { entry, mark, has_older, input: Some(input) })
    }

    fn held(&self) -> MutexGuard<'_, HashMap<usize, Item>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn give(&self, item: Item) -> Given<'_> {
        let index = self.numbers.fetch_add(1, Ordering::Relaxed);
        // Only its extension counts: this source reads for itself.
        let origin = Origin::File(PathBuf::from(&item.entry.address));
        let task = Task { index, origin, name: item.entry.address.clone(), outputs: publish::Outputs::default() };
        self.held().insert(index, item);
        Given { task: Cow::Owned(task), order: Cow::Borrowed(self.batch.order) }
    }
}

/// Whether the same input with the same wishes would fail again.
fn is_lasting(failure: &Failure) -> bool {
    !failure.blame.is_retryable() && failure.code != Code::Unreadable
}

impl TaskSource for BatchSource<'_> {
    fn next(&self, _: &str) -> Supply<'_> {
        if self.batch.stop.is_requested() {
            return Supply::Over;
        }
        match self.shelf.take(Duration::from_millis(100)) {
            Taken::One(item) => Supply::Task(Box::new(self.give(item))),
            Taken::Later => Supply::Later,
            Taken::Over => Supply::Over,
        }
    }

    fn put_back(&self, given: &Given<'_>) {
        if let Some(item) = self.held().remove(&given.task.index) {
            self.shelf.put(item);
        }
    }

    fn attempts(&self) -> u32 {
        ATTEMPTS
    }

    fn load(&self, given: &Given<'_>, _: &Stop) -> Result<SealedInput, Failure> {
        let limit = self.batch.order.limits.input_bytes;
        let (entry, input) = match self.held().get_mut(&given.task.index) {
            Some(item) => (item.entry.clone(), item.input.take()),
            None => return Err(Failure::new(Code::Internal, "a task that was not given")),
        };
        match input {
            Some(input) => {
                if input.is_ok() {
                    self.shelf.release(entry.bytes.min(limit));
                }
                input
            }
            // It was fetched for a worker that could not be replaced.
            None => self.batch.inputs.read(&entry, limit, self.batch.stop),
        }
    }

    fn accept(&self, task: &Task, report: Report) -> Option<Report> {
        let unread = report.error.as_ref().is_some_and(|failure| failure.stage == Some(Stage::Intake));
        if unread && self.batch.stop.is_requested() {
            // Perhaps only because of that: it stays undone.
            self.held().remove(&task.index);
            return None;
        }
        Some(report)
    }

    fn publish(&self, task: &Task, report: Report, region: Option<&OutputRegion>) -> Report {
        if report.error.as_ref().is_some_and(|failure| !is_lasting(failure)) {
            // Without a report it is tried again by the next batch.
            return report;
        }
        let (name, mark, has_older) = match self.held().get(&task.index) {
            Some(item) => (item.entry.name.clone(), item.mark.clone(), item.has_older),
            None => return report,
        };
        let what = Publication { name: &name, mark: &mark, has_older, force: self.batch.force };
        self.batch.outputs.publish(what, report, region)
    }

    fn settle(&self, task: &Task, report: &Report) {
        let item = self.held().remove(&task.index);
        if let Some(item) = item {
            (self.batch.tell)(Told::Finished(&item.entry, &item.mark, report));
        }
    }
}
