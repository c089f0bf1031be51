//! `refmill completions` and `refmill man`: what a shell and a manual know of the command line, from its own table.

use std::fs;

use clap::CommandFactory;
use refmill::exit::ExitCode;

use super::{CommandError, print};
use crate::args::{Args, CompletionsArgs, ManArgs};

pub(super) fn completions(args: &CompletionsArgs) -> Result<ExitCode, CommandError> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Args::command(), "refmill", &mut script);
    print(&String::from_utf8_lossy(&script))
}

pub(super) fn man(args: &ManArgs) -> Result<ExitCode, CommandError> {
    let made = fs::create_dir_all(&args.out).and_then(|()| clap_mangen::generate_to(Args::command(), &args.out));
    made.map_err(|source| CommandError::System { what: "write the manual pages", source })?;
    Ok(ExitCode::AllGood)
}
