//! `refmill inspect`, checked.

use std::path::PathBuf;

use refmill::job::{ColourOptions, Depth, ImageWanted};

use super::{SettingsError, Voice, worker_plan};
use crate::args::InspectArgs;
use crate::config::Config;
use crate::devices::Choice;
use crate::pool::Order;
use crate::pool::worker::WorkerPlan;
use crate::{limits, policy};

/// Size of the output region of a worker that is asked for no artifact, in bytes: one page, never touched.
const NO_OUTPUT: u64 = 4096;

/// Room for two thumbnails, in bytes: twice what 256 x 256 pixels with alpha can take.
const THUMBNAILS: u64 = 1 << 20;

/// `refmill inspect`, checked.
#[derive(Debug)]
pub struct InspectSettings {
    /// As typed.
    pub inputs: Vec<PathBuf>,
    /// What is wanted of each.
    pub order: Order,
    /// How workers are started.
    pub plan: WorkerPlan,
    /// How many, where the user says so.
    pub workers: Option<usize>,
    /// Who hears what.
    pub voice: Voice,
    /// Whether informative findings are shown.
    pub all: bool,
    /// Where the contact sheet goes, replacing what is there.
    pub contact_sheet: Option<PathBuf>,
}

impl InspectSettings {
    /// Checks what was typed.
    ///
    /// # Errors
    /// [`SettingsError`]
    pub fn new(args: InspectArgs) -> Result<Self, SettingsError> {
        let config = Config::load(args.config.as_deref())?;
        let mut limits = limits::over(config.limits, &args.limits)?;
        let policy = policy::over(config.policy.policy(), args.strict, &args.policies)?;
        let (depth, image, output_bytes) = match args.contact_sheet {
            Some(_) => (Depth::Full, ImageWanted::Thumbnails, THUMBNAILS),
            None if args.quick => (Depth::Headers, ImageWanted::No, NO_OUTPUT),
            None => (Depth::Inspect, ImageWanted::No, NO_OUTPUT),
        };
        limits.output_bytes = output_bytes;
        let order = Order::new(image, None, ColourOptions::default(), limits);
        let plan = worker_plan(args.worker, Choice::cpu("inspection derives no tensors"), &limits, args.confined)?;
        Ok(Self {
            inputs: args.inputs,
            order: Order { depth, policy, hashed: args.hash, ..order },
            plan,
            workers: args.workers.map(usize::from),
            voice: Voice { json: args.json, quiet: args.quiet },
            all: args.all,
            contact_sheet: args.contact_sheet,
        })
    }
}
