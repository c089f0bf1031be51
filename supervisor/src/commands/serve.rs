//! `refmill serve`: jobs of a queue through the pool, until told to end or, with `--drain`, until none is left.

use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::thread;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use refmill::exit::ExitCode;
use refmill::report::{Outcome, Report};

use super::run::prepare;
use super::{CommandError, warn_unconfined};
use crate::args::ServeArgs;
use crate::devices::Choice;
use crate::pool::worker::WorkerPlan;
use crate::pool::{self, Ended, News};
use crate::progress::describe;
use crate::queue::lease::heartbeat_ms;
use crate::queue::lock::ServeLock;
use crate::queue::source::{Live, QueueSource, Terms};
use crate::queue::sqlite::Durability;
use crate::queue::{Clock, Queue, SqliteQueue, State};
use crate::settings::{ServeSettings, Voice};
use crate::shutdown::Stop;
use crate::verdict::shown;

/// How often old jobs are forgotten.
const PRUNE: Duration = Duration::from_secs(3_600);

pub(super) fn serve(args: ServeArgs) -> Result<ExitCode, CommandError> {
    let asked = prepare()?;
    let settings = ServeSettings::new(args)?;
    warn_unconfined(settings.plan.confinement.policy);
    let queue = SqliteQueue::open(&settings.queue, Durability::Process, true)?.with(Clock::system(), settings.policy);
    // Two names of one file are one queue.
    let path = settings.queue.canonicalize();
    let path = path.map_err(|source| CommandError::System { what: "find the queue's own place", source })?;
    let _lock = ServeLock::take(&path)?;
    let quiet = settings.voice.quiet;
    let say = move |text: &str| tell(quiet, text);
    // With the lock, nobody else serves: whoever held a lease is gone.
    let orphans = queue.reclaim(true)?;
    if orphans > 0 {
        say(&format!("{orphans} jobs were in the hands of a supervisor that is gone; they are tried again"));
    }
    let terms = Terms {
        holder: format!("process {}", std::process::id()),
        lease_ms: settings.lease_ms,
        drain: settings.drain,
        output_bytes: settings.plan.output_bytes,
    };
    let live = Live { retry: settings.policy, ..Live::default() };
    let source = QueueSource::new(&queue, (terms, live), &asked, &say);
    let mut teller = Teller { voice: settings.voice, buried: 0 };
    let pipe = || Stop::new().map_err(|source| CommandError::System { what: "make a pipe", source });
    let (kill, over) = (pipe()?, pipe()?);
    let keeper = Keeper { source: &source, queue: &queue, settings: &settings, stops: [&asked, &kill, &over] };
    let ended = thread::scope(|scope| {
        let watch = thread::Builder::new().name("keeper".into()).spawn_scoped(scope, || keeper.keep(&say));
        let ended = watch.map(|_| attempt(&settings, &source, &kill, &mut teller));
        over.request();
        ended
    });
    let ended = ended.map_err(|source| CommandError::System { what: "start a thread", source })?;
    source.release();
    if let Some(error) = source.broken() {
        return Err(error.into());
    }
    conclude(ended, &queue, &teller, (settings.drain, asked.is_requested()))
}

/// The pool on the chosen device; where an automatically chosen GPU does not start, on the CPU.
fn attempt(settings: &ServeSettings, source: &QueueSource<'_>, kill: &Stop, teller: &mut Teller) -> Ended {
    let mut run = |plan: &WorkerPlan| {
        let cores = || thread::available_parallelism().map_or(1, usize::from);
        let usual = || if plan.device.gpu.is_some() { 1 } else { cores() };
        let slots = settings.workers.unwrap_or_else(usual);
        pool::run_from(plan, slots, source, kill, &mut |news| teller.hear(news))
    };
    let ended = run(&settings.plan);
    match &ended.broken {
        Some(error) if !ended.worked && settings.plan.device.may_fall_back => {
            let gpu = settings.plan.device.gpu.as_ref().map(ToString::to_string).unwrap_or_default();
            let device = Choice::cpu(format!("auto: {gpu} did not start: {error}"));
            run(&WorkerPlan { device, ..settings.plan.clone() })
        }
        _ => ended,
    }
}

