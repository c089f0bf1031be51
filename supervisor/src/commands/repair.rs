//! `refmill repair`: one image, upright and in sRGB, and what was wrong with it.

use std::path::{Path, PathBuf};

use refmill::exit::ExitCode;

use super::CommandError;
use super::run::prepare;
use super::session::Session;
use crate::args::RepairArgs;
use crate::intake::{Origin, identity};
use crate::pool::Task;
use crate::progress::Progress;
use crate::publish::{Outputs, Target};
use crate::settings::RepairSettings;

pub(super) fn repair(args: RepairArgs) -> Result<ExitCode, CommandError> {
    let stop = prepare()?;
    let settings = RepairSettings::new(args)?;
    let origin = if is_dash(&settings.file) { Origin::Stdin } else { Origin::File(settings.file.clone()) };
    check_distinct(&settings, &origin)?;
    let image = if is_dash(&settings.png) { Target::Stdout } else { Target::File(settings.png.clone()) };
    let progress = Progress::new(settings.voice, 1, false);
    // Both files were named one by one, so they may be replaced whoever made them.
    let outputs = Outputs { image: Some(image), report: settings.report.clone(), force: true, ..Outputs::default() };
    let task = Task { index: 0, name: origin.name(), origin, outputs };
    Session { plan: settings.plan, workers: Some(1), order: settings.order, tasks: vec![task], stop }.run(progress)
}

fn is_dash(path: &Path) -> bool {
    path == Path::new("-")
}

fn check_distinct(settings: &RepairSettings, origin: &Origin) -> Result<(), CommandError> {
    let place = |path: &Path| identity(&Origin::File(path.to_owned()));
    let mut named: Vec<PathBuf> = origin.path().map(place).into_iter().collect();
    let outputs = [Some(&settings.png), settings.report.as_ref()].into_iter().flatten();
    for output in outputs.filter(|path| !is_dash(path)) {
        let place = place(output);
        if named.contains(&place) {
            let message = format!("{} is named twice; input, image and report are three files", output.display());
            return Err(CommandError::Usage { message });
        }
        named.push(place);
    }
    Ok(())
}
