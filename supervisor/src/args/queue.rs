//! What was typed after `refmill submit`, `jobs`, `status` and `serve`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{PlaceArgs, SandboxArgs};
use crate::config::LogFormat;
use crate::queue::State;

/// `refmill submit`.
#[derive(Debug, Args)]
pub struct SubmitArgs {
    /// Files, folders (with the folders in them; image extensions only) or globs; they must stay until they are done
    #[arg(required = true, value_name = "FILE")]
    pub inputs: Vec<PathBuf>,
    /// The configuration, which the rest of the command line goes before
    #[arg(long, value_name = "FILE.toml")]
    pub config: Option<PathBuf>,
    /// The queue, made where it is not there: a file, or nats://HOST:PORT/STREAM [default: refmill.db]
    #[arg(long, value_name = "QUEUE")]
    pub queue: Option<PathBuf>,
    /// Which tensors to derive: sdxl, sd15, flux, clip, or a TOML file, which is read now
    #[arg(long, default_value = "sdxl", value_name = "NAME|FILE.toml")]
    pub recipe: String,
    /// Folder for NAME-HASH.png, NAME-HASH.safetensors and NAME-HASH.report.json
    /// [default: out]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Write no repaired image
    #[arg(long)]
    pub no_image: bool,
    /// Write no tensors
    #[arg(long)]
    pub no_tensors: bool,
    /// Whose jobs they become, and by whose caps and share they go [default: default]
    #[arg(long, value_name = "NAME")]
    pub tenant: Option<String>,
    /// Higher ones go first
    #[arg(long, default_value_t = 0, value_name = "N", allow_negative_numbers = true)]
    pub priority: i32,
    /// Not before so many seconds from now
    #[arg(long, default_value_t = 0, value_name = "S", value_parser = clap::value_parser!(u32).range(0..=2_592_000))]
    pub delay: u32,
    /// A bound on one image: input_bytes, width, height, pixels, frames, metadata_bytes, output_bytes, wall_ms
    #[arg(long = "limit", value_name = "KEY=VALUE")]
    pub limits: Vec<String>,
    /// Refuse images with any defect that no --policy names
    #[arg(long)]
    pub strict: bool,
    /// What is done about one finding: repair, reject or ignore; `refmill explain` lists the codes
    #[arg(long = "policy", value_name = "CODE=ACTION")]
    pub policies: Vec<String>,
    /// One line a file on standard output, as JSON
    #[arg(long)]
    pub json: bool,
}

/// `refmill jobs`.
#[derive(Debug, Args)]
pub struct JobsArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: JobsCommand,
    /// The configuration that names the queue
    #[arg(long, global = true, value_name = "FILE.toml")]
    pub config: Option<PathBuf>,
    /// The queue: a file, or nats://HOST:PORT/STREAM [default: refmill.db]
    #[arg(long, global = true, value_name = "QUEUE")]
    pub queue: Option<PathBuf>,
    /// Jobs as JSON, one a line
    #[arg(long, global = true)]
    pub json: bool,
}

/// What to do with jobs.
#[derive(Debug, Subcommand)]
pub enum JobsCommand {
    /// List jobs by number
    List {
        /// Only those in one state
        #[arg(long, value_enum)]
        state: Option<State>,
        /// Only those of one tenant
        #[arg(long, value_name = "NAME")]
        tenant: Option<String>,
    },
    /// Show all that is known of a job
    Show {
        /// Its number
        id: i64,
    },
    /// Give a dead or cancelled job a second life
    Retry {
        /// Its number
        id: i64,
    },
    /// Take a queued or leased job back; nothing of it is published any more
    Cancel {
        /// Its number
        id: i64,
    },
    /// Put a queued or leased job among the dead, to be looked at
    Bury {
        /// Its number
        id: i64,
        /// Why
        #[arg(long, default_value = "buried by hand", value_name = "TEXT")]
        reason: String,
    },
}

/// `refmill status`.
#[derive(Debug, Args)]
pub struct StatusArgs {
    /// The configuration that names the queue
    #[arg(long, value_name = "FILE.toml")]
    pub config: Option<PathBuf>,
    /// The queue: a file, or nats://HOST:PORT/STREAM [default: refmill.db]
    #[arg(long, value_name = "QUEUE")]
    pub queue: Option<PathBuf>,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

/// `refmill serve`.
#[derive(Debug, Clone, Args)]
pub struct ServeArgs {
    /// The configuration, which the rest of the command line goes before; SIGHUP reads it again
    #[arg(long, value_name = "FILE.toml")]
    pub config: Option<PathBuf>,
    /// The queue, made where it is not there: a file, which one supervisor serves, or nats://HOST:PORT/STREAM, which
    /// several share [default: refmill.db]
    #[arg(long, value_name = "QUEUE")]
    pub queue: Option<PathBuf>,
    /// Where the work is done.
    #[command(flatten)]
    pub place: PlaceArgs,
    /// End once no job is queued or leased; exit code 1 where one was buried
    #[arg(long)]
    pub drain: bool,
    /// After SIGTERM or SIGINT, how long jobs in hand may take, in seconds, until they are given back [default: 30]
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u32).range(0..=86_400))]
    pub grace: Option<u32>,
    /// How long a lease lasts without a heartbeat, in seconds [default: 30]
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u32).range(1..=86_400))]
    pub lease: Option<u32>,
    /// The first pause before a job is tried again that failed by the device or by refmill, in milliseconds; each
    /// further one is twice as long [default: 1000]
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u32).range(1..=300_000))]
    pub backoff: Option<u32>,
    /// Forget done and cancelled jobs after so many days; the same image can then be submitted again [default: 7]
    #[arg(long, value_name = "DAYS")]
    pub keep_done: Option<u16>,
    /// Forget dead jobs after so many days [default: 30]
    #[arg(long, value_name = "DAYS")]
    pub keep_dead: Option<u16>,
    /// How workers are confined.
    #[command(flatten)]
    pub confined: SandboxArgs,
    /// The worker program [default: refmill-worker beside this program]
    #[arg(long, value_name = "PATH")]
    pub worker: Option<PathBuf>,
    /// One report a line on standard output, as JSON
    #[arg(long)]
    pub json: bool,
    /// Say nothing but failures on standard error
    #[arg(long, short)]
    pub quiet: bool,
    /// For whom standard error is written [default: text]
    #[arg(long, value_enum)]
    pub log_format: Option<LogFormat>,
}
