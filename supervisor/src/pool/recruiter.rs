//! Starts and ends a slot's workers beside its jobs, in a thread of its own. A worker dies with the thread that started
//! it, so this one lives as long as the slot does.

use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, Scope};
use std::time::Duration;

use super::worker::{StartError, Worker, WorkerPlan};
use super::{Deadlines, Slot};
use crate::shutdown::Stop;

/// How often a worker that ends without a word before it is ready is started: somebody may have killed it.
const START_TRIES: u32 = 3;
/// How long to wait before one is started again, the second time twice as long.
const START_PAUSE: Duration = Duration::from_millis(100);

enum Order {
    Start,
    Retire(Box<Worker>),
}

/// What came of an order.
#[derive(Debug)]
pub(super) enum Outcome {
    /// A worker is ready, or is not.
    Started(Result<Box<Worker>, StartError>),
    /// A worker that was asked to end has.
    Retired,
}

/// The slot's end of the thread. Once it is dropped, the thread ends after what it was last asked for.
#[derive(Debug)]
pub(super) struct Recruiter {
    orders: Sender<Order>,
    outcomes: Receiver<Outcome>,
}

impl Recruiter {
    /// Starts the thread.
    ///
    /// # Errors
    /// [`StartError::Prepare`]
    pub fn spawn<'scope>(slot: Slot<'scope>, scope: &'scope Scope<'scope, '_>) -> Result<Self, StartError> {
        let ((orders, received), (sent, outcomes)) = (mpsc::channel(), mpsc::channel());
        let work = move || {
            let (plan, deadlines, stop) = (&slot.spec.plan, &slot.rules.deadlines, slot.stop);
            while let Ok(order) = received.recv() {
                let outcome = match order {
                    Order::Start => Outcome::Started(start(plan, deadlines, stop).map(Box::new)),
                    Order::Retire(worker) => {
                        worker.stop();
                        Outcome::Retired
                    }
                };
                // Where the slot has ended, a worker that nobody takes is killed here.
                drop(sent.send(outcome));
            }
        };
        thread::Builder::new().name("recruiter".into()).spawn_scoped(scope, work).map_err(StartError::Prepare)?;
        Ok(Self { orders, outcomes })
    }

    /// Has a worker started.
    pub fn start(&self) {
        // A thread that is gone is seen by whoever waits for the outcome.
        drop(self.orders.send(Order::Start));
    }

    /// Has a worker asked to end, and killed after a while.
    pub fn retire(&self, worker: Box<Worker>) {
        // As above; the worker is killed then.
        drop(self.orders.send(Order::Retire(worker)));
    }

    /// What came of an order, if anything yet.
    pub fn look(&self) -> Option<Outcome> {
        self.outcomes.try_recv().ok()
    }

    /// What comes of the next order.
    pub fn wait(&self) -> Outcome {
        self.outcomes.recv().unwrap_or(Outcome::Started(Err(StartError::Interrupted)))
    }
}

fn start(plan: &WorkerPlan, deadlines: &Deadlines, stop: &Stop) -> Result<Worker, StartError> {
    for earlier in 1..START_TRIES {
        match Worker::start(plan, deadlines, stop) {
            Err(StartError::Ended { .. }) if !stop.is_requested() => thread::sleep(START_PAUSE * earlier),
            started => return started,
        }
    }
    Worker::start(plan, deadlines, stop)
}
