//! One slot: a thread with one worker, which takes task after task. What it does next is for `machine.rs` to say; here
//! it is done. A worker that ends under a job is replaced and the job tried once more where the source says so; what
//! still fails is the image's own failure, and the other images go on.

use std::ffi::OsStr;
use std::sync::mpsc::Sender;
use std::thread;
use std::time::{Duration, Instant};

use refmill::failure::{Code, Failure, Stage};
use refmill::job::Job;
use refmill::report::{Report, Source};

use super::life::Life;
use super::machine::{Action, Event, Machine, State};
use super::recruiter::{Outcome, Recruiter};
use super::watermark::{Reason, Verdict};
use super::worker::{Assignment, Heard, RunError, StartError, Worker};
use super::{Finished, Given, Message, Order, Rules, SlotSpec, Supply, Task, TaskSource};
use crate::memory::SealedInput;
use crate::shutdown::Stop;

/// How long a slot waits for a word before it looks around.
const LISTEN: Duration = Duration::from_secs(1);

/// What a slot works with.
#[derive(Clone, Copy)]
pub(super) struct Slot<'a> {
    pub place: usize,
    pub spec: &'a SlotSpec,
    pub rules: &'a Rules,
    pub source: &'a dyn TaskSource,
    pub stop: &'a Stop,
}

/// Whether the slot goes on.
type Goes = Result<(), Over>;

/// The slot ends.
struct Over;

