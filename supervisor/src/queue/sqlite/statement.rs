//! The statements, each with the types that it takes and gives. Nothing here begins or ends a transaction.

use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ValueRef};
use rusqlite::{Connection, OptionalExtension, Params, Row, named_params};

use super::super::tenant::Class;
use super::{Count, Filter, Job, JobId, Lease, NewJob, Standing, State, Tally, Tenant};

pub(super) const EXPIRED: &str = include_str!("../sql/expired.sql");

/// Jobs, as the row says them.
pub(super) fn jobs(connection: &Connection, text: &str, parameters: impl Params) -> rusqlite::Result<Vec<Job>> {
    connection.prepare_cached(text)?.query_map(parameters, row)?.collect()
}

fn one(connection: &Connection, text: &str, parameters: impl Params) -> rusqlite::Result<Option<Job>> {
    connection.prepare_cached(text)?.query_row(parameters, row).optional()
}

/// Whether the statement changed its row.
fn changed(connection: &Connection, text: &str, parameters: impl Params) -> rusqlite::Result<bool> {
    connection.prepare_cached(text)?.execute(parameters).map(|rows| rows > 0)
}

pub(super) fn is_empty(connection: &Connection) -> rusqlite::Result<bool> {
    connection.query_row("SELECT NOT EXISTS (SELECT 1 FROM sqlite_schema)", [], |row| row.get(0))
}

pub(super) fn enqueue(connection: &Connection, job: &NewJob, now: i64) -> rusqlite::Result<JobId> {
    let parameters = named_params! {
        ":key": job.key, ":tenant": job.tenant, ":name": job.name, ":payload": job.payload,
        ":priority": job.priority, ":need": stored(job.device_bytes), ":now": now, ":delay": job.delay_ms,
    };
    let mut statement = connection.prepare_cached(include_str!("../sql/enqueue.sql"))?;
    statement.query_row(parameters, |row| row.get(0).map(JobId))
}

pub(super) fn find_key(connection: &Connection, key: &str) -> rusqlite::Result<Option<(JobId, State)>> {
    let mut statement = connection.prepare_cached(include_str!("../sql/find_key.sql"))?;
    statement.query_row(named_params! {":key": key}, |row| Ok((JobId(row.get(0)?), row.get(1)?))).optional()
}

pub(super) fn due(connection: &Connection, now: i64) -> rusqlite::Result<bool> {
    let mut statement = connection.prepare_cached(include_str!("../sql/due.sql"))?;
    statement.query_row(named_params! {":now": now}, |row| row.get(0))
}

pub(super) fn claim(
    connection: &Connection,
    (id, holder): (JobId, &str),
    now: i64,
    lease_ms: u32,
) -> rusqlite::Result<Option<Job>> {
    let parameters = named_params! {":id": id.0, ":holder": holder, ":now": now, ":lease": lease_ms};
    one(connection, include_str!("../sql/claim.sql"), parameters)
}

pub(super) fn extend(connection: &Connection, lease: Lease, now: i64, lease_ms: u32) -> rusqlite::Result<bool> {
    let parameters = named_params! {":id": lease.job.0, ":token": lease.token, ":now": now, ":lease": lease_ms};
    changed(connection, include_str!("../sql/extend.sql"), parameters)
}

pub(super) fn ack(connection: &Connection, lease: Lease, now: i64, report: &str) -> rusqlite::Result<bool> {
    let parameters = named_params! {":id": lease.job.0, ":token": lease.token, ":now": now, ":report": report};
    changed(connection, include_str!("../sql/ack.sql"), parameters)
}

pub(super) fn acked(connection: &Connection, lease: Lease) -> rusqlite::Result<bool> {
    let mut statement = connection.prepare_cached(include_str!("../sql/acked.sql"))?;
    statement.query_row(named_params! {":id": lease.job.0, ":token": lease.token}, |row| row.get(0))
}

