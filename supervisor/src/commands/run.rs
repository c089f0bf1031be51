//! `refmill run`: every input through the pool, its artifacts into one folder.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use refmill::exit::ExitCode;
use refmill::job::ImageWanted;

use super::CommandError;
use super::session::Session;
use crate::args::RunArgs;
use crate::intake::{self, Expanded, Input};
use crate::naming::{self, IMAGE, REPORT, TENSORS};
use crate::pool::spawn::reserve_socket_fd;
use crate::pool::{Order, Task};
use crate::progress::{Progress, Tally};
use crate::publish::{Outputs, Target};
use crate::settings::{Destination, RunSettings};
use crate::shutdown::{Bell, Stop};

pub(super) fn run(args: RunArgs) -> Result<ExitCode, CommandError> {
    let stop = prepare(None)?;
    let settings = RunSettings::new(args)?;
    let Expanded { inputs, notes } = intake::expand(&settings.inputs)?;
    let stdout = settings.destination == Destination::Stdout;
    if stdout && inputs.len() > 1 {
        let message = format!("--out - takes one input, {} are named", inputs.len());
        return Err(CommandError::Usage { message });
    }
    let progress = Progress::new(settings.voice, inputs.len(), stdout);
    notes.iter().for_each(|note| progress.note(note));
    if inputs.is_empty() {
        return Ok(Tally::default().exit_code());
    }
    let tasks = match &settings.destination {
        Destination::Stdout => inputs.iter().map(|input| task(0, input, to_stdout(&settings.order))).collect(),
        Destination::Folder(out) => into_folder(&settings, &inputs, out)?,
    };
    Session { plan: settings.plan, workers: settings.workers, order: settings.order, tasks, stop }.run(progress)
}

/// What must be done before any thread is started or any other descriptor opened.
pub(super) fn prepare(hangup: Option<Bell>) -> Result<Stop, CommandError> {
    reserve_socket_fd().map_err(|source| CommandError::System { what: "reserve a descriptor", source })?;
    Stop::on_signals(hangup).map_err(|source| CommandError::System { what: "listen for signals", source })
}

fn task(index: usize, input: &Input, outputs: Outputs) -> Task {
    Task { index, origin: input.origin.clone(), name: input.origin.name(), outputs }
}

fn to_stdout(order: &Order) -> Outputs {
    Outputs {
        image: (order.image != ImageWanted::No).then_some(Target::Stdout),
        tensors: order.recipe.is_some().then_some(Target::Stdout),
        ..Outputs::default()
    }
}

fn into_folder(settings: &RunSettings, inputs: &[Input], out: &Path) -> Result<Vec<Task>, CommandError> {
    let failed = |error: io::Error| CommandError::Usage {
        message: format!("cannot make the output folder {}: {error}", out.display()),
    };
    fs::create_dir_all(out).map_err(failed)?;
    let real = out.canonicalize().map_err(failed)?;
    let relative: Vec<PathBuf> = inputs.iter().map(|input| input.relative.clone()).collect();
    let names = naming::plan(&relative, &real, &places(inputs));
    let tasks = inputs.iter().zip(names).enumerate();
    Ok(tasks.map(|(index, (input, name))| task(index, input, beside_each_other(settings, out, &name))).collect())
}

/// The folder entries that inputs are read through: what must not be written over. A link counts, and its target.
pub(super) fn places(inputs: &[Input]) -> HashSet<PathBuf> {
    let entry = |path: &Path| Some(path.parent()?.canonicalize().ok()?.join(path.file_name()?));
    let named = inputs.iter().filter_map(|input| input.origin.path());
    let entries = named.filter_map(|path| entry(&std::path::absolute(path).ok()?));
    entries.chain(inputs.iter().map(|input| intake::identity(&input.origin))).collect()
}

fn beside_each_other(settings: &RunSettings, out: &Path, name: &OsStr) -> Outputs {
    let file = |ending| naming::file(out, name, ending);
    let (image, tensors) = (settings.order.image != ImageWanted::No, settings.order.recipe.is_some());
    let unwanted = [(image, IMAGE), (tensors, TENSORS)].into_iter().filter(|(wanted, _)| !wanted);
    Outputs {
        image: image.then(|| Target::File(file(IMAGE))),
        tensors: tensors.then(|| Target::File(file(TENSORS))),
        report: Some(file(REPORT)),
        stale: unwanted.map(|(_, ending)| file(ending)).collect(),
        force: settings.force,
        ..Outputs::default()
    }
}
