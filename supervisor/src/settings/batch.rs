//! `refmill batch`, checked.

use std::path::{Component, Path, PathBuf};

use refmill::job::ImageWanted;

use super::{SettingsError, Voice, colour, device, store, worker_plan};
use crate::args::{BatchArgs, DeviceArg};
use crate::config::Config;
use crate::pool::Order;
use crate::pool::worker::WorkerPlan;
use crate::store::connection::Reach;
use crate::store::failures::{self, Failed};
use crate::store::location::{Location, Overlap};
use crate::{limits, policy, recipe};

/// The failures file where none is named.
const FAILURES: &str = "refmill-failures.jsonl";

/// `refmill batch`, checked.
#[derive(Debug)]
pub struct BatchSettings {
    /// Where the inputs are.
    pub input: Location,
    /// The same as it is written into a failures file.
    pub named: String,
    /// Where artifacts go.
    pub out: Location,
    /// Which inputs are tried again; all that are there without it.
    pub retry: Option<Vec<Failed>>,
    /// Where inputs that failed are listed.
    pub failures: PathBuf,
    /// What is wanted of each.
    pub order: Order,
    /// Whether to replace what refmill did not make.
    pub force: bool,
    /// How a server is reached, where one is needed.
    pub reach: Option<Reach>,
    /// How workers are started.
    pub plan: WorkerPlan,
    /// How many, where the user says so.
    pub workers: Option<usize>,
    /// Who hears what.
    pub voice: Voice,
}

impl BatchSettings {
    /// Checks what was typed, and reads the failures file that was named.
    ///
    /// # Errors
    /// [`SettingsError`]
    pub fn new(args: BatchArgs) -> Result<Self, SettingsError> {
        let config = Config::load(args.shared.config.as_deref())?;
        let retry = args.retry.as_deref().map(failures::read).transpose()?;
        let first = retry.as_ref().and_then(|retry| retry.first()).map(|failed| PathBuf::from(&failed.input));
        // A failures file without a line names no place, and needs none.
        let typed = args.input.or(first).unwrap_or_else(|| ".".into());
        let (input, out) = (place(Location::parse(&typed)?)?, place(Location::parse(&args.out)?)?);
        if input.overlap(&out) == Overlap::InputsInside {
            return Err(SettingsError::Overlap { input: input.to_string(), out: out.to_string() });
        }
        let is_bucket = |location: &Location| matches!(location, Location::Bucket { .. });
        let reach =
            (is_bucket(&input) || is_bucket(&out)).then(|| store::reach(&args.store, &config.store)).transpose()?;
        let recipe = if args.no_tensors { None } else { Some(recipe::load(&args.recipe)?) };
        let image = if args.no_image { ImageWanted::No } else { ImageWanted::ConvertedPng };
        let limits = limits::over(config.limits, &args.shared.limits)?;
        let policy = policy::over(config.policy.policy(), args.shared.strict, &args.shared.policies)?;
        let wish = args.place.device.unwrap_or(DeviceArg::Auto);
        let device = device(wish, args.place.gpu.as_deref(), recipe.is_some())?;
        Ok(Self {
            named: input.to_string(),
            input,
            out,
            failures: args.failures.or(args.retry).unwrap_or_else(|| FAILURES.into()),
            retry,
            order: Order { policy, ..Order::new(image, recipe, colour(&args.shared, config.colour), limits) },
            force: args.force,
            reach,
            plan: worker_plan(args.shared.worker, device, &limits, args.shared.confined)?,
            workers: args.place.workers.map(usize::from),
            voice: Voice { json: args.json, quiet: args.shared.quiet },
        })
    }
}

/// A folder by its absolute path, without links as far as it is there.
fn place(location: Location) -> Result<Location, SettingsError> {
    let Location::Folder(path) = location else { return Ok(location) };
    let path = std::path::absolute(&path).map_err(SettingsError::OwnPlace)?;
    let there = path.ancestors().find_map(|above| Some((above, above.canonicalize().ok()?)));
    Ok(Location::Folder(match there {
        Some((above, real)) => path.strip_prefix(above).map_or(path.clone(), |rest| below(real, rest)),
        None => path,
    }))
}

/// A path that is not there has no links: its `..` are what they say.
fn below(mut folder: PathBuf, rest: &Path) -> PathBuf {
    for part in rest.components() {
        match part {
            Component::ParentDir => drop(folder.pop()),
            part => folder.push(part),
        }
    }
    folder
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Args, Command};
    use clap::Parser;

    fn batch(arguments: &[&str]) -> Result<BatchSettings, SettingsError> {
        let line = ["refmill", "batch", "--worker", "/bin/true", "--device", "cpu"];
        match Args::try_parse_from(line.iter().chain(arguments)).unwrap().command {
            Command::Batch(args) => BatchSettings::new(args),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn artifacts_may_go_below_the_inputs_and_not_above_them() {
        assert!(batch(&["/tmp", "--out", "/tmp/out"]).is_ok());
        assert!(matches!(batch(&["/tmp/x", "--out", "/tmp"]), Err(SettingsError::Overlap { .. })));
        assert!(matches!(batch(&["/tmp/x/../y", "--out", "/tmp/y/"]), Err(SettingsError::Overlap { .. })));
        let same = batch(&["s3://pictures/a", "--out", "s3://pictures/a/"]);
        assert!(matches!(same, Err(SettingsError::Overlap { .. })));
    }

    #[test]
    fn server_is_reached_only_where_one_is_named() {
        assert!(batch(&["/tmp", "--out", "/tmp/out"]).unwrap().reach.is_none());
        let reach = batch(&["/tmp", "--out", "s3://pictures", "--s3-anonymous"]).unwrap().reach.unwrap();
        assert_eq!((reach.concurrency, reach.retry.as_secs()), (16, 60));
    }

    #[test]
    fn retry_takes_the_place_from_the_file_and_writes_where_it_reads() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("f.jsonl");
        let line =
            r#"{"input":"/tmp/in","key":"a","error":{"code":"corrupt","blame":"input","stage":null,"message":""}}"#;
        std::fs::write(&path, line).unwrap();
        let settings = batch(&["--retry", path.to_str().unwrap(), "--out", "/tmp/out"]).unwrap();
        assert_eq!(settings.input, Location::Folder("/tmp/in".into()));
        assert_eq!((settings.failures, settings.retry.unwrap().len()), (path, 1));
    }
}
