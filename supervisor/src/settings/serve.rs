//! `refmill serve`, checked: the configuration, and the command line over it.

use std::env;
use std::time::Duration;

use super::{SettingsError, Voice, device, worker_plan};
use crate::args::{DeviceArg, PlaceArgs, SandboxArgs, ServeArgs};
use crate::config::{Config, SlotConfig};
use crate::devices::DeviceError;
use crate::http::{Setup, Tokens};
use crate::notify::Notifier;
use crate::pool::posture::SandboxPolicy;
use crate::pool::worker::WorkerPlan;
use crate::queue::Place;

/// `refmill serve`, checked.
#[derive(Debug)]
pub struct ServeSettings {
    /// The configuration in effect, with what was typed.
    pub config: Config,
    /// The queue.
    pub queue: Place,
    /// The devices.
    pub slots: Vec<Slots>,
    /// Whether to end once the queue is empty.
    pub drain: bool,
    /// The HTTP server, and whose tokens it knows.
    pub http: Option<(Setup, Tokens)>,
    /// Who hears what.
    pub voice: Voice,
}

/// A device and its workers.
#[derive(Debug)]
pub struct Slots {
    /// How they are started.
    pub plan: WorkerPlan,
    /// How many, where somebody says so.
    pub workers: Option<usize>,
}

impl ServeSettings {
    /// Checks what was typed and configured.
    ///
    /// # Errors
    /// [`SettingsError`]
    pub fn new(args: ServeArgs) -> Result<Self, SettingsError> {
        let config = Self::config(&args)?;
        let automatic = [SlotConfig { device: "auto".into(), workers: None }];
        let slots = if config.slots.is_empty() { automatic.as_slice() } else { &config.slots };
        let confined = SandboxArgs {
            sandbox: args.confined.sandbox.or(config.sandbox.policy.map(SandboxPolicy::from)),
            worker_memory: args.confined.worker_memory.or(config.sandbox.worker_memory_mib),
        };
        let plan = |slot: &SlotConfig| {
            let device = match slot.device.as_str() {
                "auto" => device(DeviceArg::Auto, None, true),
                "cpu" => device(DeviceArg::Cpu, None, true),
                "cuda" => device(DeviceArg::Cuda, None, true),
                uuid => device(DeviceArg::Cuda, Some(uuid), true),
            };
            let plan = worker_plan(args.worker.clone(), device?, &config.limits, confined)?;
            Ok(Slots { plan, workers: slot.workers.map(usize::from) })
        };
        let slots = slots.iter().map(plan).collect::<Result<_, SettingsError>>()?;
        let voice = Voice { json: args.json, quiet: args.quiet };
        let queue = super::queue::place(&config.queue)?;
        let http = super::http(&config)?;
        Ok(Self { config, queue, slots, drain: args.drain, http, voice })
    }

    /// The configuration in effect: the file as it is now, and what was typed over it.
    ///
    /// # Errors
    /// [`SettingsError`]
    pub fn config(args: &ServeArgs) -> Result<Config, SettingsError> {
        let mut config = Config::load(args.config.as_deref())?;
        if let Some(queue) = &args.queue {
            config.queue.path.clone_from(queue);
        }
        config.queue.grace_s = args.grace.unwrap_or(config.queue.grace_s);
        config.queue.lease_s = args.lease.unwrap_or(config.queue.lease_s);
        config.retry.base_ms = args.backoff.unwrap_or(config.retry.base_ms);
        config.retry.most_ms = config.retry.most_ms.max(config.retry.base_ms);
        config.log.format = args.log_format.unwrap_or(config.log.format);
        config.retention.done_days = args.keep_done.unwrap_or(config.retention.done_days);
        config.retention.dead_days = args.keep_dead.unwrap_or(config.retention.dead_days);
        place(&args.place, &mut config.slots)?;
        Ok(config)
    }

    /// Whether any worker is on a GPU.
    #[must_use]
    pub fn has_gpu(&self) -> bool {
        self.slots.iter().any(|slots| slots.plan.device.gpu.is_some())
    }
}

