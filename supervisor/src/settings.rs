//! What the program means to do: arguments, checked once and made into types. The only place that reads the
//! environment.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use refmill::job::{ColourOptions, ImageWanted, Intent};
use refmill::limits::Limits;

use crate::args::{DeviceArg, IntentArg, RunArgs, SandboxArgs, SharedArgs};
use crate::config::{ColourConfig, Config, ConfigError};
use crate::devices::{self, Choice, DeviceError, GpuUuid, Wish};
use crate::limits::{self, LimitError};
use crate::policy::{self, PolicyError};
use crate::pool::Order;
use crate::pool::confinement::{Confinement, needed_memory};
use crate::pool::worker::WorkerPlan;
use crate::queue::nats::AddressError;
use crate::recipe::{self, LoadError};
use crate::store::failures::FailuresError;
use crate::store::location::LocationError;

mod batch;
mod doctor;
mod http;
mod inspect;
mod queue;
mod repair;
mod serve;
mod store;
mod submit;

pub use batch::BatchSettings;
pub use doctor::patient;
pub use http::{TokenError, http};
pub use inspect::InspectSettings;
pub use queue::{SecretError, queue};
pub use repair::{Place, RepairSettings};
pub use serve::{ServeSettings, Slots, notifier};
pub use store::ReachError;
pub use submit::SubmitSettings;

