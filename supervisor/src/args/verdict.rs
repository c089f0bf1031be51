//! What was typed after `refmill inspect` and `refmill explain`.

use std::path::PathBuf;

use clap::Args;

use super::SandboxArgs;

const EXIT_CODES: &str = "\
Exit codes, by the worst that was found: 0 nothing above info, 1 a defect, 3 an image that was rejected or could \
not be read, 2 the command line cannot be used, 4 no worker could be started.";

/// `refmill inspect`.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub struct InspectArgs {
    /// Files, folders (with the folders in them; image extensions only), globs, or `-` for standard input
    #[arg(required = true, value_name = "FILE")]
    pub inputs: Vec<PathBuf>,
    /// The configuration: `[policy]` and `[limits]` of it, where the command line says nothing
    #[arg(long, value_name = "FILE.toml")]
    pub config: Option<PathBuf>,
    /// One report a line, as JSON, in the order of the files
    #[arg(long)]
    pub json: bool,
    /// Leave pixels unread: several times faster on large files, but what stands among or behind the pixels of JPEG and
    /// PNG is not looked for, and the report says which findings those are
    #[arg(long, conflicts_with_all = ["contact_sheet", "hash"])]
    pub quick: bool,
    /// Write an HTML page with each image before and after, its gamut and its findings; decodes the pixels
    #[arg(long, value_name = "OUT.html")]
    pub contact_sheet: Option<PathBuf>,
    /// Have the BLAKE3 of each file in its report
    #[arg(long)]
    pub hash: bool,
    /// Show informative findings as well
    #[arg(long, short = 'v', visible_alias = "verbose")]
    pub all: bool,
    /// Reject images with any defect that no --policy names
    #[arg(long)]
    pub strict: bool,
    /// What is done about one finding: repair, reject or ignore; `refmill explain` lists the codes
    #[arg(long = "policy", value_name = "CODE=ACTION")]
    pub policies: Vec<String>,
    /// A bound on one image: input_bytes, width, height, pixels, frames, metadata_bytes, wall_ms
    #[arg(long = "limit", value_name = "KEY=VALUE")]
    pub limits: Vec<String>,
    /// Worker processes [default: one per hundred files, at most one per core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub workers: Option<u16>,
    /// How workers are confined.
    #[command(flatten)]
    pub confined: SandboxArgs,
    /// The worker program [default: refmill-worker beside this program]
    #[arg(long, value_name = "PATH")]
    pub worker: Option<PathBuf>,
    /// Show nothing of images without a defect, and no counts
    #[arg(long, short)]
    pub quiet: bool,
}

/// `refmill explain`.
#[derive(Debug, Args)]
pub struct ExplainArgs {
    /// The finding; all of them in a table without one
    #[arg(value_name = "CODE", conflicts_with = "markdown")]
    pub code: Option<String>,
    /// Print docs/findings.md: every finding, and the policies
    #[arg(long)]
    pub markdown: bool,
}
