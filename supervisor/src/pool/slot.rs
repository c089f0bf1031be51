//! One slot: a thread with one worker, which takes task after task. A worker that ends under a job is replaced and
//! the job tried once more where the source says so; what still fails is the image's own failure, and the other
//! images go on.

use std::ffi::OsStr;
use std::sync::mpsc::Sender;

use refmill::failure::{Code, Failure, Stage};
use refmill::job::Job;
use refmill::report::{Report, Source};

use super::worker::{Assignment, RunError, StartError, Worker, WorkerPlan};
use super::{Finished, Given, Message, Order, Task, TaskSource};
use crate::memory::SealedInput;
use crate::shutdown::Stop;

/// What a slot works with.
#[derive(Clone, Copy)]
pub(super) struct Slot<'a> {
    pub plan: &'a WorkerPlan,
    pub source: &'a dyn TaskSource,
    pub stop: &'a Stop,
}

/// Why a task has no report.
enum Halt {
    Interrupted,
    NoWorker(StartError),
}

impl Slot<'_> {
    /// Takes tasks until there are none, or until no worker can be had.
    pub(super) fn serve(self, tell: &Sender<Message>) {
        // A send fails only when the pool's own loop has ended, and then nobody is left to be told.
        match Worker::start(self.plan, self.stop) {
            Ok(worker) => {
                drop(tell.send(Message::Started(Box::new(worker.device().clone()), worker.confinement().clone())));
                self.work(worker, tell);
            }
            Err(error) => drop(tell.send(Message::Lost(error))),
        }
    }

    fn work(self, worker: Worker, tell: &Sender<Message>) {
        let mut worker = Some(worker);
        while !self.stop.is_requested() {
            let Some(given) = self.source.next() else { break };
            let halt = match self.process(&given, &mut worker) {
                Ok(Some(report)) => {
                    self.source.settle(&given.task, &report);
                    let finished = Finished { index: given.task.index, report };
                    drop(tell.send(Message::Finished(Box::new(finished))));
                    continue;
                }
                Ok(None) => continue,
                Err(halt) => halt,
            };
            self.source.put_back(&given);
            if let Halt::NoWorker(error) = halt {
                drop(tell.send(Message::Lost(error)));
            }
            break;
        }
        if let Some(worker) = worker {
            worker.stop();
        }
    }

    /// One task from its input to its published report; none where the source wants nothing published.
    fn process(self, given: &Given<'_>, worker: &mut Option<Worker>) -> Result<Option<Report>, Halt> {
        let Given { task, order } = given;
        let mut source = Source { name: task.name.clone(), ..Source::default() };
        if let Err(failure) = task.outputs.check() {
            // What stands in the way is not ours: nothing is written, not even the report.
            return Ok(self.source.accept(task, Report::rejected(source, failure)));
        }
        let input = match self.source.load(given, self.stop) {
            Ok(input) => input,
            Err(_) if self.stop.is_requested() => return Err(Halt::Interrupted),
            Err(failure) => {
                let refused = self.source.accept(task, Report::rejected(source, failure.at(Stage::Intake)));
                return Ok(refused.map(|report| self.source.publish(task, report, None)));
            }
        };
        source.bytes = input.bytes();
        source.blake3 = input.blake3().to_owned();
        let job = order.job(task, &input);
        let mut report = self.attempt(&job, &input, worker)?;
        source.format = report.source.format;
        report.source = source;
        let output = worker.as_ref().map(Worker::output);
        let report = self.source.accept(task, report).map(|report| self.source.publish(task, report, output));
        if output.is_some_and(|output| output.reclaim().is_err()) {
            // Memory that cannot be given back goes with its worker.
            *worker = None;
        }
        Ok(report)
    }

    fn attempt(self, job: &Job, input: &SealedInput, worker: &mut Option<Worker>) -> Result<Report, Halt> {
        let mut attempt = 1;
        loop {
            let last = attempt >= self.source.attempts();
            let running = self.ready(worker)?;
            let failure = match running.run(Assignment { job: job.clone(), input }, self.stop) {
                Ok(report) => {
                    let retry = report.error.as_ref().is_some_and(|failure| failure.blame.is_retryable());
                    if !retry {
                        return Ok(report);
                    }
                    if last {
                        // The next job shall not begin where the device has just failed.
                        *worker = None;
                        return Ok(report);
                    }
                    None
                }
                Err(RunError::Interrupted) => return Err(Halt::Interrupted),
                Err(error @ RunError::Crashed { .. }) => last.then(|| failure(&error, job, attempt)),
                Err(error) => Some(failure(&error, job, attempt)),
            };
            *worker = None;
            if let Some(failure) = failure {
                return Ok(Report::rejected(Source::default(), failure));
            }
            attempt += 1;
        }
    }

    fn ready(self, worker: &mut Option<Worker>) -> Result<&mut Worker, Halt> {
        let running = match worker.take() {
            Some(running) => running,
            None => match Worker::start(self.plan, self.stop) {
                Ok(running) => running,
                Err(StartError::Interrupted) => return Err(Halt::Interrupted),
                Err(error) => return Err(Halt::NoWorker(error)),
            },
        };
        Ok(worker.insert(running))
    }
}

fn failure(error: &RunError, job: &Job, attempts: u32) -> Failure {
    match error {
        RunError::OverTime { elapsed_ms } => Failure::over_limit("wall time in ms", *elapsed_ms, job.limits.wall_ms),
        RunError::Protocol { .. } => Failure::new(Code::WorkerProtocol, error.to_string()),
        RunError::Crashed { .. } if attempts > 1 => {
            Failure::new(Code::WorkerCrashed, format!("{error}, {attempts} times in a row"))
        }
        RunError::Crashed { .. } => Failure::new(Code::WorkerCrashed, error.to_string()),
        RunError::Interrupted => Failure::new(Code::Internal, error.to_string()),
    }
}

impl Order {
    fn job(&self, task: &Task, input: &SealedInput) -> Job {
        let extension = task.origin.path().and_then(std::path::Path::extension).and_then(OsStr::to_str);
        Job {
            id: 0,
            input_len: input.bytes(),
            extension: extension.unwrap_or_default().to_ascii_lowercase(),
            source_hash: input.blake3().to_owned(),
            depth: self.depth,
            image: self.image,
            strip: self.strip,
            policy: self.policy.clone(),
            recipe: self.recipe.clone(),
            colour: self.colour,
            limits: self.limits,
        }
    }
}
