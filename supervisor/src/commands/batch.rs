//! `refmill batch`: all images of a folder or a bucket's prefix, into a folder or a bucket's prefix; what is done
//! already is left alone.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::mpsc::{self, SyncSender};
use std::thread;

use refmill::exit::ExitCode;

use super::run::prepare;
use super::{CommandError, warn_unconfined};
use crate::args::BatchArgs;
use crate::devices::Choice;
use crate::pool::worker::WorkerPlan;
use crate::pool::{self, Ended, News, Rules, SlotSpec};
use crate::settings::BatchSettings;
use crate::shutdown::Stop;
use crate::store::bucket::Bucket;
use crate::store::connection::{Connection, Patience};
use crate::store::error::{Kind, StoreError};
use crate::store::failures::{Failed, Failures};
use crate::store::folder::Folder;
use crate::store::inputs::{Entry, Inputs, PassedOver};
use crate::store::location::Location;
use crate::store::mark;
use crate::store::outputs::Outputs;
use crate::store::source::{Batch, BatchSource};
use telling::Telling;

mod telling;

/// How far a listing may be ahead of what is looked at.
const LISTED_AHEAD: usize = 10_000;
/// How many threads look at files; of a bucket, half as many as requests may run.
const FILE_FEEDERS: usize = 2;

pub(super) fn batch(args: BatchArgs) -> Result<ExitCode, CommandError> {
    let asked = prepare(None)?;
    let settings = BatchSettings::new(args)?;
    warn_unconfined(settings.plan.confinement.policy);
    let (inputs, outputs) = ends(&settings, &Patience::until(&asked))?;
    let telling = Telling::new(settings.voice, &settings.named, Failures::begin(&settings.failures)?);
    let wishes = mark::wishes(&settings.order).map_err(|error| CommandError::Usage { message: error.to_string() })?;
    let batch = Batch {
        inputs: &inputs,
        outputs: &outputs,
        order: &settings.order,
        wishes: &wishes,
        force: settings.force,
        again: settings.retry.is_some(),
        stop: &asked,
        tell: &|told| telling.told(&told),
    };
    let feeders = match &settings.reach {
        Some(reach) => reach.concurrency.div_ceil(2),
        None => FILE_FEEDERS,
    };
    let source = BatchSource::new(batch, feeders);
    let (listed, list) = mpsc::sync_channel(LISTED_AHEAD);
    let list = Mutex::new(list);
    let (ended, listing) = thread::scope(|scope| {
        let list = &list;
        let lister = scope.spawn(|| enumerate(&settings, &inputs, &asked, &telling, listed));
        (0..feeders).for_each(|_| drop(scope.spawn(|| source.feed(list))));
        let ended = attempt(&settings, &source, &telling);
        // No slot is left: whoever still lists or fetches does so for nobody.
        asked_anyway(&ended, &asked);
        (ended, lister.join().unwrap_or_else(|_| Err(StoreError::new(Kind::Refused, "the listing ended early"))))
    });
    let ended = ended.map_err(|source| CommandError::System { what: "make a pipe", source })?;
    conclude(&settings, ended, listing, telling)
}

/// Both ends, reached and looked at.
fn ends(settings: &BatchSettings, patience: &Patience) -> Result<(Inputs, Outputs), CommandError> {
    let connection = settings.reach.clone().map(Connection::new).transpose()?;
    let bucket = |name: &str| match &connection {
        Some(connection) => Bucket::new(connection, name),
        None => Err(StoreError::new(Kind::Refused, "no server is known")),
    };
    let inputs = match &settings.input {
        Location::Folder(path) if path.is_dir() => Inputs::Folder(path.clone()),
        Location::Folder(path) => {
            return Err(CommandError::Usage { message: format!("{} is no folder", path.display()) });
        }
        Location::Bucket { bucket: name, prefix } => Inputs::Bucket { bucket: bucket(name)?, prefix: prefix.clone() },
    };
    let outputs = match &settings.out {
        Location::Folder(path) => Outputs::Folder(Folder::take(path)?),
        Location::Bucket { bucket: name, prefix } => {
            let bucket = bucket(name)?;
            match bucket.page(prefix, None, 1, patience) {
                // Who may write need not be allowed to list.
                Err(error) if error.kind != Kind::Denied => return Err(error.into()),
                _ => Outputs::Bucket { bucket, prefix: prefix.clone() },
            }
        }
    };
    Ok((inputs, outputs))
}

/// Hands on what is listed, or what is to be tried again.
fn enumerate(
    settings: &BatchSettings,
    inputs: &Inputs,
    asked: &Stop,
    telling: &Telling,
    listed: SyncSender<Entry>,
) -> Result<PassedOver, StoreError> {
    let patience = Patience::until(asked);
    let hand_on = |entry| {
        telling.listed();
        listed.send(entry).is_ok() && !asked.is_requested()
    };
    match &settings.retry {
        None => inputs.list(&settings.out, &patience, &mut { hand_on }),
        Some(retry) => again(retry, inputs, &patience, telling, &hand_on).map(|()| PassedOver::default()),
    }
}