impl Slot<'_> {
    /// Takes tasks until there are none, or until no worker can be had.
    pub(super) fn serve(self, tell: &Sender<Message>) {
        thread::scope(|scope| match Recruiter::spawn(self, scope) {
            Ok(recruiter) => self.work(&mut Crew::new(recruiter, tell)),
            // A send fails only when the pool's own loop has ended, and then nobody is left to be told.
            Err(error) => drop(tell.send(Message::Lost(self.place, error))),
        });
    }

    fn work(self, crew: &mut Crew<'_>) {
        if self.drive(crew, None, Event::Begin).is_ok() {
            while !self.stop.is_requested() && self.tend(crew).is_ok() {
                match self.source.next(&self.spec.name) {
                    Supply::Task(given) if self.process(&given, crew).is_err() => break,
                    Supply::Task(_) | Supply::Later => {}
                    Supply::Over => break,
                }
            }
        }
        // Nothing of this can end a slot that ends.
        self.drive(crew, None, Event::End).ok();
        while crew.machine.state() == State::Draining && matches!(crew.recruiter.wait(), Outcome::Retired) {
            crew.step(Event::Retired);
        }
    }

    /// Between jobs: an idle worker that died, or stands still, goes before it gets a job; one that has had its day is
    /// replaced once another is ready, which is not waited for.
    fn tend(self, crew: &mut Crew<'_>) -> Goes {
        while let Some(outcome) = crew.recruiter.look() {
            let event = crew.hear(outcome);
            self.drive(crew, None, event)?;
        }
        let job_ended = std::mem::take(&mut crew.job_ended);
        let Crew { worker: Some(worker), life: Some(life), .. } = crew else { return Ok(()) };
        if worker.attend(self.stop).is_err() {
            return self.drive(crew, None, Event::Gone);
        }
        match life.look(worker, true, job_ended) {
            Verdict::Fine => Ok(()),
            Verdict::Refused(refusal) => {
                crew.tell(Message::Kept(self.spec.name.clone(), refusal.to_string()));
                Ok(())
            }
            Verdict::Kill { kind, bytes, limit } => {
                let why = RunError::OverMemory { kind, bytes, limit }.to_string();
                crew.tell(Message::Recycled(self.spec.name.clone(), why));
                self.drive(crew, None, Event::Gone)
            }
            Verdict::Recycle(reason) => {
                let (early, urgent) = (life.is_short(), life.is_urgent(reason));
                crew.reason = Some(reason);
                self.drive(crew, None, Event::Due { early, urgent })
            }
        }
    }

    /// One task from its input to its published report; none where the source wants nothing published.
    fn process(self, given: &Given<'_>, crew: &mut Crew<'_>) -> Goes {
        let Given { task, order } = given;
        crew.job_ended = true;
        let mut source = Source { name: task.name.clone(), ..Source::default() };
        if let Err(failure) = task.outputs.check() {
            // What stands in the way is not ours: nothing is written, not even the report.
            crew.settle(self, task, self.source.accept(task, Report::rejected(source, failure)));
            return Ok(());
        }
        let input = match self.source.load(given, self.stop) {
            Ok(input) => input,
            Err(_) if self.stop.is_requested() => {
                self.source.put_back(given);
                return Err(Over);
            }
            Err(failure) => {
                let refused = self.source.accept(task, Report::rejected(source, failure.at(Stage::Intake)));
                crew.settle(self, task, refused.map(|report| self.source.publish(task, report, None)));
                return Ok(());
            }
        };
        source.bytes = input.bytes();
        source.blake3 = input.blake3().to_owned();
        let job = order.job(task, &input);
        let mut hand = Hand { given, job, input, source, report: None };
        self.drive(crew, Some(&mut hand), Event::Given { attempts: self.source.attempts() })
    }

    /// Does what follows from an event, and from what follows from that, until the slot has to wait for somebody else.
    fn drive(self, crew: &mut Crew<'_>, mut hand: Option<&mut Hand<'_>>, event: Event) -> Goes {
        let mut next = Some(event);
        let mut goes = Ok(());
        while let Some(event) = next.take() {
            for action in crew.step(event) {
                match (action, hand.as_deref_mut()) {
                    (Action::Assign, Some(hand)) => next = Some(self.attempt(crew, hand)),
                    (Action::Finish, Some(hand)) => next = self.finish(crew, hand).or(next),
                    (Action::Return, Some(hand)) => self.source.put_back(hand.given),
                    (Action::Lose, _) => goes = Err(Over),
                    (Action::Await, _) => {
                        let outcome = crew.recruiter.wait();
                        next = Some(crew.hear(outcome));
                    }
                    (action, _) => crew.perform(self, action),
                }
            }
            if next.is_none() && crew.machine.state() == State::Starting {
                let outcome = crew.recruiter.wait();
                next = Some(crew.hear(outcome));
            }
            if next == Some(Event::End) {
                goes = Err(Over);
            }
        }
        if goes.is_err()
            && let Some(error) = crew.error.take()
        {
            crew.tell(Message::Lost(self.place, error));
        }
        goes
    }

    /// Gives the job to the worker in the seat, and waits for what comes of it.
    fn attempt(self, crew: &mut Crew<'_>, hand: &mut Hand<'_>) -> Event {
        let attempt = crew.machine.attempt();
        match self.answer(crew, Assignment { job: hand.job.clone(), input: &hand.input }) {
            Ok(report) => {
                let retryable = report.error.as_ref().is_some_and(|failure| failure.blame.is_retryable());
                hand.report = Some(report);
                Event::Answered { retryable }
            }
            Err(RunError::Interrupted) => Event::End,
            Err(error) => {
                hand.report = Some(Report::rejected(Source::default(), failure(&error, attempt)));
                Event::Lost { retryable: error.is_retryable() }
            }
        }
    }

    fn answer(self, crew: &mut Crew<'_>, assignment: Assignment<'_>) -> Result<Report, RunError> {
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

    /// Publishes what came of the job, while its worker still has the artifacts. A worker whose memory cannot be given
    /// back goes with it.
    fn finish(self, crew: &mut Crew<'_>, hand: &mut Hand<'_>) -> Option<Event> {
        let task = &hand.given.task;
        let mut report = hand.report.take()?;
        report.source = Source { format: report.source.format, ..std::mem::take(&mut hand.source) };
        let output = crew.worker.as_ref().map(|worker| worker.output());
        let report = self.source.accept(task, report).map(|report| self.source.publish(task, report, output));
        let stuck = output.is_some_and(|output| output.reclaim().is_err());
        crew.settle(self, task, report);
        stuck.then_some(Event::Gone)
    }
}

