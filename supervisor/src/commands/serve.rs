//! `refmill serve`: jobs of a queue through the pool, until told to end or, with `--drain`, until none is left.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use refmill::exit::ExitCode;

use super::run::prepare;
use super::{CommandError, warn_unconfined};
use crate::args::ServeArgs;
use crate::devices::Choice;
use crate::http::{self, Health, Server};
use crate::pool::worker::WorkerPlan;
use crate::pool::{self, Ended, Rules, SlotSpec};
use crate::publish;
use crate::queue::lock::ServeLock;
use crate::queue::source::{Live, QueueSource, Terms};
use crate::queue::spec::Spec;
use crate::queue::{Clock, Filter, JobId, Place, Queue, QueueError, SqliteQueue, State, nats};
use crate::settings::{self, ServeSettings, Slots};
use crate::shutdown::{Bell, Stop};
use crate::telemetry::{self, Telemetry};
use keeper::{Keeper, Stops};
use teller::Teller;

mod keeper;
mod teller;

/// Leased jobs read at a time.
const PAGE: u32 = 1_000;

pub(super) fn serve(args: ServeArgs) -> Result<ExitCode, CommandError> {
    let pipe = |source| CommandError::System { what: "make a pipe", source };
    let hangup = Bell::new().map_err(pipe)?;
    let asked = prepare(Some(hangup.clone()))?;
    let settings = ServeSettings::new(args.clone())?;
    telemetry::log::install(settings.config.log, settings.voice);
    settings.slots.iter().take(1).for_each(|slots| warn_unconfined(slots.plan.confinement.policy));
    let notifier = settings::notifier();
    let notifier = notifier.map_err(|source| CommandError::System { what: "reach the service manager", source })?;
    let config = &settings.config;
    let queue = settings.queue.open(config.queue.durability, true)?.with(Clock::system(), config.retry);
    let queue = Arc::new(queue);
    let _lock = settings.queue.file().map(locked).transpose()?;
    let say = |text: &str| tracing::info!("{text}");
    queue.set_tenants(&config.tenants(settings.has_gpu()))?;
    if settings.queue.file().is_some() {
        recover(&queue, &say)?;
    }
    let terms = Terms {
        holder: holder(&settings.queue),
        lease_ms: config.queue.lease_s.saturating_mul(1_000),
        drain: settings.drain,
        output_bytes: config.limits.output_bytes,
    };
    let telemetry = Arc::new(Telemetry::default());
    let live = Live { retry: config.retry, findings: config.policy.policy() };
    let source = QueueSource::new(&*queue, (terms, live), &asked, &say).with(Arc::clone(&telemetry));
    let health = Health::default();
    let _server = listen(&settings, &health, (&queue, &telemetry), &say)?;
    let teller = Teller::new(settings.voice, &notifier, &health, &telemetry);
    let (kill, over) = (Stop::new().map_err(pipe)?, Stop::new().map_err(pipe)?);
    let stops = Stops { asked: &asked, kill: &kill, over: &over, hangup: &hangup };
    let keeper = Keeper {
        source: &source,
        queue: &queue,
        settings: &settings,
        args: &args,
        notifier: &notifier,
        health: &health,
        stops,
    };
    let ended = thread::scope(|scope| {
        let watch = thread::Builder::new().name("keeper".into()).spawn_scoped(scope, || keeper.keep(&say));
        let ended = watch.map(|_| attempt_all(&settings, &source, &kill, &teller));
        over.request();
        ended
    });
    notifier.stopping();
    let ended = ended.map_err(|source| CommandError::System { what: "start a thread", source })?;
    source.release();
    if let Some(error) = source.broken() {
        return Err(error.into());
    }
    conclude(ended, &queue, teller.buried(), (settings.drain, asked.is_requested()))
}

/// The HTTP server, where one is configured: it answers until it is dropped.
fn listen(
    settings: &ServeSettings,
    health: &Health,
    (queue, telemetry): (&Arc<SqliteQueue>, &Arc<Telemetry>),
    say: &dyn Fn(&str),
) -> Result<Option<Server>, CommandError> {
    let Some((setup, tokens)) = &settings.http else { return Ok(None) };
    let figures = http::figures(Arc::clone(queue), Arc::clone(telemetry), tokens);
    let server = Server::start(setup, http::assembled(health, [figures]))?;
    server.places.iter().for_each(|place| say(&format!("listens at {place}")));
    Ok(Some(server))
}

