//! `refmill config`: a configuration checked, shown or begun.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;

use refmill::exit::ExitCode;

use super::{CommandError, print};
use crate::args::ConfigCommand;
use crate::config::{self, Config};

pub(super) fn config(command: &ConfigCommand) -> Result<ExitCode, CommandError> {
    match command {
        ConfigCommand::Check { file } => {
            Config::read(file)?;
            print(&format!("{} is sound\n", file.display()))
        }
        ConfigCommand::Show { file } => print(&Config::load(file.as_deref())?.to_toml()),
        ConfigCommand::Init { file } if file == Path::new("-") => print(&config::example()),
        ConfigCommand::Init { file } => init(file),
        ConfigCommand::Keys => print(&config::reference()),
    }
}

fn init(file: &Path) -> Result<ExitCode, CommandError> {
    let written = OpenOptions::new().write(true).create_new(true).open(file);
    let written = written.and_then(|mut open| open.write_all(config::example().as_bytes()));
    match written {
        Ok(()) => print(&format!("{} says the defaults\n", file.display())),
        Err(error) => {
            Err(CommandError::Usage { message: format!("cannot write configuration {}: {error}", file.display()) })
        }
    }
}
