//! `refmill submit` and `refmill serve`, checked.

use std::path::PathBuf;
use std::time::Duration;

use refmill::job::{ColourOptions, ImageWanted};
use refmill::limits::Limits;

use super::{SettingsError, Voice, device, worker_plan};
use crate::args::{ServeArgs, SubmitArgs};
use crate::pool::Order;
use crate::pool::worker::WorkerPlan;
use crate::queue::spec::Urgency;
use crate::queue::{Retention, RetryPolicy, tenant};
use crate::{limits, policy, recipe};

const DAY_MS: i64 = 86_400_000;

/// `refmill submit`, checked.
#[derive(Debug)]
pub struct SubmitSettings {
    /// As typed.
    pub inputs: Vec<PathBuf>,
    /// The queue.
    pub queue: PathBuf,
    /// What is wanted of each.
    pub order: Order,
    /// The folder of the artifacts, absolute.
    pub out: PathBuf,
    /// For whom.
    pub tenant: String,
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
        let recipe = if args.no_tensors { None } else { Some(recipe::load(&args.recipe)?) };
        let image = if args.no_image { ImageWanted::No } else { ImageWanted::ConvertedPng };
        let limits = limits::parse(&args.limits)?;
        let policy = policy::parse(args.strict, &args.policies)?;
        Ok(Self {
            inputs: args.inputs,
            queue: args.queue,
            order: Order { policy, ..Order::new(image, recipe, ColourOptions::default(), limits) },
            out: std::path::absolute(&args.out).map_err(SettingsError::OwnPlace)?,
            tenant: args.tenant.unwrap_or_else(|| tenant::DEFAULT.into()),
            urgency: Urgency { priority: args.priority, delay_ms: args.delay.saturating_mul(1_000) },
            json: args.json,
        })
    }
}

/// `refmill serve`, checked.
#[derive(Debug)]
pub struct ServeSettings {
    /// The queue.
    pub queue: PathBuf,
    /// How workers are started.
    pub plan: WorkerPlan,
    /// How many, where the user says so.
    pub workers: Option<usize>,
    /// Whether to end once the queue is empty.
    pub drain: bool,
    /// How long jobs in hand may take after a signal.
    pub grace: Duration,
    /// How long a lease lasts without a heartbeat, in milliseconds.
    pub lease_ms: u32,
    /// When a job is tried again.
    pub policy: RetryPolicy,
    /// How long jobs are kept that are over.
    pub retention: Retention,
    /// Who hears what.
    pub voice: Voice,
}

impl ServeSettings {
    /// Checks what was typed.
    ///
    /// # Errors
    /// [`SettingsError`]
    pub fn new(args: ServeArgs) -> Result<Self, SettingsError> {
        let device = device(args.place.device, args.place.gpu.as_deref(), true)?;
        let [done_ms, dead_ms] = [args.keep_done, args.keep_dead].map(|days| i64::from(days).saturating_mul(DAY_MS));
        Ok(Self {
            queue: args.queue,
            plan: worker_plan(args.worker, device, &Limits::default(), args.confined)?,
            workers: args.place.workers.map(usize::from),
            drain: args.drain,
            grace: Duration::from_secs(args.grace.into()),
            lease_ms: args.lease.saturating_mul(1_000),
            policy: RetryPolicy { base_ms: args.backoff, ..RetryPolicy::default() },
            retention: Retention { done_ms, dead_ms },
            voice: Voice { json: args.json, quiet: args.quiet },
        })
    }
}