/// Why the command line cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// The configuration.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// One number of workers for several devices.
    #[error("--workers is one number, the configuration has {slots} slots; say it there")]
    Workers {
        /// How many.
        slots: usize,
    },
    /// A bound.
    #[error(transparent)]
    Limit(#[from] LimitError),
    /// A policy.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// A recipe.
    #[error(transparent)]
    Recipe(#[from] LoadError),
    /// A device.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// A location.
    #[error(transparent)]
    Location(#[from] LocationError),
    /// An S3 server.
    #[error(transparent)]
    Reach(#[from] ReachError),
    /// The address of a queue.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// Who refmill is to a queue's server.
    #[error(transparent)]
    Secret(#[from] SecretError),
    /// A token of the HTTP server.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// A failures file.
    #[error(transparent)]
    Failures(#[from] FailuresError),
    /// Inputs would lie among artifacts.
    #[error("inputs in {input} lie where --out {out} puts artifacts: a later batch could take one for the other")]
    Overlap {
        /// The inputs.
        input: String,
        /// The artifacts.
        out: String,
    },
    /// Nothing would be written to standard output.
    #[error("--out - writes tensors, or with --no-tensors the image; with --no-image too it has nothing to write")]
    NothingToWrite,
    /// The ending of backups cannot be one.
    #[error("--backup is `{suffix}`, it takes an ending such as .orig")]
    Backup {
        /// As typed.
        suffix: String,
    },
    /// This program's own place is not known.
    #[error("cannot find refmill-worker beside this program: {0}; name it with --worker PATH")]
    OwnPlace(#[source] std::io::Error),
    /// There is no worker program.
    #[error("worker program {} does not exist; build it, or name another with --worker PATH", path.display())]
    NoWorker {
        /// Where it should be.
        path: PathBuf,
    },
}

/// Where the artifacts of a run go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Destination {
    /// Into a folder.
    Folder(PathBuf),
    /// To standard output; one input only.
    Stdout,
}

/// Who hears what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Voice {
    /// Reports as JSON lines.
    pub json: bool,
    /// Nothing but failures on standard error.
    pub quiet: bool,
}

/// `refmill run`, checked.
#[derive(Debug)]
pub struct RunSettings {
    /// As typed.
    pub inputs: Vec<PathBuf>,
    /// What is wanted of each.
    pub order: Order,
    /// Where it goes.
    pub destination: Destination,
    /// Whether files that refmill did not make may be replaced.
    pub force: bool,
    /// How workers are started.
    pub plan: WorkerPlan,
    /// How many, where the user says so.
    pub workers: Option<usize>,
    /// Who hears what.
    pub voice: Voice,
}

impl RunSettings {
    /// Checks what was typed.
    ///
    /// # Errors
    /// [`SettingsError`]
    pub fn new(args: RunArgs) -> Result<Self, SettingsError> {
        let config = Config::load(args.shared.config.as_deref())?;
        let out = args.out.unwrap_or(config.output.folder);
        let destination = if out == Path::new("-") { Destination::Stdout } else { Destination::Folder(out) };
        if destination == Destination::Stdout && args.no_tensors && args.no_image {
            return Err(SettingsError::NothingToWrite);
        }
        let recipe = if args.no_tensors { None } else { Some(recipe::load(&args.recipe)?) };
        // On standard output there is room for one of the two.
        let one_only = destination == Destination::Stdout && recipe.is_some();
        let image = if args.no_image || one_only { ImageWanted::No } else { ImageWanted::ConvertedPng };
        let limits = limits::over(config.limits, &args.shared.limits)?;
        let policy = policy::over(config.policy.policy(), args.shared.strict, &args.shared.policies)?;
        let wish = args.place.device.unwrap_or(DeviceArg::Auto);
        let device = device(wish, args.place.gpu.as_deref(), recipe.is_some())?;
        Ok(Self {
            inputs: args.inputs,
            order: Order { policy, ..Order::new(image, recipe, colour(&args.shared, config.colour), limits) },
            destination,
            force: args.force,
            plan: worker_plan(args.shared.worker, device, &limits, args.shared.confined)?,
            workers: args.place.workers.map(usize::from),
            voice: Voice { json: args.json, quiet: args.shared.quiet },
        })
    }
}

fn device(wish: DeviceArg, gpu: Option<&str>, tensors: bool) -> Result<Choice, DeviceError> {
    let gpu = gpu.map(GpuUuid::parse).transpose()?;
    let wish = match wish {
        // A GPU derives tensors and does nothing else: its context would be made for nothing.
        DeviceArg::Auto if !tensors && gpu.is_none() => return Ok(Choice::cpu("auto: no tensors are wanted")),
        DeviceArg::Auto => Wish::Auto,
        DeviceArg::Cpu => Wish::Cpu,
        DeviceArg::Cuda => Wish::Cuda,
    };
    devices::choose(wish, gpu, Path::new("/"))
}

fn colour(shared: &SharedArgs, configured: ColourConfig) -> ColourOptions {
    let intent = match shared.intent {
        None => configured.intent,
        Some(IntentArg::Perceptual) => Intent::Perceptual,
        Some(IntentArg::Relative) => Intent::RelativeColorimetric,
        Some(IntentArg::Saturation) => Intent::Saturation,
        Some(IntentArg::Absolute) => Intent::AbsoluteColorimetric,
    };
    let black_point_compensation = configured.black_point_compensation && !shared.no_bpc;
    ColourOptions { intent, black_point_compensation }
}

fn worker_plan(
    program: Option<PathBuf>,
    device: Choice,
    limits: &Limits,
    confined: SandboxArgs,
) -> Result<WorkerPlan, SettingsError> {
    let path = match program {
        Some(path) => path,
        None => env::current_exe().map_err(SettingsError::OwnPlace)?.with_file_name("refmill-worker"),
    };
    if !path.is_file() {
        return Err(SettingsError::NoWorker { path });
    }
    // Workers are started in another folder than this one.
    let program = path.canonicalize().map_err(|_| SettingsError::NoWorker { path })?;
    let library_path: Option<OsString> = env::var_os("LD_LIBRARY_PATH");
    let nvjpeg: Option<OsString> = env::var_os("REFMILL_NVJPEG");
    let policy = confined.sandbox.unwrap_or_default();
    let asked = confined.worker_memory.map(|mib| u64::from(mib) << 20);
    let memory_bytes = asked.unwrap_or_else(|| needed_memory(limits, device.gpu.is_some()));
    let confinement = Confinement { policy, memory_bytes };
    Ok(WorkerPlan { program, library_path, nvjpeg, device, output_bytes: limits.output_bytes, confinement })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Args, Command};
    use clap::Parser;

    fn run(arguments: &[&str]) -> Result<RunSettings, SettingsError> {
        let line = ["refmill", "run", "--worker", "/bin/true", "--device", "cpu"];
        match Args::parse_from(line.iter().chain(arguments)).command {
            Command::Run(args) => RunSettings::new(args),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn defaults_are_image_and_sdxl_tensors_into_out() {
        let settings = run(&["a.jpg"]).unwrap();
        assert_eq!(settings.order.recipe.unwrap().name, "sdxl");
        assert_eq!(settings.order.image, ImageWanted::ConvertedPng);
        assert_eq!(settings.destination, Destination::Folder("out".into()));
        assert_eq!(settings.order.colour, ColourOptions::default());
    }

    #[test]
    fn standard_output_takes_tensors_alone() {
        let settings = run(&["a.jpg", "--out", "-"]).unwrap();
        assert_eq!(settings.order.image, ImageWanted::No);
        assert!(settings.order.recipe.is_some());
    }

    #[test]
    fn standard_output_without_tensors_takes_the_image() {
        let settings = run(&["a.jpg", "--out", "-", "--no-tensors"]).unwrap();
        assert_eq!(settings.order.image, ImageWanted::ConvertedPng);
        assert!(settings.order.recipe.is_none());
    }

    #[test]
    fn standard_output_with_nothing_to_write_is_refused() {
        let refused = run(&["a.jpg", "--out", "-", "--no-tensors", "--no-image"]);
        assert!(matches!(refused, Err(SettingsError::NothingToWrite)));
    }

    #[test]
    fn worker_that_does_not_exist_is_named() {
        let plan = worker_plan(Some("/no/such".into()), Choice::cpu(""), &Limits::default(), SandboxArgs::default());
        let text = plan.unwrap_err().to_string();
        assert_eq!(text, "worker program /no/such does not exist; build it, or name another with --worker PATH");
    }
}
