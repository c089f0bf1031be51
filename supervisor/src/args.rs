//! What the user typed. No I/O, no judgement: [`crate::settings`] says what it means.

use std::path::PathBuf;

use clap::{Args as ClapArgs, Parser, Subcommand, ValueEnum};

use crate::pool::posture::SandboxPolicy;

mod batch;
mod doctor;
mod queue;
mod repair;
mod shell;
mod verdict;

pub use batch::{BatchArgs, StoreArgs};
pub use doctor::DoctorArgs;
pub use queue::{JobsArgs, JobsCommand, ServeArgs, StatusArgs, SubmitArgs};
pub use repair::{RepairArgs, StripArg};
pub use shell::{CompletionsArgs, ManArgs};
pub use verdict::{ExplainArgs, InspectArgs};

/// The command line.
#[derive(Debug, Parser)]
#[command(name = "refmill", version, about = "Turns reference images into upright sRGB pictures and model-ready tensors, and says what was wrong with them.", after_help = EXAMPLES, max_term_width = 100)]
pub struct Args {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

const EXAMPLES: &str = "\
Examples:
  refmill run photo.jpg                        out/photo.png, .safetensors, .report.json for SDXL
  refmill run photos/ --recipe flux --out t    every image in a folder and the folders in it
  refmill run '*.heic' --no-tensors --json     repaired images only, one JSON report a line
  curl -s URL | refmill run - --out - > x.safetensors
  refmill repair photos/ --out fixed           metadata made right, coded pixels untouched
  refmill repair photo.jpg --in-place --strip gps
  refmill repair photo.jpg --convert --png fixed.png --report fixed.json
  refmill inspect photos/                      what is wrong with each; no pixel is decoded
  refmill explain icc_truncated
  refmill submit photos/ && refmill serve --drain
  refmill batch s3://photos/2024 --out s3://tensors/2024
  refmill recipe show sdxl > mine.toml

Exit codes: 0 every image was processed, 1 some failed, 2 the command line cannot be used, 3 none was processed,
4 no worker could be started, 5 the tenant has as many jobs queued as it may have.";

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Process images: repaired image, tensors and report for each
    Run(RunArgs),
    /// Process all images of a folder or a bucket's prefix; what is done already is left alone
    Batch(BatchArgs),
    /// Make metadata right without touching coded pixels, or convert to upright sRGB PNG; no tensors
    Repair(RepairArgs),
    /// Say what is wrong with images, and decode none
    Inspect(InspectArgs),
    /// Say what a finding means, by which rule it is decided, and what to do about it
    Explain(ExplainArgs),
    /// Put images into a durable queue, to be processed by `refmill serve`
    Submit(SubmitArgs),
    /// Process the jobs of a queue
    Serve(ServeArgs),
    /// List, show or change the jobs of a queue
    Jobs(JobsArgs),
    /// Say how many jobs of a queue are in which state
    Status(StatusArgs),
    /// Look whether this machine can do what refmill needs, and say what to do where it cannot
    Doctor(DoctorArgs),
    /// Check, show or begin a configuration file
    #[command(subcommand)]
    Config(ConfigCommand),
    /// List, show or check recipes
    #[command(subcommand)]
    Recipe(RecipeCommand),
    /// Print the JSON schema of the report
    Schema,
    /// Print the list of figures that `serve` has at /metrics
    Metrics,
    /// Print a shell's completions
    Completions(CompletionsArgs),
    /// Write the manual pages
    Man(ManArgs),
}

/// `refmill run`.
#[derive(Debug, ClapArgs)]
pub struct RunArgs {
    /// Files, folders (with the folders in them; image extensions only), globs, or `-` for standard input
    #[arg(required = true, value_name = "INPUT")]
    pub inputs: Vec<PathBuf>,
    /// Which tensors to derive: sdxl, sd15, flux, clip, or a TOML file
    #[arg(long, default_value = "sdxl", value_name = "NAME|FILE.toml")]
    pub recipe: String,
    /// Folder for NAME.png, NAME.safetensors and NAME.report.json; `-` writes one input's tensors (with --no-tensors
    /// its image) to standard output and no report
    /// [default: out]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// One report a line on standard output, as JSON (with `--out -` on standard error)
    #[arg(long)]
    pub json: bool,
    /// Where the work is done.
    #[command(flatten)]
    pub place: PlaceArgs,
    /// Write no repaired image
    #[arg(long)]
    pub no_image: bool,
    /// Write no tensors
    #[arg(long)]
    pub no_tensors: bool,
    /// Replace files that refmill did not make
    #[arg(long)]
    pub force: bool,
    /// What repair and run have in common.
    #[command(flatten)]
    pub shared: SharedArgs,
}