fn conclude(
    ended: Ended,
    queue: &SqliteQueue,
    teller: &Teller,
    (drain, asked): (bool, bool),
) -> Result<ExitCode, CommandError> {
    match ended.broken {
        Some(error) if !ended.worked => Err(CommandError::NoWorker(error)),
        Some(source) if !asked => {
            let waits = queue.counts()?.into_iter().filter(|count| count.state == State::Queued);
            let undone = waits.map(|count| usize::try_from(count.jobs).unwrap_or(usize::MAX)).sum();
            if undone > 0 { Err(CommandError::WorkersLost { undone, source }) } else { Ok(ExitCode::AllGood) }
        }
        _ if drain && teller.buried > 0 => Ok(ExitCode::SomeFailed),
        _ => Ok(ExitCode::AllGood),
    }
}

/// Keeps leases alive while the pool runs, forgets old jobs, and ends a drain that takes too long.
struct Keeper<'a> {
    source: &'a QueueSource<'a>,
    queue: &'a SqliteQueue,
    settings: &'a ServeSettings,
    /// The user's wish to end, the order to kill, and the pool's end.
    stops: [&'a Stop; 3],
}

impl Keeper<'_> {
    fn keep(&self, say: &dyn Fn(&str)) {
        let [asked, kill, over] = self.stops;
        let beat = Duration::from_millis(heartbeat_ms(self.settings.lease_ms).into());
        let mut pruned: Option<Instant> = None;
        let mut deadline: Option<Instant> = None;
        while !over.is_requested() {
            self.source.heartbeat();
            if pruned.is_none_or(|last| last.elapsed() >= PRUNE) {
                pruned = Some(Instant::now());
                if let Err(error) = self.queue.prune(self.settings.retention) {
                    say(&error.to_string());
                }
            }
            if deadline.is_none() && asked.is_requested() {
                deadline = Some(Instant::now() + self.settings.grace);
                say("asked to end: jobs in hand are finished, no other is begun");
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                kill.request();
            }
            // Once asked, that pipe stays readable; once killed, only the pool's end is left to wait for.
            let wait = left.filter(|left| !left.is_zero()).map_or(beat, |left| left.min(beat));
            let first = if deadline.is_none() { asked.as_fd() } else { over.as_fd() };
            pause([first, over.as_fd()], wait);
        }
    }
}

fn pause(wake: [BorrowedFd<'_>; 2], wait: Duration) {
    // Rounded up: a wait of no millisecond would be no wait.
    let timeout = PollTimeout::try_from(wait + Duration::from_millis(1)).unwrap_or(PollTimeout::ZERO);
    // Interrupted or not, the caller looks again.
    poll(&mut wake.map(|wake| PollFd::new(wake, PollFlags::POLLIN)), timeout).ok();
}

/// Tells what comes of jobs, a line each, and counts those that were buried.
struct Teller {
    voice: Voice,
    buried: usize,
}

impl Teller {
    fn hear(&mut self, news: News) {
        match news {
            News::Ready(device, verdict) => {
                let reason = shown(&device.reason);
                tell(self.voice.quiet, &format!("ready on {} {} ({reason})", device.kind, shown(&device.uuid)));
                verdict.notes().for_each(|note| tell(self.voice.quiet, &note));
            }
            News::SlotLost(reason) => tell(false, &format!("a worker was lost and not replaced: {}", shown(&reason))),
            News::Finished(finished) => self.finished(&finished.report),
        }
    }

    fn finished(&mut self, report: &Report) {
        let rejected = report.outcome == Outcome::Reject;
        self.buried += usize::from(rejected);
        if self.voice.json {
            // A report always serialises. A reader that went away wants no more lines.
            let text = serde_json::to_string(report).unwrap_or_default();
            drop(writeln!(io::stdout().lock(), "{text}"));
        } else {
            tell(self.voice.quiet && !rejected, &describe(report));
        }
    }
}

/// Writes a line to standard error. Where even that fails, there is nobody to tell.
fn tell(quiet: bool, text: &str) {
    if !quiet {
        drop(writeln!(io::stderr().lock(), "{text}"));
    }
}
