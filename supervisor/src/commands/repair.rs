//! `refmill repair`: files with their metadata made right, or one image converted, and what was wrong.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use refmill::exit::ExitCode;
use refmill::job::ImageWanted;

use super::CommandError;
use super::run::{places, prepare};
use super::session::Session;
use crate::args::RepairArgs;
use crate::intake::{self, Expanded, Input, Origin, identity};
use crate::naming::{self, IMAGE, REPAIRED, REPORT, TENSORS};
use crate::pool::Task;
use crate::progress::{Progress, Tally};
use crate::publish::{Outputs, Target};
use crate::settings::{Place, RepairSettings};

pub(super) fn repair(args: RepairArgs) -> Result<ExitCode, CommandError> {
    let stop = prepare(None)?;
    let settings = RepairSettings::new(args)?;
    let Expanded { inputs, notes } = match (&settings.place, settings.files.as_slice()) {
        // One file is named: it is no glob, and no folder.
        (Place::Png(_), [file]) => Expanded { inputs: vec![named(file)], notes: Vec::new() },
        _ => intake::expand(&settings.files)?,
    };
    let progress = Progress::new(settings.voice, inputs.len(), false);
    notes.iter().for_each(|note| progress.note(note));
    if inputs.is_empty() {
        return Ok(Tally::default().exit_code());
    }
    let outputs = match &settings.place {
        Place::Png(png) => vec![to_png(&settings, &inputs, png)?],
        Place::Folder { out, force } => {
            let names = Names { out, force: *force, image: settings.order.image };
            names.outputs(&inputs)?
        }
        Place::InPlace { backup } => in_place(&settings, &inputs, backup)?,
    };
    let tasks = inputs.iter().zip(outputs).enumerate();
    let tasks = tasks.map(|(index, (input, outputs))| {
        let origin = input.origin.clone();
        Task { index, name: origin.name(), origin, outputs }
    });
    let (workers, tasks) = (settings.workers, tasks.collect());
    Session { plan: settings.plan, workers, order: settings.order, tasks, stop }.run(progress)
}

fn named(file: &Path) -> Input {
    let origin = if is_dash(file) { Origin::Stdin } else { Origin::File(file.to_owned()) };
    Input { origin, relative: file.to_owned() }
}

fn is_dash(path: &Path) -> bool {
    path == Path::new("-")
}

fn usage(message: String) -> CommandError {
    CommandError::Usage { message }
}

/// One image: its files were named one by one, so they may be replaced whoever made them.
fn to_png(settings: &RepairSettings, inputs: &[Input], png: &Path) -> Result<Outputs, CommandError> {
    let [input] = inputs else {
        return Err(usage(format!("--png takes one image, {} are named; --out takes several", inputs.len())));
    };
    check_distinct(&input.origin, [Some(png), settings.report.as_deref()])?;
    let image = if is_dash(png) { Target::Stdout } else { Target::File(png.to_owned()) };
    Ok(Outputs { image: Some(image), report: settings.report.clone(), force: true, ..Outputs::default() })
}

fn check_distinct(origin: &Origin, outputs: [Option<&Path>; 2]) -> Result<(), CommandError> {
    let place = |path: &Path| identity(&Origin::File(path.to_owned()));
    let mut named: Vec<PathBuf> = origin.path().map(place).into_iter().collect();
    for output in outputs.into_iter().flatten().filter(|path| !is_dash(path)) {
        let place = place(output);
        if named.contains(&place) {
            let message = format!("{} is named twice; input, image and report are three files", output.display());
            return Err(usage(message));
        }
        named.push(place);
    }
    Ok(())
}

/// What is written into a folder.
struct Names<'a> {
    out: &'a Path,
    force: bool,
    image: ImageWanted,
}

impl Names<'_> {
    fn outputs(&self, inputs: &[Input]) -> Result<Vec<Outputs>, CommandError> {
        let failed = |error: io::Error| usage(format!("cannot make the output folder {}: {error}", self.out.display()));
        fs::create_dir_all(self.out).map_err(failed)?;
        let real = self.out.canonicalize().map_err(failed)?;
        let relative: Vec<PathBuf> = inputs.iter().map(|input| input.relative.clone()).collect();
        let endings: Vec<&str> = REPAIRED.iter().copied().chain([TENSORS, REPORT]).collect();
        let names = naming::plan_with(&relative, &real, &places(inputs), &endings);
        Ok(names.iter().map(|name| self.of(name)).collect())
    }

    fn of(&self, name: &OsString) -> Outputs {
        let file = |ending: &str| naming::file(self.out, name, ending);
        let image = if self.image == ImageWanted::Lossless {
            Target::ByFormat(self.out.join(name))
        } else {
            Target::File(file(IMAGE))
        };
        let stale = REPAIRED.iter().chain([&TENSORS]).map(|ending| file(ending)).collect();
        Outputs { image: Some(image), report: Some(file(REPORT)), stale, force: self.force, ..Outputs::default() }
    }
}

fn in_place(settings: &RepairSettings, inputs: &[Input], backup: &OsString) -> Result<Vec<Outputs>, CommandError> {
    if settings.report.is_some() && inputs.len() > 1 {
        return Err(usage(format!("--report takes one file, {} are named; --json tells of all", inputs.len())));
    }
    let outputs = inputs.iter().map(|input| {
        let Some(path) = input.origin.path() else {
            return Err(usage("standard input has no place of its own; write it with --out".into()));
        };
        check_distinct(&input.origin, [settings.report.as_deref(), None])?;
        // A link stays, and what it leads to is replaced.
        let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let mut name = path.clone().into_os_string();
        name.push(backup);
        let image = Some(Target::InPlace { path, backup: name.into() });
        Ok(Outputs { image, report: settings.report.clone(), force: true, ..Outputs::default() })
    });
    outputs.collect()
}
