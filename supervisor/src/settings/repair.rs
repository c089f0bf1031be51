//! `refmill repair`, checked.

use std::ffi::OsString;
use std::path::PathBuf;

use refmill::job::{ImageWanted, Strip};

use super::{SettingsError, Voice, colour, worker_plan};
use crate::args::{RepairArgs, StripArg};
use crate::config::Config;
use crate::devices::Choice;
use crate::pool::Order;
use crate::pool::worker::WorkerPlan;
use crate::{limits, policy};

/// Where repaired files go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// One converted image to this file; `-` is standard output.
    Png(PathBuf),
    /// Each into this folder.
    Folder {
        /// The folder.
        out: PathBuf,
        /// Whether files that refmill did not make may be replaced.
        force: bool,
    },
    /// Each into its own place.
    InPlace {
        /// Ending of the copy that is left of the file as it was.
        backup: OsString,
    },
}

/// `refmill repair`, checked.
#[derive(Debug)]
pub struct RepairSettings {
    /// As typed.
    pub files: Vec<PathBuf>,
    /// What is wanted of each.
    pub order: Order,
    /// Where they go.
    pub place: Place,
    /// Where the report goes.
    pub report: Option<PathBuf>,
    /// How workers are started.
    pub plan: WorkerPlan,
    /// How many, where the user says so.
    pub workers: Option<usize>,
    /// Who hears what.
    pub voice: Voice,
}

impl RepairSettings {
    /// Checks what was typed.
    ///
    /// # Errors
    /// [`SettingsError`]
    pub fn new(args: RepairArgs) -> Result<Self, SettingsError> {
        let config = Config::load(args.shared.config.as_deref())?;
        let limits = limits::over(config.limits, &args.shared.limits)?;
        let policy = policy::over(config.policy.policy(), args.shared.strict, &args.shared.policies)?;
        let colour = colour(&args.shared, config.colour);
        let strip = match args.strip {
            None => Strip::Nothing,
            Some(StripArg::Gps) => Strip::Gps,
            Some(StripArg::Private) => Strip::Private,
            Some(StripArg::All) => Strip::All,
        };
        let backup = args.backup;
        // The suffix is joined to a name: a separator in it would lead to another folder.
        if backup.is_empty() || backup.as_encoded_bytes().contains(&b'/') {
            return Err(SettingsError::Backup { suffix: backup.display().to_string() });
        }
        let place = match (args.png, args.out) {
            (Some(png), _) => Place::Png(png),
            (None, Some(out)) => Place::Folder { out, force: args.force },
            (None, None) => Place::InPlace { backup },
        };
        let image = if args.convert { ImageWanted::ConvertedPng } else { ImageWanted::Lossless };
        Ok(Self {
            files: args.files,
            order: Order { policy, strip, ..Order::new(image, None, colour, limits) },
            place,
            report: args.report,
            plan: worker_plan(
                args.shared.worker,
                Choice::cpu("repair derives no tensors"),
                &limits,
                args.shared.confined,
            )?,
            workers: args.workers.map(usize::from),
            voice: Voice { json: args.json, quiet: args.shared.quiet },
        })
    }
}
