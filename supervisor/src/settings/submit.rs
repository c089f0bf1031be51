//! `refmill submit`, checked.

use std::path::PathBuf;

use refmill::job::ImageWanted;

use super::SettingsError;
use crate::args::SubmitArgs;
use crate::config::{Config, QueueConfig};
use crate::pool::Order;
use crate::queue::Place;
use crate::queue::spec::Urgency;
use crate::queue::tenant::{self, Tenant};
use crate::{limits, policy, recipe};

/// `refmill submit`, checked.
#[derive(Debug)]
pub struct SubmitSettings {
    /// As typed.
    pub inputs: Vec<PathBuf>,
    /// The queue.
    pub queue: Place,
    /// What is wanted of each.
    pub order: Order,
    /// The folder of the artifacts, absolute.
    pub out: PathBuf,
    /// For whom.
    pub tenant: String,
    /// Who shares a queue that nobody has served yet.
    pub tenants: Vec<Tenant>,
    /// When.
    pub urgency: Urgency,
    /// Whether answers are JSON lines.
    pub json: bool,
}

impl SubmitSettings {
    /// Checks what was typed.
    ///
    /// # Errors
    /// [`SettingsError`]
    pub fn new(args: SubmitArgs) -> Result<Self, SettingsError> {
        let config = Config::load(args.config.as_deref())?;
        let recipe = if args.no_tensors { None } else { Some(recipe::load(&args.recipe)?) };
        let image = if args.no_image { ImageWanted::No } else { ImageWanted::ConvertedPng };
        let limits = limits::over(config.limits, &args.limits)?;
        // What the configuration says of findings, the server goes by anyway, and by what it says when the job runs.
        let policy = policy::over(refmill::policy::Policy::default(), args.strict, &args.policies)?;
        let tenants = config.tenants(false);
        let out = args.out.unwrap_or(config.output.folder);
        Ok(Self {
            inputs: args.inputs,
            queue: super::queue::place(&QueueConfig { path: args.queue.unwrap_or(config.queue.path), ..config.queue })?,
            order: Order { policy, ..Order::new(image, recipe, config.colour.into(), limits) },
            out: std::path::absolute(&out).map_err(SettingsError::OwnPlace)?,
            tenant: args.tenant.unwrap_or_else(|| tenant::DEFAULT.into()),
            tenants,
            urgency: Urgency { priority: args.priority, delay_ms: args.delay.saturating_mul(1_000) },
            json: args.json,
        })
    }
}