pub(super) fn held(connection: &Connection, lease: Lease) -> rusqlite::Result<Option<Job>> {
    let parameters = named_params! {":id": lease.job.0, ":token": lease.token};
    one(connection, include_str!("../sql/held.sql"), parameters)
}

pub(super) fn again(
    connection: &Connection,
    id: JobId,
    tally: Tally,
    reason: &str,
    (now, not_before): (i64, i64),
) -> rusqlite::Result<()> {
    let parameters = named_params! {
        ":id": id.0, ":failures": tally.failures, ":crashes": tally.crashes, ":losses": tally.losses,
        ":reason": reason, ":now": now, ":not_before": not_before,
    };
    changed(connection, include_str!("../sql/again.sql"), parameters).map(drop)
}

pub(super) fn bury(
    connection: &Connection,
    id: JobId,
    tally: Tally,
    reason: &str,
    (now, report): (i64, Option<&str>),
) -> rusqlite::Result<()> {
    let parameters = named_params! {
        ":id": id.0, ":failures": tally.failures, ":crashes": tally.crashes, ":losses": tally.losses,
        ":reason": reason, ":now": now, ":report": report,
    };
    changed(connection, include_str!("../sql/bury.sql"), parameters).map(drop)
}

pub(super) fn release(connection: &Connection, lease: Lease, now: i64) -> rusqlite::Result<bool> {
    let parameters = named_params! {":id": lease.job.0, ":token": lease.token, ":now": now};
    changed(connection, include_str!("../sql/release.sql"), parameters)
}

pub(super) fn cancel(connection: &Connection, id: JobId, now: i64) -> rusqlite::Result<bool> {
    changed(connection, include_str!("../sql/cancel.sql"), named_params! {":id": id.0, ":now": now})
}

pub(super) fn retry(connection: &Connection, id: JobId, now: i64) -> rusqlite::Result<bool> {
    changed(connection, include_str!("../sql/retry.sql"), named_params! {":id": id.0, ":now": now})
}

pub(super) fn job(connection: &Connection, id: JobId) -> rusqlite::Result<Option<Job>> {
    one(connection, include_str!("../sql/show.sql"), named_params! {":id": id.0})
}

pub(super) fn counts(connection: &Connection) -> rusqlite::Result<Vec<Count>> {
    let mut statement = connection.prepare_cached(include_str!("../sql/counts.sql"))?;
    let count = |row: &Row<'_>| {
        Ok(Count { state: row.get(0)?, jobs: row.get::<_, i64>(1)?.unsigned_abs(), oldest: row.get(2)? })
    };
    statement.query_map([], count)?.collect()
}

pub(super) fn prune(connection: &Connection, state: State, until: i64) -> rusqlite::Result<usize> {
    let mut statement = connection.prepare_cached(include_str!("../sql/prune.sql"))?;
    statement.execute(named_params! {":state": state.as_str(), ":until": until})
}

pub(super) fn list(connection: &Connection, filter: &Filter, after: JobId, most: u32) -> rusqlite::Result<Vec<Job>> {
    let (after, state) = (after.0, filter.state.map(State::as_str));
    match (&filter.tenant, state) {
        (None, None) => {
            let parameters = named_params! {":after": after, ":most": most};
            jobs(connection, include_str!("../sql/list.sql"), parameters)
        }
        (None, Some(state)) => {
            let parameters = named_params! {":state": state, ":after": after, ":most": most};
            jobs(connection, include_str!("../sql/list_state.sql"), parameters)
        }
        (Some(tenant), None) => {
            let parameters = named_params! {":tenant": tenant, ":after": after, ":most": most};
            jobs(connection, include_str!("../sql/list_tenant.sql"), parameters)
        }
        (Some(tenant), Some(state)) => {
            let parameters = named_params! {":tenant": tenant, ":state": state, ":after": after, ":most": most};
            jobs(connection, include_str!("../sql/list_both.sql"), parameters)
        }
    }
}

pub(super) fn promote(connection: &Connection, now: i64) -> rusqlite::Result<bool> {
    changed(connection, include_str!("../sql/promote.sql"), named_params! {":now": now})
}