fn again(
    retry: &[Failed],
    inputs: &Inputs,
    patience: &Patience,
    telling: &Telling,
    hand_on: &dyn Fn(Entry) -> bool,
) -> Result<(), StoreError> {
    // A key that is listed twice is one input.
    let once: HashMap<&str, &Failed> = retry.iter().map(|failed| (failed.key.as_str(), failed)).collect();
    let mut left = once.into_iter();
    while let Some((key, failed)) = left.next() {
        let found = inputs.find(key, patience);
        match found {
            Ok(Some(entry)) => {
                if hand_on(entry) {
                    continue;
                }
            }
            Ok(None) => {
                telling.listed();
                telling.gone(key);
                continue;
            }
            Err(error) if error.kind != Kind::Interrupted => {
                telling.failed(key, failed.error.clone());
                left.for_each(|(key, failed)| telling.failed(key, failed.error.clone()));
                return Err(error);
            }
            Err(_) => telling.failed(key, failed.error.clone()),
        }
        // What was not begun stays in the file.
        left.by_ref().for_each(|(key, failed)| {
            telling.listed();
            telling.failed(key, failed.error.clone());
        });
    }
    Ok(())
}

/// The pool on the chosen device; where an automatically chosen GPU does not start, on the CPU.
fn attempt(settings: &BatchSettings, source: &BatchSource<'_>, telling: &Telling) -> std::io::Result<Ended> {
    // The user's wish ends the source; workers finish what they have.
    let never = Stop::new()?;
    let run = |plan: &WorkerPlan| {
        let cores = || thread::available_parallelism().map_or(1, usize::from);
        let usual = || if plan.device.gpu.is_some() { 1 } else { cores() };
        let slots = SlotSpec::several(plan, settings.workers.unwrap_or_else(usual));
        pool::run_from(&slots, &Rules::default(), source, &never, &mut |news| match news {
            News::Ready(device, verdict) => {
                let name = if device.uuid.is_empty() { String::new() } else { format!(" {}", device.uuid) };
                telling.note(&format!("device: {}{name} ({})", device.kind, device.reason));
                verdict.notes().for_each(|note| telling.note(&note));
            }
            News::SlotLost(reason) => telling.note(&format!("a worker was lost and not replaced: {reason}")),
            News::Kept(slot, reason) => telling.note(&format!("{slot}: worker not recycled: {reason}")),
            News::Recycled(..) => {}
            // The source has told already, with all that is known.
            News::Finished(_) => {}
        })
    };
    let ended = run(&settings.plan);
    match &ended.broken {
        Some(error) if !ended.worked && settings.plan.device.may_fall_back => {
            let gpu = settings.plan.device.gpu.as_ref().map(ToString::to_string).unwrap_or_default();
            let device = Choice::cpu(format!("auto: {gpu} did not start: {error}"));
            Ok(run(&WorkerPlan { device, ..settings.plan.clone() }))
        }
        _ => Ok(ended),
    }
}

fn asked_anyway(ended: &std::io::Result<Ended>, asked: &Stop) {
    if ended.as_ref().map_or(true, |ended| ended.broken.is_some()) {
        asked.request();
    }
}

fn conclude(
    settings: &BatchSettings,
    ended: Ended,
    listing: Result<PassedOver, StoreError>,
    telling: Telling,
) -> Result<ExitCode, CommandError> {
    if let Ok(PassedOver { artifacts, others }) = listing {
        if artifacts > 0 {
            telling.note(&format!("{artifacts} below {} are where artifacts go, and no inputs", settings.out));
        }
        if others > 0 {
            telling.note(&format!("{others} objects have no image's extension, and are no inputs"));
        }
    }
    if let (Err(error), false) = (&listing, telling.has_listed()) {
        // Nothing was begun: there is nothing to tell but why.
        return Err(error.clone().into());
    }
    let is_empty_retry = settings.retry.as_ref().is_some_and(Vec::is_empty);
    let counts = telling.close()?;
    match (ended.broken, listing) {
        (Some(error), _) if !ended.worked => Err(CommandError::NoWorker(error)),
        (Some(source), _) if counts.not_done > 0 => {
            let undone = usize::try_from(counts.not_done).unwrap_or(usize::MAX);
            Err(CommandError::WorkersLost { undone, source })
        }
        (_, Err(error)) if error.kind != Kind::Interrupted => Err(error.into()),
        _ if is_empty_retry => Ok(ExitCode::AllGood),
        _ => Ok(counts.tally().exit_code()),
    }
}
