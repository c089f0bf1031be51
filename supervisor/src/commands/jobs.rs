//! `refmill jobs` and `refmill status`: what is in a queue, and single jobs changed by hand.

use refmill::exit::ExitCode;
use serde_json::json;

use super::{CommandError, print};
use crate::args::{JobsArgs, JobsCommand, StatusArgs};
use crate::queue::sqlite::Durability;
use crate::queue::{Clock, Filter, Job, JobId, Queue, SqliteQueue, Standing, State};
use crate::settings;
use crate::table;
use crate::verdict::shown;

/// Jobs read at a time.
const PAGE: u32 = 1_000;

pub(super) fn jobs(args: JobsArgs) -> Result<ExitCode, CommandError> {
    let queue = settings::queue(args.queue, args.config.as_deref())?.open(Durability::Full, false)?;
    let changed = |id: i64, change: Result<(), crate::queue::QueueError>| {
        change?;
        let job = queue.job(JobId(id))?;
        if args.json { print(&line(&job)) } else { print(&format!("job {id} is {}\n", job.state.as_str())) }
    };
    match args.command {
        JobsCommand::List { state, tenant } => list(&queue, &Filter { state, tenant }, args.json),
        JobsCommand::Show { id } => {
            let job = queue.job(JobId(id))?;
            if args.json { print(&line(&job)) } else { print(&show(&job)) }
        }
        JobsCommand::Retry { id } => changed(id, queue.retry(JobId(id))),
        JobsCommand::Cancel { id } => changed(id, queue.cancel(JobId(id))),
        JobsCommand::Bury { id, reason } => changed(id, queue.bury(JobId(id), &reason)),
    }
}

pub(super) fn status(args: StatusArgs) -> Result<ExitCode, CommandError> {
    let queue = settings::queue(args.queue, args.config.as_deref())?.open(Durability::Full, false)?;
    let (counts, tenants, now) = (queue.counts()?, queue.tenants()?, Clock::system().now_ms());
    let of = |state| counts.iter().find(|count| count.state == state);
    let jobs = |state| of(state).map_or(0, |count| count.jobs);
    let age = |state| of(state).and_then(|count| count.oldest).map(|oldest| now.saturating_sub(oldest).max(0) / 1_000);
    if args.json {
        let states = State::ALL
            .map(|state| (state.as_str().to_owned(), json!({"jobs": jobs(state), "oldest_age_s": age(state)})));
        let states: serde_json::Map<String, serde_json::Value> = states.into_iter().collect();
        let status = json!({"states": states, "dead_letters": jobs(State::Dead), "tenants": tenants});
        return print(&format!("{status}\n"));
    }
    let rows = State::ALL.map(|state| {
        let age = age(state).map(|seconds| format!("oldest {seconds} s")).unwrap_or_default();
        [state.as_str().to_owned(), jobs(state).to_string(), age]
    });
    let mut text = table::render(&rows, &[10, 12, 30]);
    if !tenants.iter().all(Standing::is_unset) {
        let rows: Vec<[String; 6]> = tenants.iter().map(standing).collect();
        text += "\n";
        text += &table::render(&rows, &[24, 12, 12, 26, 24, 40]);
    }
    print(&text)
}

/// One tenant, with its caps where it has any.
fn standing(standing: &Standing) -> [String; 6] {
    const MIB: u64 = 1 << 20;
    let Standing { tenant, configured, queued, leased, device_bytes_in_use, .. } = standing;
    let of = |cap: Option<u64>| cap.map(|cap| format!(" of {cap}")).unwrap_or_default();
    let class = if *configured { tenant.class.as_str() } else { "not configured" };
    let quota = tenant.device_bytes.map(|bytes| bytes / MIB);
    [
        tenant.name.clone(),
        class.to_owned(),
        format!("weight {}", tenant.weight),
        format!("{queued}{} queued", of(tenant.max_queued)),
        format!("{leased}{} leased", of(tenant.max_running.map(u64::from))),
        format!("{}{} MiB of device memory", device_bytes_in_use.div_ceil(MIB), of(quota)),
    ]
}

fn list(queue: &SqliteQueue, filter: &Filter, json: bool) -> Result<ExitCode, CommandError> {
    let mut after = JobId(0);
    loop {
        let page = queue.list(filter, after, PAGE)?;
        let Some(last) = page.last() else { return Ok(ExitCode::AllGood) };
        after = last.id;
        if json {
            print(&page.iter().map(line).collect::<String>())?;
        } else {
            let rows: Vec<[String; 5]> = page.iter().map(row).collect();
            print(&table::render(&rows, &[12, 9, 16, 80, 60]))?;
        }
    }
}

fn row(job: &Job) -> [String; 5] {
    let reason = job.reason.as_deref().map(shown).unwrap_or_default();
    [job.id.to_string(), job.state.as_str().to_owned(), job.tenant.clone(), shown(&job.name), reason]
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
        ("tenant", job.tenant.clone()),
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
