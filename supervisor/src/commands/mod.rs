//! The commands, and what a program that failed says and returns.

mod batch;
mod config;
mod doctor;
mod explain;
mod inspect;
mod jobs;
mod recipe;
mod repair;
mod run;
mod schema;
mod serve;
mod session;
mod sheet;
mod shell;
mod submit;

use std::io::Write;

use refmill::exit::ExitCode;

use crate::args::{Args, Command};
use crate::config::ConfigError;
use crate::http::ListenError;
use crate::intake::IntakeError;
use crate::pool::posture::SandboxPolicy;
use crate::pool::worker::StartError;
use crate::queue::QueueError;
use crate::queue::lock::LockError;
use crate::queue::nats::LinkError;
use crate::recipe::LoadError;
use crate::settings::SettingsError;
use crate::store::error::{Kind, StoreError};
use crate::store::failures::FailuresError;
use crate::telemetry;

pub use schema::report_schema;

/// Why a command could not do its work.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// The command line cannot be used.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// The configuration cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The inputs cannot be listed.
    #[error(transparent)]
    Intake(#[from] IntakeError),
    /// A recipe cannot be used.
    #[error(transparent)]
    Recipe(#[from] LoadError),
    /// The queue cannot be used.
    #[error(transparent)]
    Queue(#[from] QueueError),
    /// A store does not do what was asked.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The HTTP server cannot listen.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// A failures file cannot be used.
    #[error(transparent)]
    Failures(#[from] FailuresError),
    /// Somebody else serves the queue.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// What was named does not fit together.
    #[error("{message}")]
    Usage {
        /// Why.
        message: String,
    },
    /// No worker became ready.
    #[error("no worker could be started: {0}")]
    NoWorker(#[source] StartError),
    /// Workers were lost and could not be replaced.
    #[error("{undone} images were not done, since no worker was left: {source}")]
    WorkersLost {
        /// How many images.
        undone: usize,
        /// Why the last one could not be replaced.
        source: StartError,
    },
    /// The machine refuses something that refmill needs.
    #[error("cannot {what}: {source}")]
    System {
        /// What.
        what: &'static str,
        /// Why.
        source: std::io::Error,
    },
}

impl CommandError {
    /// How the program ends.
    #[must_use]
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Self::Settings(SettingsError::OwnPlace(_) | SettingsError::NoWorker { .. }) => ExitCode::Broken,
            Self::Settings(_) | Self::Config(_) | Self::Intake(_) | Self::Recipe(_) | Self::Usage { .. } => {
                ExitCode::Usage
            }
            Self::Queue(QueueError::Sql { .. } | QueueError::Stale { .. }) => ExitCode::Broken,
            Self::Queue(QueueError::Stream { source: LinkError::Away(_), .. }) => ExitCode::Broken,
            Self::Store(error) if error.kind == Kind::Unavailable => ExitCode::Broken,
            Self::Store(_) | Self::Failures(_) | Self::Listen(_) => ExitCode::Usage,
            Self::Queue(_) | Self::Lock(_) => ExitCode::Usage,
            Self::NoWorker(_) | Self::WorkersLost { .. } | Self::System { .. } => ExitCode::Broken,
        }
    }
}

/// Runs the command and says why it failed, if it did.
#[must_use]
pub fn dispatch(args: Args) -> ExitCode {
    let result = match args.command {
        Command::Run(args) => run::run(args),
        Command::Batch(args) => batch::batch(args),
        Command::Repair(args) => repair::repair(args),
        Command::Inspect(args) => inspect::inspect(args),
        Command::Explain(args) => explain::explain(&args),
        Command::Submit(args) => submit::submit(args),
        Command::Serve(args) => serve::serve(args),
        Command::Jobs(args) => jobs::jobs(args),
        Command::Status(args) => jobs::status(args),
        Command::Doctor(args) => doctor::doctor(args),
        Command::Config(command) => config::config(&command),
        Command::Recipe(command) => recipe::recipe(&command),
        Command::Schema => schema::print_schema(),
        Command::Metrics => print(&telemetry::catalogue::reference()),
        Command::Completions(args) => shell::completions(&args),
        Command::Man(args) => shell::man(&args),
    };
    result.unwrap_or_else(|error| {
        if telemetry::log::is_installed() {
            tracing::error!("refmill: {error}");
        } else {
            // Where standard error is closed there is nobody to tell; the exit code says it too.
            drop(writeln!(std::io::stderr().lock(), "refmill: {error}"));
        }
        error.exit_code()
    })
}

/// Says aloud, whoever wants quiet, that nothing confines workers.
fn warn_unconfined(policy: SandboxPolicy) {
    if policy == SandboxPolicy::Off {
        let warning = "refmill: WARNING: --sandbox=off: workers run UNCONFINED; an image that takes a decoder over has \
                       every right of this user";
        if telemetry::log::is_installed() {
            tracing::warn!(code = "sandbox_off", "{warning}");
        } else {
            // As above.
            drop(writeln!(std::io::stderr().lock(), "{warning}"));
        }
    }
}

/// Writes to standard output what a command was asked to print.
fn print(text: &str) -> Result<ExitCode, CommandError> {
    match std::io::stdout().lock().write_all(text.as_bytes()) {
        // A reader that has seen enough, such as `head`, is no failure.
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(CommandError::System { what: "write to standard output", source: error })
        }
        _ => Ok(ExitCode::AllGood),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_code_tells_a_bad_command_line_from_a_broken_machine() {
        assert_eq!(CommandError::Usage { message: String::new() }.exit_code(), ExitCode::Usage);
        assert_eq!(CommandError::NoWorker(StartError::Timeout).exit_code(), ExitCode::Broken);
    }
}
