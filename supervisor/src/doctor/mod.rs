//! The doctor: whether this machine, with this configuration, can do what refmill needs, and what to do where it
//! cannot. Everything is tried as far as it can be, each check on a thread of its own with a deadline. CUDA is loaded by
//! a confined worker alone, never here.

pub mod check;
mod driver;
mod machine;
mod place;
pub mod report;
mod worker;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::devices::Choice;
use crate::pool::WatermarkPolicy;
use crate::pool::worker::WorkerPlan;
use check::{Check, Checked, Severity, within};

/// How long files and nodes may take to answer.
const LOOK: Duration = Duration::from_secs(10);
/// How long two workers may take, with all that they try.
const WORK: Duration = Duration::from_secs(90);

/// What is examined.
#[derive(Debug)]
pub struct Patient {
    /// `/`, and another folder in tests.
    pub root: PathBuf,
    /// The device that is meant.
    pub choice: Choice,
    /// How workers are started.
    pub plan: WorkerPlan,
    /// The watermark.
    pub watermark: WatermarkPolicy,
    /// The queue.
    pub queue: PathBuf,
    /// The folder of artifacts.
    pub out: PathBuf,
    /// The folder for sockets.
    pub temporary: PathBuf,
    /// The folders of `LD_LIBRARY_PATH`.
    pub library_path: Vec<PathBuf>,
    /// `CUDA_VISIBLE_DEVICES`.
    pub visible_devices: Option<String>,
    /// `CUDA_MPS_PIPE_DIRECTORY`.
    pub mps_folder: Option<PathBuf>,
    /// `NVIDIA_DRIVER_CAPABILITIES`.
    pub driver_capabilities: Option<String>,
    /// Whether Kubernetes says that it is around.
    pub in_kubernetes: bool,
    /// What is wrong with the configuration, if anything is.
    pub configuration: Option<String>,
}

/// Makes all checks, and tells them in the order of [`Check::ALL`].
#[must_use]
pub fn examine(patient: Patient) -> Vec<Checked> {
    let patient = Arc::new(patient);
    let mut checked = vec![configuration(&patient)];
    type Group = (Duration, &'static [Check], fn(&Patient) -> Vec<Checked>);
    let groups: [Group; 5] = [
        (LOOK, machine::CHECKS, machine::check),
        (LOOK, driver::CHECKS, driver::check),
        (LOOK, place::QUEUE, place::check_queue),
        (LOOK, place::OUTPUT, place::check_output),
        (WORK, worker::CHECKS, worker::check),
    ];
    for (limit, checks, work) in groups {
        let patient = Arc::clone(&patient);
        checked.extend(within(limit, checks, move || work(&patient)));
    }
    let place = |one: &Checked| Check::ALL.iter().position(|check| *check == one.check);
    checked.sort_by_key(place);
    checked
}

fn configuration(patient: &Patient) -> Checked {
    match &patient.configuration {
        Some(problem) => Checked::new(Check::Config, Severity::Failure, problem.clone()),
        None => Checked::new(Check::Config, Severity::Ok, "can be read"),
    }
}
