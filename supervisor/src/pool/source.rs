//! Where slots get their tasks from, and whom they tell what came of them.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use refmill::failure::Failure;
use refmill::job::Depth;
use refmill::report::Report;

use super::{Order, Task};
use crate::intake;
use crate::memory::{OutputRegion, SealedInput};
use crate::publish;
use crate::shutdown::Stop;

/// A task in a slot's hands, and what is asked of it.
#[derive(Debug, Clone)]
pub struct Given<'a> {
    /// The task.
    pub task: Cow<'a, Task>,
    /// What is asked.
    pub order: Cow<'a, Order>,
}

impl Given<'_> {
    /// Reads the task's input from this machine into sealed memory; ends early once `stop` is requested.
    ///
    /// # Errors
    /// A [`Failure`] that names the input.
    pub fn load(&self, stop: &Stop) -> Result<SealedInput, Failure> {
        if self.order.depth == Depth::Headers {
            return intake::lend(&self.task.origin, self.order.limits.input_bytes, stop);
        }
        intake::load(&self.task.origin, self.order.limits.input_bytes, self.order.hashed, stop)
    }
}

/// What a source has for a slot.
#[derive(Debug)]
pub enum Supply<'a> {
    /// A task.
    Task(Box<Given<'a>>),
    /// Nothing now; perhaps later.
    Later,
    /// Nothing any more: the slot is to end.
    Over,
}

/// Gives tasks to slots. Each task that was given is either put back, withdrawn by [`TaskSource::accept`], or settled.
pub trait TaskSource: Sync {
    /// The next task for the slot of this name, after a wait of at most a tenth of a second where there is none now:
    /// the slot looks after its worker in between.
    fn next(&self, slot: &str) -> Supply<'_>;

    /// Takes back a task that was not finished, since its slot ends.
    fn put_back(&self, given: &Given<'_>);

    /// How many workers a task is given to before its failure counts.
    fn attempts(&self) -> u32;

    /// Asked before anything of `report` is published: the report to be published, or none where nothing is.
    fn accept(&self, task: &Task, report: Report) -> Option<Report>;

    /// Reads the task's input into sealed memory; ends early once `stop` is requested.
    ///
    /// # Errors
    /// A [`Failure`] that names the input.
    fn load(&self, given: &Given<'_>, stop: &Stop) -> Result<SealedInput, Failure> {
        given.load(stop)
    }

    /// Publishes what `report` names out of `region`, then the report, and gives the report as it was published.
    fn publish(&self, task: &Task, report: Report, region: Option<&OutputRegion>) -> Report {
        publish::publish(&task.outputs, report, region)
    }

    /// The task's report is published.
    fn settle(&self, task: &Task, report: &Report);
}

/// A list: each task once, its report whatever it is.
#[derive(Debug)]
pub(super) struct List<'a> {
    order: &'a Order,
    tasks: &'a [Task],
    // Places in `tasks` that no slot has taken.
    left: Mutex<VecDeque<usize>>,
}

impl<'a> List<'a> {
    /// How often a job is given to a worker: once, and once more where the first worker failed it.
    const ATTEMPTS: u32 = 2;

    pub(super) fn new(order: &'a Order, tasks: &'a [Task]) -> Self {
        Self { order, tasks, left: Mutex::new((0..tasks.len()).collect()) }
    }

    fn left(&self) -> MutexGuard<'_, VecDeque<usize>> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TaskSource for List<'_> {
    fn next(&self, _: &str) -> Supply<'_> {
        let next = self.left().pop_front();
        match next.and_then(|place| self.tasks.get(place)) {
            Some(task) => Supply::Task(Box::new(Given { task: Cow::Borrowed(task), order: Cow::Borrowed(self.order) })),
            None => Supply::Over,
        }
    }

    fn put_back(&self, given: &Given<'_>) {
        if let Some(place) = self.tasks.iter().position(|task| task.index == given.task.index) {
            self.left().push_front(place);
        }
    }

    fn attempts(&self) -> u32 {
        Self::ATTEMPTS
    }

    fn accept(&self, _: &Task, report: Report) -> Option<Report> {
        Some(report)
    }

    fn settle(&self, _: &Task, _: &Report) {}
}
