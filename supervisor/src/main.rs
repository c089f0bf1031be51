//! `refmill`: arguments, command, exit code.

use std::process;

use clap::Parser;
use refmill_supervisor::args::Args;
use refmill_supervisor::commands;

fn main() -> process::ExitCode {
    process::ExitCode::from(commands::dispatch(Args::parse()).number())
}
