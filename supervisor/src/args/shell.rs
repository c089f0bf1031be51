//! What was typed after `refmill completions` and `man`.

use std::path::PathBuf;

use clap::Args;
use clap_complete::Shell;

/// `refmill completions`.
#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    pub shell: Shell,
}

/// `refmill man`.
#[derive(Debug, Args)]
pub struct ManArgs {
    /// Folder for refmill.1, refmill-run.1 and so on, made where it is not there
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
}