/// A job in hand.
struct Hand<'a> {
    given: &'a Given<'a>,
    job: Job,
    input: SealedInput,
    source: Source,
    /// What came of the last attempt.
    report: Option<Report>,
}

/// A slot's workers, and what is remembered of those before them.
struct Crew<'a> {
    machine: Machine,
    recruiter: Recruiter,
    tell: &'a Sender<Message>,
    worker: Option<Box<Worker>>,
    life: Option<Life>,
    /// The worker that is ready and not in the seat.
    fresh: Option<Box<Worker>>,
    /// Why the worker in the seat has had its day.
    reason: Option<Reason>,
    /// Why the last worker that was started did not become ready.
    error: Option<StartError>,
    job_ended: bool,
    greeted: bool,
}

impl<'a> Crew<'a> {
    fn new(recruiter: Recruiter, tell: &'a Sender<Message>) -> Self {
        let (machine, worker, life, fresh) = (Machine::default(), None, None, None);
        let (reason, error, job_ended, greeted) = (None, None, false, false);
        Self { machine, recruiter, tell, worker, life, fresh, reason, error, job_ended, greeted }
    }

    fn step(&mut self, event: Event) -> Vec<Action> {
        let (machine, actions) = std::mem::take(&mut self.machine).step(event);
        self.machine = machine;
        actions
    }

    fn hear(&mut self, outcome: Outcome) -> Event {
        match outcome {
            Outcome::Retired => Event::Retired,
            Outcome::Started(Ok(worker)) => {
                self.fresh = Some(worker);
                Event::Ready
            }
            Outcome::Started(Err(error)) => {
                self.error = Some(error);
                Event::NotReady
            }
        }
    }

    /// What concerns workers alone.
    fn perform(&mut self, slot: Slot<'_>, action: Action) {
        let name = || slot.spec.name.clone();
        match action {
            Action::Start => self.recruiter.start(),
            Action::Seat => self.enlist(slot),
            Action::Swap => {
                let old = self.worker.take();
                self.enlist(slot);
                old.into_iter().for_each(|old| self.recruiter.retire(old));
                let reason = self.reason.take().map(|reason| reason.to_string());
                self.tell(Message::Recycled(name(), reason.unwrap_or_default()));
            }
            Action::Dismiss => self.worker = None,
            Action::Retire => self.worker.take().into_iter().for_each(|worker| self.recruiter.retire(worker)),
            Action::Discard => self.fresh = None,
            Action::Keep => {
                let reason = self.reason.take().map(|reason| reason.to_string()).unwrap_or_default();
                let error = self.error.take().map(|error| error.to_string()).unwrap_or_default();
                self.tell(Message::Kept(name(), format!("{reason}, but {error}")));
            }
            // The job's own, and the slot's.
            Action::Assign | Action::Finish | Action::Return | Action::Lose | Action::Await => {}
        }
    }

    fn enlist(&mut self, slot: Slot<'_>) {
        self.worker = self.fresh.take();
        let number = self.machine.lives().saturating_sub(1);
        self.life = Some(Life::new(slot.rules, slot.place, number, self.machine.short_lives()));
        if let Some(worker) = self.worker.as_ref().filter(|_| !self.greeted) {
            let (device, confinement) = (worker.device().clone(), worker.confinement().clone());
            self.tell(Message::Started(slot.place, Box::new(device), confinement));
            self.greeted = true;
        }
    }

    fn settle(&self, slot: Slot<'_>, task: &Task, report: Option<Report>) {
        if let Some(report) = report {
            slot.source.settle(task, &report);
            self.tell(Message::Finished(Box::new(Finished { index: task.index, report })));
        }
    }

    fn tell(&self, message: Message) {
        // A send fails only when the pool's own loop has ended, and then nobody is left to be told.
        drop(self.tell.send(message));
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
