//! `refmill jobs` and `refmill status`: what is in a queue, and single jobs changed by hand.

use refmill::exit::ExitCode;
use serde_json::json;

use super::{CommandError, print};
use crate::args::{JobsArgs, JobsCommand, StatusArgs};
use crate::queue::sqlite::Durability;
use crate::queue::{Clock, Job, JobId, Queue, SqliteQueue, State};
use crate::table;
use crate::verdict::shown;

/// Jobs read at a time.
const PAGE: u32 = 1_000;

pub(super) fn jobs(args: JobsArgs) -> Result<ExitCode, CommandError> {
    let queue = SqliteQueue::open(&args.queue, Durability::Full, false)?;
    let changed = |id: i64, change: Result<(), crate::queue::QueueError>| {
        change?;
        let job = queue.job(JobId(id))?;
        if args.json { print(&line(&job)) } else { print(&format!("job {id} is {}\n", job.state.as_str())) }
    };
    match args.command {
        JobsCommand::List { state } => list(&queue, state, args.json),
        JobsCommand::Show { id } => {
            let job = queue.job(JobId(id))?;
            if args.json { print(&line(&job)) } else { print(&show(&job)) }
        }
        JobsCommand::Retry { id } => changed(id, queue.retry(JobId(id))),
        JobsCommand::Cancel { id } => changed(id, queue.cancel(JobId(id))),
        JobsCommand::Bury { id, reason } => changed(id, queue.bury(JobId(id), &reason)),
    }
}

pub(super) fn status(args: &StatusArgs) -> Result<ExitCode, CommandError> {
    let queue = SqliteQueue::open(&args.queue, Durability::Full, false)?;
    let (counts, now) = (queue.counts()?, Clock::system().now_ms());
    let of = |state| counts.iter().find(|count| count.state == state);
    let jobs = |state| of(state).map_or(0, |count| count.jobs);
    let age = |state| of(state).and_then(|count| count.oldest).map(|oldest| now.saturating_sub(oldest).max(0) / 1_000);
    if args.json {
        let states = State::ALL
            .map(|state| (state.as_str().to_owned(), json!({"jobs": jobs(state), "oldest_age_s": age(state)})));
        let states: serde_json::Map<String, serde_json::Value> = states.into_iter().collect();
        return print(&format!("{}\n", json!({"states": states, "dead_letters": jobs(State::Dead)})));
    }
    let rows = State::ALL.map(|state| {
        let age = age(state).map(|seconds| format!("oldest {seconds} s")).unwrap_or_default();
        [state.as_str().to_owned(), jobs(state).to_string(), age]
    });
    print(&table::render(&rows, &[10, 12, 30]))
}

fn list(queue: &SqliteQueue, state: Option<State>, json: bool) -> Result<ExitCode, CommandError> {
    let mut after = JobId(0);
    loop {
        let page = queue.list(state, after, PAGE)?;
        let Some(last) = page.last() else { return Ok(ExitCode::AllGood) };
        after = last.id;
        if json {
            print(&page.iter().map(line).collect::<String>())?;
        } else {
            let rows: Vec<[String; 4]> = page.iter().map(row).collect();
            print(&table::render(&rows, &[12, 9, 80, 60]))?;
        }
    }
}

fn row(job: &Job) -> [String; 4] {
    let reason = job.reason.as_deref().map(shown).unwrap_or_default();
    [job.id.to_string(), job.state.as_str().to_owned(), shown(&job.name), reason]
}

fn line(job: &Job) -> String {
    // Numbers, texts and names of fields: it always serialises.
    serde_json::to_string(job).unwrap_or_default() + "\n"
}

fn show(job: &Job) -> String {
    let now = Clock::system().now_ms();
    let ago = |time: i64| format!("{} s ago", now.saturating_sub(time) / 1_000);
    let tally = job.tally;
    let rows = [
        ("job", job.id.to_string()),
        ("state", job.state.as_str().to_owned()),
        ("file", shown(&job.name)),
        ("priority", job.priority.to_string()),
        ("submitted", ago(job.created)),
        ("changed", ago(job.updated)),
        ("due in", if job.state == State::Queued { due(job.not_before, now) } else { String::new() }),
        ("deliveries", job.deliveries.to_string()),
        ("went wrong", format!("{} failures, {} crashes, {} losses", tally.failures, tally.crashes, tally.losses)),
        ("held by", job.holder.as_deref().map(shown).unwrap_or_default()),
        ("reason", job.reason.as_deref().map(shown).unwrap_or_default()),
        ("key", job.key.clone()),
    ];
    let rows = rows.into_iter().filter(|(_, value)| !value.is_empty()).map(|(name, value)| [name.to_owned(), value]);
    table::render(&rows.collect::<Vec<_>>(), &[12, 100])
}

fn due(not_before: i64, now: i64) -> String {
    format!("{} s", not_before.saturating_sub(now).max(0) / 1_000)
}
