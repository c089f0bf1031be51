//! One slot: a thread with one worker, which takes task after task. A worker that ends under a job is replaced and
//! the job tried once more where the source says so; what still fails is the image's own failure, and the other
//! images go on.

use std::ffi::OsStr;
use std::sync::mpsc::Sender;
use std::thread;
use std::time::{Duration, Instant};

use refmill::failure::{Code, Failure, Stage};
use refmill::job::Job;
use refmill::report::{Report, Source};

use super::life::Life;
use super::watermark::Verdict;
use super::worker::{Assignment, Heard, RunError, StartError, Worker};
use super::{Finished, Given, Message, Order, Rules, SlotSpec, Supply, Task, TaskSource};
use crate::memory::SealedInput;
use crate::shutdown::Stop;

/// How long a slot waits for a word before it looks around.
const LISTEN: Duration = Duration::from_secs(1);

/// How often a worker that ends without a word before it is ready is started: somebody may have killed it.
const START_TRIES: u32 = 3;
/// How long a slot waits before it starts one again, the second time twice as long.
const START_PAUSE: Duration = Duration::from_millis(100);

/// What a slot works with.
#[derive(Clone, Copy)]
pub(super) struct Slot<'a> {
    pub place: usize,
    pub spec: &'a SlotSpec,
    pub rules: &'a Rules,
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
        match self.start() {
            Ok(worker) => {
                let (device, confinement) = (worker.device().clone(), worker.confinement().clone());
                drop(tell.send(Message::Started(self.place, Box::new(device), confinement)));
                self.work(worker, tell);
            }
            Err(error) => drop(tell.send(Message::Lost(self.place, error))),
        }
    }

    fn start(self) -> Result<Worker, StartError> {
        for earlier in 1..START_TRIES {
            match Worker::start(&self.spec.plan, &self.rules.deadlines, self.stop) {
                Err(StartError::Ended { .. }) if !self.stop.is_requested() => thread::sleep(START_PAUSE * earlier),
                started => return started,
            }
        }
        Worker::start(&self.spec.plan, &self.rules.deadlines, self.stop)
    }

    fn work(self, worker: Worker, tell: &Sender<Message>) {
        let mut crew = Crew::default();
        crew.enlist(self, worker);
        let mut job_ended = false;
        while !self.stop.is_requested() {
            self.tend(&mut crew, std::mem::take(&mut job_ended), tell);
            let given = match self.source.next(&self.spec.name) {
                Supply::Task(given) => given,
                Supply::Later => continue,
                Supply::Over => break,
            };
            job_ended = true;
            let halt = match self.process(&given, &mut crew) {
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
                drop(tell.send(Message::Lost(self.place, error)));
            }
            break;
        }
        if let Some(worker) = crew.worker {
            worker.stop();
        }
    }

    /// Between jobs: an idle worker that died, or stands still, is replaced before it gets a job; one that has had its
    /// day goes once its replacement is ready.
    fn tend(self, crew: &mut Crew, job_ended: bool, tell: &Sender<Message>) {
        let Crew { worker: Some(worker), life: Some(life), .. } = crew else { return };
        if worker.attend(self.stop).is_err() {
            crew.worker = None;
            return;
        }
        let name = self.spec.name.clone();
        match life.look(worker, true, job_ended) {
            Verdict::Fine => {}
            Verdict::Refused(refusal) => drop(tell.send(Message::Kept(name, refusal.to_string()))),
            Verdict::Kill { kind, bytes, limit } => {
                crew.worker = None;
                drop(tell.send(Message::Recycled(name, RunError::OverMemory { kind, bytes, limit }.to_string())));
            }
            Verdict::Recycle(reason) => match self.start() {
                Ok(fresh) => {
                    let old = crew.worker.take();
                    crew.enlist(self, fresh);
                    old.into_iter().for_each(Worker::stop);
                    drop(tell.send(Message::Recycled(name, reason.to_string())));
                }
                Err(error) => drop(tell.send(Message::Kept(name, format!("{reason}, but {error}")))),
            },
        }
    }

    /// One task from its input to its published report; none where the source wants nothing published.
    fn process(self, given: &Given<'_>, crew: &mut Crew) -> Result<Option<Report>, Halt> {
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
        let mut report = self.attempt(&job, &input, crew)?;
        source.format = report.source.format;
        report.source = source;
        let output = crew.worker.as_ref().map(Worker::output);
        let report = self.source.accept(task, report).map(|report| self.source.publish(task, report, output));
        if output.is_some_and(|output| output.reclaim().is_err()) {
            // Memory that cannot be given back goes with its worker.
            crew.worker = None;
        }
        Ok(report)
    }

    fn attempt(self, job: &Job, input: &SealedInput, crew: &mut Crew) -> Result<Report, Halt> {
        let mut attempt = 1;
        loop {
            let last = attempt >= self.source.attempts();
            self.ready(crew)?;
            let failure = match self.answer(crew, Assignment { job: job.clone(), input }) {
                Ok(report) => {
                    let retry = report.error.as_ref().is_some_and(|failure| failure.blame.is_retryable());
                    if !retry {
                        return Ok(report);
                    }
                    if last {
                        // The next job shall not begin where the device has just failed.
                        crew.worker = None;
                        return Ok(report);
                    }
                    None
                }
                Err(RunError::Interrupted) => return Err(Halt::Interrupted),
                Err(error @ (RunError::Crashed { .. } | RunError::Hung { .. } | RunError::OverMemory { .. })) => {
                    last.then(|| failure(&error, attempt))
                }
                Err(error) => Some(failure(&error, attempt)),
            };
            crew.worker = None;
            if let Some(failure) = failure {
                return Ok(Report::rejected(Source::default(), failure));
            }
            attempt += 1;
        }
    }

    fn answer(self, crew: &mut Crew, assignment: Assignment<'_>) -> Result<Report, RunError> {
        let Crew { worker: Some(worker), life: Some(life), .. } = crew else {
            return Err(RunError::Crashed { how: "was gone".into() });
        };
        worker.begin(assignment, self.stop)?;
        let pause = LISTEN.min(self.rules.watermark.period());
        loop {
            if let Heard::Done(report) = worker.listen(Instant::now() + pause, self.stop)? {
                return Ok(*report);
            }
            if let Verdict::Kill { kind, bytes, limit } = life.look(worker, false, false) {
                return Err(RunError::OverMemory { kind, bytes, limit });
            }
        }
    }

    /// Sees to it that there is a worker.
    fn ready(self, crew: &mut Crew) -> Result<(), Halt> {
        if crew.worker.is_some() {
            return Ok(());
        }
        match self.start() {
            Ok(worker) => crew.enlist(self, worker),
            Err(StartError::Interrupted) => return Err(Halt::Interrupted),
            Err(error) => return Err(Halt::NoWorker(error)),
        }
        Ok(())
    }
}

