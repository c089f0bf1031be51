//! A worker, started as the pool starts one: what confines it, and what it tries out inside.

use std::time::{Duration, Instant};

use refmill::examine::{Examination, Outcome, Trial};
use refmill::posture::Probe;

use super::Patient;
use super::check::{Check, Checked, Severity};
use crate::pool::Deadlines;
use crate::pool::posture::WHOLE_LANDLOCK;
use crate::pool::sample;
use crate::pool::watermark::Kind;
use crate::pool::worker::Worker;
use crate::shutdown::Stop;

/// How long the trials may take together.
const TRIALS: Duration = Duration::from_secs(20);
/// By how much free memory of a GPU may differ from one context to the next, in bytes.
const SLACK: u64 = 64 << 20;
const MIB: u64 = 1 << 20;

/// All checks of this module.
pub(super) const CHECKS: &[Check] = &[
    Check::WorkerStart,
    Check::Landlock,
    Check::Seccomp,
    Check::SandboxSelfTest,
    Check::Image,
    Check::GpuIdentity,
    Check::GpuContext,
    Check::GpuAllocation,
    Check::GpuAlignment,
    Check::GpuCopy,
    Check::GpuKernel,
    Check::GpuPool,
    Check::GpuWaits,
    Check::GpuDecoder,
    Check::GpuTeardown,
    Check::Watermark,
];

pub(super) fn check(patient: &Patient) -> Vec<Checked> {
    let begun = Instant::now();
    match first(patient) {
        Ok((mut checked, free)) => {
            checked.insert(
                0,
                Checked::new(
                    Check::WorkerStart,
                    Severity::Ok,
                    format!("one worker, {} ms with all trials", begun.elapsed().as_millis()),
                ),
            );
            checked.push(teardown(patient, free));
            checked
        }
        Err(problem) => {
            let rest = CHECKS.iter().skip(1).map(|check| Checked::new(*check, Severity::Skipped, "no worker"));
            std::iter::once(Checked::new(Check::WorkerStart, Severity::Failure, problem)).chain(rest).collect()
        }
    }
}

fn first(patient: &Patient) -> Result<(Vec<Checked>, Option<u64>), String> {
    let stop = Stop::new().map_err(|error| error.to_string())?;
    let mut worker = Worker::start(&patient.plan, &Deadlines::default(), &stop).map_err(|error| error.to_string())?;
    let mut checked = confined(&worker);
    let told = worker.examine(TRIALS, &stop).map_err(|error| error.to_string())?;
    checked.push(watermark(patient, &worker));
    checked.extend(trials(&told));
    worker.stop();
    Ok((checked, told.free))
}

fn confined(worker: &Worker) -> Vec<Checked> {
    let told = &worker.confinement().told;
    let landlock = match told.landlock {
        0 => Checked::new(Check::Landlock, Severity::Warning, "not enforced"),
        abi if abi < WHOLE_LANDLOCK => {
            Checked::new(Check::Landlock, Severity::Warning, format!("ABI {abi}, whole from {WHOLE_LANDLOCK} on"))
        }
        abi => Checked::new(Check::Landlock, Severity::Ok, format!("ABI {abi}")),
    };
    let seccomp = match told.seccomp.as_str() {
        "" => Checked::new(Check::Seccomp, Severity::Failure, "the worker may call everything"),
        list => Checked::new(Check::Seccomp, Severity::Ok, format!("the list of calls for {list}")),
    };
    let allowed: Vec<&str> = told.allowed().map(Probe::what).collect();
    let seen = format!("{} of {} deeds were refused", told.refused.len(), Probe::ALL.len());
    let tested = if allowed.is_empty() {
        Checked::new(Check::SandboxSelfTest, Severity::Ok, seen)
    } else {
        Checked::new(Check::SandboxSelfTest, Severity::Failure, format!("{seen}; a worker can {}", allowed.join(", ")))
    };
    vec![landlock, seccomp, tested]
}

fn trials(told: &Examination) -> impl Iterator<Item = Checked> + '_ {
    told.tried.iter().map(|tried| {
        let severity = match tried.outcome {
            Outcome::Passed => Severity::Ok,
            Outcome::Doubtful => Severity::Warning,
            Outcome::Failed => Severity::Failure,
            Outcome::Skipped => Severity::Skipped,
        };
        Checked::new(named(tried.trial), severity, tried.seen.clone())
    })
}

fn named(trial: Trial) -> Check {
    match trial {
        Trial::Image => Check::Image,
        Trial::Identity => Check::GpuIdentity,
        Trial::Context => Check::GpuContext,
        Trial::Allocation => Check::GpuAllocation,
        Trial::Alignment => Check::GpuAlignment,
        Trial::Copy => Check::GpuCopy,
        Trial::Kernel => Check::GpuKernel,
        Trial::Pool => Check::GpuPool,
        Trial::Waits => Check::GpuWaits,
        Trial::Decoder => Check::GpuDecoder,
    }
}

/// What a second worker finds free, in the place of the first.
fn teardown(patient: &Patient, before: Option<u64>) -> Checked {
    let told = |severity, seen: String| Checked::new(Check::GpuTeardown, severity, seen);
    let Some(before) = before else { return told(Severity::Skipped, "no GPU".into()) };
    match first(patient) {
        Ok((_, Some(after))) => {
            let seen =
                format!("{} MiB free beside the first worker, {} MiB beside the next", before / MIB, after / MIB);
            told(if after.saturating_add(SLACK) < before { Severity::Warning } else { Severity::Ok }, seen)
        }
        Ok((_, None)) => told(Severity::Warning, "the second worker does not tell what is free".into()),
        Err(problem) => told(Severity::Failure, format!("no second worker: {problem}")),
    }
}

fn watermark(patient: &Patient, worker: &Worker) -> Checked {
    let told = |severity, seen: String| Checked::new(Check::Watermark, severity, seen);
    // The worker is idle: nobody waits while its pages are counted, and small figures are exact.
    let Some(sample) = sample::smaps_rollup(worker.pid()) else {
        return told(Severity::Warning, "the worker's memory cannot be read".into());
    };
    let mark = patient.watermark.marks(Kind::Host, None, 0, 0).mark;
    let seen = format!("{} MiB after one image, the mark is {} MiB", sample.bytes / MIB, mark / MIB);
    told(if sample.bytes >= mark { Severity::Failure } else { Severity::Ok }, seen)
}