/// The devices that were typed, in the place of those that are configured.
fn place(typed: &PlaceArgs, slots: &mut Vec<SlotConfig>) -> Result<(), SettingsError> {
    let device = match (&typed.gpu, typed.device) {
        (Some(_), Some(DeviceArg::Cpu)) => return Err(DeviceError::Contradiction.into()),
        (Some(gpu), _) => Some(gpu.clone()),
        (None, Some(DeviceArg::Auto)) => Some("auto".into()),
        (None, Some(DeviceArg::Cpu)) => Some("cpu".into()),
        (None, Some(DeviceArg::Cuda)) => Some("cuda".into()),
        (None, None) => None,
    };
    match (device, slots.as_mut_slice()) {
        (Some(device), _) => *slots = vec![SlotConfig { device, workers: typed.workers }],
        (None, _) if typed.workers.is_none() => {}
        (None, []) => slots.push(SlotConfig { device: "auto".into(), workers: typed.workers }),
        (None, [only]) => only.workers = typed.workers,
        (None, several) => return Err(SettingsError::Workers { slots: several.len() }),
    }
    Ok(())
}

/// The service manager that started this program, where one did: `NOTIFY_SOCKET`, `WATCHDOG_USEC` and `WATCHDOG_PID`,
/// as sd_notify(3) and sd_watchdog_enabled(3) have them.
///
/// # Errors
/// What the socket says.
pub fn notifier() -> std::io::Result<Notifier> {
    let number = |name| env::var_os(name).and_then(|text| text.to_str()?.parse::<u64>().ok());
    let meant = number("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(std::process::id()));
    let watchdog = number("WATCHDOG_USEC").filter(|period| meant && *period > 0).map(Duration::from_micros);
    Notifier::new(env::var_os("NOTIFY_SOCKET").as_deref(), watchdog)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Args, Command};
    use clap::Parser;

    fn typed(arguments: &[&str]) -> ServeArgs {
        match Args::parse_from(["refmill", "serve"].iter().chain(arguments)).command {
            Command::Serve(args) => args,
            other => panic!("{other:?}"),
        }
    }

    fn configured(text: &str, arguments: &[&str]) -> Result<Config, SettingsError> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        let path = file.path().to_str().unwrap();
        ServeSettings::config(&typed(&[&["--config", path], arguments].concat()))
    }

    #[test]
    fn nothing_typed_and_nothing_configured_is_the_default() {
        assert_eq!(ServeSettings::config(&typed(&[])).unwrap(), Config::default());
    }

    #[test]
    fn what_is_typed_goes_before_what_is_configured() {
        let text = "[queue]\nlease_s = 5\ngrace_s = 6\n[retry]\nbase_ms = 7\n[retention]\ndone_days = 8";
        let config = configured(text, &["--lease", "50", "--backoff", "70"]).unwrap();
        assert_eq!((config.queue.lease_s, config.queue.grace_s), (50, 6));
        assert_eq!((config.retry.base_ms, config.retention.done_days), (70, 8));
    }

    #[test]
    fn device_that_is_typed_stands_for_all_slots() {
        let text = "[[slot]]\ndevice = \"cpu\"\n[[slot]]\ndevice = \"GPU-0a1b2c3d-0000-1111-2222-333344445555\"";
        let slots = configured(text, &["--device", "cpu", "--workers", "3"]).unwrap().slots;
        assert_eq!(slots, [SlotConfig { device: "cpu".into(), workers: Some(3) }]);
        assert!(matches!(configured(text, &["--workers", "3"]), Err(SettingsError::Workers { slots: 2 })));
    }

    #[test]
    fn workers_that_are_typed_are_those_of_the_one_slot() {
        let slots = configured("[[slot]]\ndevice = \"cpu\"\nworkers = 2", &["--workers", "3"]).unwrap().slots;
        assert_eq!(slots, [SlotConfig { device: "cpu".into(), workers: Some(3) }]);
    }
}