/// A slot's worker, and what is remembered of those before it.
#[derive(Debug, Default)]
struct Crew {
    worker: Option<Worker>,
    life: Option<Life>,
    lives: u64,
    /// Lives in a row that ended before their time.
    short_lives: u32,
}

impl Crew {
    fn enlist(&mut self, slot: Slot<'_>, worker: Worker) {
        let was_short = self.life.as_ref().is_some_and(Life::is_short);
        self.short_lives = if was_short { self.short_lives.saturating_add(1) } else { 0 };
        self.life = Some(Life::new(slot.rules, slot.place, self.lives, self.short_lives));
        self.lives = self.lives.saturating_add(1);
        self.worker = Some(worker);
    }
}

fn failure(error: &RunError, attempts: u32) -> Failure {
    let often = if attempts > 1 { format!(", {attempts} times in a row") } else { String::new() };
    match error {
        RunError::OverTime { elapsed_ms, limit_ms } => Failure::over_limit("wall time in ms", *elapsed_ms, *limit_ms),
        RunError::StageOverTime { stage, elapsed_ms, limit_ms } => {
            let what = format!("time in stage {} in ms", stage.as_str());
            Failure::over_limit(&what, *elapsed_ms, *limit_ms).at(*stage)
        }
        RunError::Protocol { .. } => Failure::new(Code::WorkerProtocol, error.to_string()),
        RunError::Hung { .. } => Failure::new(Code::WorkerHung, format!("{error}{often}")),
        RunError::Crashed { .. } | RunError::OverMemory { .. } => {
            Failure::new(Code::WorkerCrashed, format!("{error}{often}"))
        }
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