/// How workers are confined: what every command that starts some has in common.
#[derive(Debug, Clone, Copy, Default, ClapArgs)]
pub struct SandboxArgs {
    /// How far workers must be confined, or none is started [default: standard]
    #[arg(long, value_enum, value_name = "POLICY")]
    pub sandbox: Option<SandboxPolicy>,
    /// Most host memory that one worker may use, in MiB [default: what the limits on an image allow it to need]
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u32).range(64..=16_777_216))]
    pub worker_memory: Option<u32>,
}

/// What `run` and `repair` have in common.
#[derive(Debug, ClapArgs)]
pub struct SharedArgs {
    /// The configuration: `[policy]`, `[limits]`, `[colour]` and `[output]` of it, where the command line says nothing
    #[arg(long, value_name = "FILE.toml")]
    pub config: Option<PathBuf>,
    /// Rendering intent of the conversion to sRGB [default: relative]
    #[arg(long, value_enum)]
    pub intent: Option<IntentArg>,
    /// Convert without black point compensation
    #[arg(long)]
    pub no_bpc: bool,
    /// A bound on one image: input_bytes, width, height, pixels, frames, metadata_bytes, output_bytes, wall_ms
    #[arg(long = "limit", value_name = "KEY=VALUE")]
    pub limits: Vec<String>,
    /// Refuse images with any defect that no --policy names
    #[arg(long)]
    pub strict: bool,
    /// What is done about one finding: repair, reject or ignore; `refmill explain` lists the codes
    #[arg(long = "policy", value_name = "CODE=ACTION")]
    pub policies: Vec<String>,
    /// The worker program [default: refmill-worker beside this program]
    #[arg(long, value_name = "PATH")]
    pub worker: Option<PathBuf>,
    /// How workers are confined.
    #[command(flatten)]
    pub confined: SandboxArgs,
    /// Say nothing but failures on standard error
    #[arg(long, short)]
    pub quiet: bool,
}

/// Where the work is done: what `run` and `serve` have in common.
#[derive(Debug, Clone, ClapArgs)]
pub struct PlaceArgs {
    /// Worker processes [default: one per core on the CPU, one on a GPU]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub workers: Option<u16>,
    /// Where tensors are derived; `auto` takes a GPU where one is listed, and says why [default: auto]
    #[arg(long, value_enum)]
    pub device: Option<DeviceArg>,
    /// The GPU or MIG instance, as `nvidia-smi -L` lists it (GPU-... or MIG-...); implies --device cuda
    #[arg(long, value_name = "UUID")]
    pub gpu: Option<String>,
}

/// `--device`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DeviceArg {
    /// A GPU where one is listed, else the CPU
    Auto,
    /// The CPU
    Cpu,
    /// A GPU, or an error
    Cuda,
}

/// `--intent`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum IntentArg {
    /// Perceptual
    Perceptual,
    /// Media-relative colorimetric
    #[value(alias = "relative-colorimetric")]
    Relative,
    /// Saturation
    Saturation,
    /// ICC-absolute colorimetric
    #[value(alias = "absolute-colorimetric")]
    Absolute,
}

/// `refmill config`.
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Check a configuration; errors show line and column
    Check {
        /// The file
        #[arg(default_value = "refmill.toml")]
        file: PathBuf,
    },
    /// Print the effective configuration: the file, and the defaults for what it does not say
    Show {
        /// The file; the defaults alone without one
        file: Option<PathBuf>,
    },
    /// Write a configuration that says the defaults, with what each key means
    Init {
        /// The file, which must not exist; `-` for standard output
        #[arg(default_value = "refmill.toml")]
        file: PathBuf,
    },
    /// Print every key with its default, its range and its meaning, as Markdown
    Keys,
}

/// `refmill recipe`.
#[derive(Debug, Subcommand)]
pub enum RecipeCommand {
    /// Name the built-in recipes and their tensors
    List,
    /// Print a built-in recipe as TOML, to start one's own from
    Show {
        /// Its name
        name: String,
    },
    /// Check a recipe file; errors show line and column
    Check {
        /// The file
        file: PathBuf,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn command_line_is_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn repair_needs_to_be_told_how() {
        assert!(Args::try_parse_from(["refmill", "repair", "a.jpg", "--png", "b.png"]).is_err());
        assert!(Args::try_parse_from(["refmill", "repair", "a.jpg", "--convert", "--png", "b.png"]).is_ok());
    }

    #[test]
    fn run_needs_an_input() {
        assert!(Args::try_parse_from(["refmill", "run"]).is_err());
    }
}
