//! `refmill submit`: inputs become jobs of a queue, each once.

use std::io::{self, Write};

use refmill::exit::ExitCode;
use refmill::failure::{Code, Failure};
use serde::Serialize;

use super::{CommandError, print};
use crate::args::SubmitArgs;
use crate::intake::{self, Expanded, Origin};
use crate::progress::Tally;
use crate::queue::spec::{self, Original};
use crate::queue::sqlite::Durability;
use crate::queue::{Enqueued, JobId, Queue, QueueError, SqliteQueue, Standing, State};
use crate::settings::SubmitSettings;
use crate::shutdown::Stop;
use crate::verdict::shown;

/// The answer to one input.
#[derive(Serialize)]
struct Answer {
    name: String,
    id: Option<JobId>,
    state: Option<State>,
    duplicate: bool,
    error: Option<Failure>,
}

pub(super) fn submit(args: SubmitArgs) -> Result<ExitCode, CommandError> {
    let settings = SubmitSettings::new(args)?;
    let stop = Stop::new().map_err(|source| CommandError::System { what: "make a pipe", source })?;
    let Expanded { inputs, notes } = intake::expand(&settings.inputs)?;
    if inputs.iter().any(|input| input.origin == Origin::Stdin) {
        let message = "standard input (`-`) cannot be submitted: a job is worked on later".into();
        return Err(CommandError::Usage { message });
    }
    // Where standard error is closed there is nobody to tell; so below.
    notes.iter().for_each(|note| drop(writeln!(io::stderr().lock(), "{}", shown(note))));
    let queue = settings.queue.open(Durability::Full, true)?;
    if queue.tenants()?.iter().all(Standing::is_unset) {
        // Nobody has served it with tenants yet.
        queue.set_tenants(&settings.tenants)?;
    }
    let (mut tally, mut full) = (Tally::default(), false);
    for input in &inputs {
        let answer = match one(&settings, &queue, &input.origin, &stop) {
            Ok(enqueued) => {
                tally.ok += 1;
                Answer::of(input.origin.name(), enqueued?)
            }
            Err(failure) => {
                tally.rejected += 1;
                full |= failure.code == Code::QueueFull;
                let name = input.origin.name();
                Answer { name, id: None, state: None, duplicate: false, error: Some(failure) }
            }
        };
        answer.tell(settings.json)?;
    }
    Ok(if full { ExitCode::QueueFull } else { tally.exit_code() })
}

/// Submits one input, or says why it cannot be.
fn one(
    settings: &SubmitSettings,
    queue: &SqliteQueue,
    origin: &Origin,
    stop: &Stop,
) -> Result<Result<Enqueued, CommandError>, Failure> {
    let path = origin.path().unwrap_or(std::path::Path::new("-"));
    let input = intake::load(origin, settings.order.limits.input_bytes, true, stop)?;
    let source = match std::path::absolute(path) {
        Ok(source) => source,
        Err(source) => return Ok(Err(CommandError::System { what: "find the working folder", source })),
    };
    let original = Original { tenant: &settings.tenant, path: &source, blake3: input.blake3() };
    let job = spec::submission(original, &settings.order, &settings.out, settings.urgency)?;
    match queue.enqueue(&job) {
        Err(QueueError::Refused(refusal)) => Err(refusal.failure()),
        answer => Ok(answer.map_err(CommandError::from)),
    }
}

impl Answer {
    fn of(name: String, enqueued: Enqueued) -> Self {
        let (id, state, duplicate) = match enqueued {
            Enqueued::New(id) => (id, State::Queued, false),
            Enqueued::Known(id, state) => (id, state, true),
        };
        Self { name, id: Some(id), state: Some(state), duplicate, error: None }
    }

    fn tell(&self, json: bool) -> Result<(), CommandError> {
        if json {
            // Numbers, texts and names of fields: it always serialises.
            return print(&(serde_json::to_string(self).unwrap_or_default() + "\n")).map(drop);
        }
        let name = shown(&self.name);
        match (self.id, self.state, &self.error) {
            (Some(id), Some(state), None) => {
                let known = if self.duplicate { ", known already" } else { "" };
                print(&format!("job {id} {}{known}: {name}\n", state.as_str())).map(drop)
            }
            (_, _, failure) => {
                let why = failure.as_ref().map(|failure| shown(&failure.to_string())).unwrap_or_default();
                drop(writeln!(io::stderr().lock(), "{name}: {why}"));
                Ok(())
            }
        }
    }
}