/// The job that a tenant would be given: its number, priority and bound of device memory.
pub(super) fn head(connection: &Connection, tenant: &str) -> rusqlite::Result<Option<(JobId, i32, u64)>> {
    let mut statement = connection.prepare_cached(include_str!("../sql/head.sql"))?;
    let head = |row: &Row<'_>| Ok((JobId(row.get(0)?), row.get(1)?, row.get::<_, i64>(2)?.unsigned_abs()));
    statement.query_row(named_params! {":tenant": tenant}, head).optional()
}

pub(super) fn clock(connection: &Connection) -> rusqlite::Result<i64> {
    connection.prepare_cached("SELECT clock FROM share")?.query_row([], |row| row.get(0))
}

pub(super) fn advance(connection: &Connection, tenant: &str, (pass, clock): (i64, i64)) -> rusqlite::Result<()> {
    let parameters = named_params! {":tenant": tenant, ":pass": pass};
    changed(connection, include_str!("../sql/advance.sql"), parameters)?;
    changed(connection, include_str!("../sql/clock.sql"), named_params! {":clock": clock}).map(drop)
}

pub(super) fn standings(
    connection: &Connection,
    text: &str,
    parameters: impl Params,
) -> rusqlite::Result<Vec<Standing>> {
    connection.prepare_cached(text)?.query_map(parameters, standing)?.collect()
}

pub(super) fn set_tenants(connection: &Connection, tenants: &[Tenant]) -> rusqlite::Result<()> {
    changed(connection, include_str!("../sql/tenant_drop.sql"), [])?;
    for tenant in tenants {
        let parameters = named_params! {
            ":name": tenant.name, ":guaranteed": tenant.class == Class::Guaranteed, ":weight": tenant.weight,
            ":max_queued": tenant.max_queued.map(stored), ":max_running": tenant.max_running,
            ":device_bytes": tenant.device_bytes.map(stored),
        };
        changed(connection, include_str!("../sql/tenant_set.sql"), parameters)?;
    }
    changed(connection, include_str!("../sql/tenant_forget.sql"), []).map(drop)
}

/// A size as SQLite has it.
fn stored(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

fn standing(row: &Row<'_>) -> rusqlite::Result<Standing> {
    let number = |column| row.get::<_, i64>(column).map(i64::unsigned_abs);
    let cap = |column| row.get::<_, Option<i64>>(column).map(|cap| cap.map(i64::unsigned_abs));
    let class = if row.get("guaranteed")? { Class::Guaranteed } else { Class::Burstable };
    let tenant = Tenant {
        name: row.get("name")?,
        class,
        weight: row.get("weight")?,
        max_queued: cap("max_queued")?,
        max_running: row.get("max_running")?,
        device_bytes: cap("device_bytes")?,
    };
    Ok(Standing {
        tenant,
        configured: row.get("configured")?,
        queued: number("queued")?,
        leased: number("leased")?,
        device_bytes_in_use: number("need")?,
        pass: row.get("pass")?,
    })
}

impl FromSql for State {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        let text = value.as_str()?;
        Self::ALL.into_iter().find(|state| state.as_str() == text).ok_or(FromSqlError::InvalidType)
    }
}

fn row(row: &Row<'_>) -> rusqlite::Result<Job> {
    Ok(Job {
        id: JobId(row.get("id")?),
        tenant: row.get("tenant")?,
        key: row.get("key")?,
        name: row.get("name")?,
        state: row.get("state")?,
        priority: row.get("priority")?,
        not_before: row.get("not_before")?,
        deliveries: row.get("deliveries")?,
        tally: Tally { failures: row.get("failures")?, crashes: row.get("crashes")?, losses: row.get("losses")? },
        token: row.get("token")?,
        holder: row.get("holder")?,
        lease_until: row.get("lease_until")?,
        created: row.get("created")?,
        updated: row.get("updated")?,
        reason: row.get("reason")?,
        payload: row.get("payload")?,
        report: row.get("report")?,
    })
}