/// One supervisor a file.
fn locked(file: &Path) -> Result<ServeLock, CommandError> {
    // Two names of one file are one queue.
    let path = file.canonicalize();
    let path = path.map_err(|source| CommandError::System { what: "find the queue's own place", source })?;
    Ok(ServeLock::take(&path)?)
}

/// Who claims, for people. Where several machines do, a process alone says too little.
fn holder(queue: &Place) -> String {
    let process = format!("process {}", std::process::id());
    match queue {
        Place::File(_) => process,
        Place::Stream(..) => format!("{process} of {}", nats::hostname()),
    }
}

/// Sees to what a supervisor left that was killed. With the lock, nobody else serves: whoever held a lease is gone, and
/// half-written files can only lie where such a lease's job publishes. First the files, then the leases: ended in
/// between, the next one finds the same.
fn recover(queue: &SqliteQueue, say: &dyn Fn(&str)) -> Result<(), QueueError> {
    let mut folders: BTreeSet<PathBuf> = BTreeSet::new();
    let (filter, mut after) = (Filter { state: Some(State::Leased), tenant: None }, JobId(0));
    loop {
        let page = queue.list(&filter, after, PAGE)?;
        let Some(last) = page.last() else { break };
        after = last.id;
        // One that cannot be read was never published.
        let specs = page.iter().filter_map(|job| serde_json::from_str::<Spec>(&job.payload).ok());
        specs.for_each(|spec| folders.extend(spec.outputs.folders().into_iter().map(ToOwned::to_owned)));
    }
    for folder in folders {
        match publish::sweep(&folder) {
            Ok(0) => {}
            Ok(swept) => {
                say(&format!("{swept} half-written files of a killed supervisor removed in {}", folder.display()))
            }
            // A folder that is gone, or not to be listed, is told by the job that publishes there.
            Err(_) => {}
        }
    }
    let orphans = queue.reclaim(true)?;
    if orphans > 0 {
        say(&format!("{orphans} jobs were in the hands of a supervisor that is gone; they are tried again"));
    }
    Ok(())
}

/// Every device at once; one that does not work costs its own workers and no others.
fn attempt_all(settings: &ServeSettings, source: &QueueSource<'_>, kill: &Stop, teller: &Teller<'_>) -> Ended {
    let (all, rules) = (Mutex::new(Ended::default()), settings.config.rules());
    thread::scope(|scope| {
        for slots in &settings.slots {
            let run = || {
                let ended = attempt(slots, &rules, source, kill, teller);
                let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
                all.worked |= ended.worked;
                all.broken = ended.broken.or(all.broken.take());
            };
            if let Err(error) = thread::Builder::new().name("pool".into()).spawn_scoped(scope, run) {
                all.lock().unwrap_or_else(PoisonError::into_inner).broken =
                    Some(pool::worker::StartError::Prepare(error));
            }
        }
    });
    all.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// The pool on one device; where an automatically chosen GPU does not start, on the CPU.
fn attempt(slots: &Slots, rules: &Rules, source: &QueueSource<'_>, kill: &Stop, teller: &Teller<'_>) -> Ended {
    let run = |plan: &WorkerPlan| {
        let cores = || thread::available_parallelism().map_or(1, usize::from);
        let usual = || if plan.device.gpu.is_some() { 1 } else { cores() };
        let specs = SlotSpec::several(plan, slots.workers.unwrap_or_else(usual));
        pool::run_from(&specs, rules, source, kill, &mut |news| teller.hear(news))
    };
    let ended = run(&slots.plan);
    match &ended.broken {
        Some(error) if !ended.worked && slots.plan.device.may_fall_back => {
            let gpu = slots.plan.device.gpu.as_ref().map(ToString::to_string).unwrap_or_default();
            let device = Choice::cpu(format!("auto: {gpu} did not start: {error}"));
            run(&WorkerPlan { device, ..slots.plan.clone() })
        }
        _ => ended,
    }
}

fn conclude(
    ended: Ended,
    queue: &SqliteQueue,
    buried: usize,
    (drain, asked): (bool, bool),
) -> Result<ExitCode, CommandError> {
    match ended.broken {
        Some(error) if !ended.worked => Err(CommandError::NoWorker(error)),
        Some(source) if !asked => {
            let waits: u64 = queue.tenants()?.iter().map(|standing| standing.queued).sum();
            let undone = usize::try_from(waits).unwrap_or(usize::MAX);
            if undone > 0 { Err(CommandError::WorkersLost { undone, source }) } else { Ok(ExitCode::AllGood) }
        }
        _ if drain && buried > 0 => Ok(ExitCode::SomeFailed),
        _ => Ok(ExitCode::AllGood),
    }
}
