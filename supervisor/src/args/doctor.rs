//! What was typed after `refmill doctor`.

use std::path::PathBuf;

use clap::Args;

use super::SandboxArgs;

/// `refmill doctor`.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// One JSON object
    #[arg(long)]
    pub json: bool,
    /// The GPU or MIG instance, as `nvidia-smi -L` lists it [default: what `auto` takes]
    #[arg(long, value_name = "UUID")]
    pub gpu: Option<String>,
    /// The queue [default: the configuration's]
    #[arg(long, value_name = "FILE")]
    pub queue: Option<PathBuf>,
    /// The configuration
    #[arg(long, value_name = "FILE.toml")]
    pub config: Option<PathBuf>,
    /// The folder of artifacts [default: the configuration's]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// End with 0 where the worst is a warning
    #[arg(long)]
    pub tolerant: bool,
    /// Print docs/doctor.md: every check, why it matters and what to do
    #[arg(long)]
    pub markdown: bool,
    /// How workers are confined.
    #[command(flatten)]
    pub confined: SandboxArgs,
    /// The worker program [default: refmill-worker beside this program]
    #[arg(long, value_name = "PATH")]
    pub worker: Option<PathBuf>,
    /// Where /proc and /dev of the driver are looked for, for tests
    #[arg(long, value_name = "DIR", default_value = "/", hide = true)]
    pub machine_root: PathBuf,
}
