//! `refmill-worker`: the confined process that refmill starts for each device. Not meant to be started by hand.

use std::process::ExitCode;

use refmill::exit::WorkerExit;
use refmill_worker::session::{self, Start};

fn main() -> ExitCode {
    let exit = match Start::parse(std::env::args().skip(1)) {
        Ok(start) => session::run(&start),
        Err(problem) => {
            eprintln!("refmill-worker: {problem}");
            WorkerExit::BadStart
        }
    };
    ExitCode::from(exit.number())
}
