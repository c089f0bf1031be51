//! What a message of the stream holds, written from the replica's tables and read into them.

use rusqlite::{Connection, OptionalExtension, named_params};
use serde::{Deserialize, Serialize};

use super::super::nats::link::Offer;
use super::{State, Tenant, statement as sql};

/// The form of messages. One of a later form is refused.
pub(super) const FORM: u32 = 1;
/// Where the terms stand.
const TENANTS: &str = "tenants";

/// How far turns and numbers have come; every message tells, and they only grow.
#[derive(Debug, Serialize, Deserialize)]
struct Reached {
    form: u32,
    /// The highest number of a job so far.
    last: i64,
    /// The queue's virtual time.
    clock: i64,
}

/// A job, all of it.
#[derive(Debug, Serialize, Deserialize)]
struct JobRow {
    #[serde(flatten)]
    reached: Reached,
    /// Its tenant's virtual time.
    pass: i64,
    id: i64,
    key: String,
    tenant: String,
    name: String,
    payload: String,
    priority: i32,
    need: i64,
    state: State,
    not_before: i64,
    deliveries: i64,
    failures: i64,
    crashes: i64,
    losses: i64,
    token: i64,
    holder: Option<String>,
    lease_until: Option<i64>,
    created: i64,
    updated: i64,
    reason: Option<String>,
    report: Option<String>,
}

/// Everybody's terms.
#[derive(Debug, Serialize, Deserialize)]
struct Terms {
    #[serde(flatten)]
    reached: Reached,
    tenants: Vec<Tenant>,
    /// Virtual times, by name.
    passes: Vec<(String, i64)>,
}

/// Why a message cannot be taken.
#[derive(Debug)]
pub(super) enum RowError {
    /// The replica refuses.
    Sql(rusqlite::Error),
    /// It is no message of the queue.
    Foreign(String),
    /// It was written by a later refmill.
    Newer(i64),
}

impl From<rusqlite::Error> for RowError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}

/// Where the job of a message that says that it is over stood while it was not.
pub(super) fn live(subject: &str) -> Option<String> {
    subject.strip_prefix("job.over.").map(|id| format!("job.live.{id}"))
}

/// The messages that tell what the transaction changed.
pub(super) fn offers(connection: &Connection) -> rusqlite::Result<Vec<Offer>> {
    let ids: Vec<i64> = {
        let mut statement = connection.prepare_cached("SELECT id FROM changed ORDER BY id")?;
        statement.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?
    };
    let terms: bool =
        connection.prepare_cached("SELECT EXISTS (SELECT 1 FROM changed_terms)")?.query_row([], |row| row.get(0))?;
    let mut offers = Vec::with_capacity(ids.len() + 1);
    let mut forgot = false;
    for id in ids {
        let offer = match job(connection, id)? {
            Some(row) => {
                let live = matches!(row.state, State::Queued | State::Leased);
                let subject = format!("job.{}.{id}", if live { "live" } else { "over" });
                Offer { subject, body: text(&row), fades: false }
            }
            None => Offer { subject: format!("job.over.{id}"), body: Vec::new(), fades: true },
        };
        forgot |= offer.fades;
        offers.push(offer);
    }
    // What fades takes along how far everything had come; so that is told once more where it stays.
    if terms || forgot {
        let terms = Terms { reached: reached(connection)?, ..terms_of(connection)? };
        offers.push(Offer { subject: TENANTS.into(), body: text(&terms), fades: false });
    }
    Ok(offers)
}

/// Takes a message over.
pub(super) fn take(connection: &Connection, subject: &str, body: &[u8]) -> Result<(), RowError> {
    let foreign = |why: &str| RowError::Foreign(format!("{subject}: {why}"));
    let reads = |error: serde_json::Error| foreign(&error.to_string());
    if subject == TENANTS {
        let Terms { reached, tenants, passes } = parsed(body)?.map_err(reads)?;
        // Their turns begin where the queue's clock was.
        advance(connection, &reached)?;
        sql::set_tenants(connection, &tenants)?;
        return passes.iter().try_for_each(|(name, pass)| raise(connection, name, *pass)).map_err(RowError::Sql);
    }
    let id = subject.strip_prefix("job.live.").or_else(|| subject.strip_prefix("job.over."));
    let id: i64 = id.and_then(|id| id.parse().ok()).ok_or_else(|| foreign("not a subject of a queue"))?;
    if body.is_empty() {
        return Ok(connection.prepare_cached("DELETE FROM job WHERE id = ?1")?.execute([id]).map(drop)?);
    }
    let row: JobRow = parsed(body)?.map_err(reads)?;
    if row.id != id {
        return Err(foreign("another job's number"));
    }
    advance(connection, &row.reached)?;
    let unknown = "INSERT OR IGNORE INTO tenant (name, configured, guaranteed, weight, pass) VALUES (?1, 0, 0, 1, 0)";
    connection.prepare_cached(unknown)?.execute([&row.tenant])?;
    raise(connection, &row.tenant, row.pass)?;
    let known = connection.prepare_cached("SELECT 1 FROM job WHERE id = ?1")?.exists([id])?;
    if !known {
        connection.prepare_cached(include_str!("../sql/replica_add.sql"))?.execute(named_params! {
            ":id": id, ":key": row.key, ":tenant": row.tenant, ":name": row.name, ":payload": row.payload,
            ":priority": row.priority, ":need": row.need, ":not_before": row.not_before, ":created": row.created,
        })?;
    }
    connection.prepare_cached(include_str!("../sql/replica_move.sql"))?.execute(named_params! {
        ":id": id, ":state": row.state.as_str(), ":not_before": row.not_before, ":deliveries": row.deliveries,
        ":failures": row.failures, ":crashes": row.crashes, ":losses": row.losses, ":token": row.token,
        ":holder": row.holder, ":lease_until": row.lease_until, ":updated": row.updated, ":reason": row.reason,
        ":report": row.report,
    })?;
    Ok(())
}

/// What was noted of changes is told, or was not this replica's own.
pub(super) fn clear(connection: &Connection) -> rusqlite::Result<()> {
    connection.prepare_cached("DELETE FROM changed")?.execute([])?;
    connection.prepare_cached("DELETE FROM changed_terms")?.execute([]).map(drop)
}

/// The form first: what a later one means is not known.
fn parsed<T: for<'a> Deserialize<'a>>(body: &[u8]) -> Result<serde_json::Result<T>, RowError> {
    #[derive(Deserialize)]
    struct Form {
        form: u32,
    }
    match serde_json::from_slice::<Form>(body) {
        Ok(Form { form }) if form > FORM => Err(RowError::Newer(form.into())),
        _ => Ok(serde_json::from_slice(body)),
    }
}

fn text(value: &impl Serialize) -> Vec<u8> {
    // Numbers, texts and names of fields: it always serialises.
    serde_json::to_vec(value).unwrap_or_default()
}

fn reached(connection: &Connection) -> rusqlite::Result<Reached> {
    let last = "SELECT seq FROM sqlite_sequence WHERE name = 'job'";
    let last = connection.prepare_cached(last)?.query_row([], |row| row.get(0)).optional()?;
    Ok(Reached { form: FORM, last: last.unwrap_or(0), clock: sql::clock(connection)? })
}

fn advance(connection: &Connection, reached: &Reached) -> rusqlite::Result<()> {
    connection
        .prepare_cached("UPDATE share SET clock = :clock WHERE clock < :clock")?
        .execute(named_params! {":clock": reached.clock})?;
    let known = "UPDATE sqlite_sequence SET seq = :last WHERE name = 'job' AND seq < :last";
    connection.prepare_cached(known)?.execute(named_params! {":last": reached.last})?;
    let first = "INSERT INTO sqlite_sequence (name, seq)
        SELECT 'job', :last WHERE NOT EXISTS (SELECT 1 FROM sqlite_sequence WHERE name = 'job')";
    connection.prepare_cached(first)?.execute(named_params! {":last": reached.last}).map(drop)
}

fn raise(connection: &Connection, tenant: &str, pass: i64) -> rusqlite::Result<()> {
    let raise = "UPDATE tenant SET pass = :pass WHERE name = :tenant AND pass < :pass";
    connection.prepare_cached(raise)?.execute(named_params! {":pass": pass, ":tenant": tenant}).map(drop)
}

fn terms_of(connection: &Connection) -> rusqlite::Result<Terms> {
    let all = sql::standings(connection, include_str!("../sql/tenants.sql"), [])?;
    let passes = all.iter().map(|standing| (standing.tenant.name.clone(), standing.pass)).collect();
    let tenants = all.into_iter().filter(|standing| standing.configured).map(|standing| standing.tenant).collect();
    Ok(Terms { reached: Reached { form: FORM, last: 0, clock: 0 }, tenants, passes })
}

fn job(connection: &Connection, id: i64) -> rusqlite::Result<Option<JobRow>> {
    let Reached { form, last, clock } = reached(connection)?;
    let text = "SELECT job.*, tenant.pass FROM job JOIN tenant ON tenant.name = job.tenant WHERE job.id = ?1";
    let row = |row: &rusqlite::Row<'_>| {
        Ok(JobRow {
            reached: Reached { form, last, clock },
            pass: row.get("pass")?,
            id,
            key: row.get("key")?,
            tenant: row.get("tenant")?,
            name: row.get("name")?,
            payload: row.get("payload")?,
            priority: row.get("priority")?,
            need: row.get("need")?,
            state: row.get("state")?,
            not_before: row.get("not_before")?,
            deliveries: row.get("deliveries")?,
            failures: row.get("failures")?,
            crashes: row.get("crashes")?,
            losses: row.get("losses")?,
            token: row.get("token")?,
            holder: row.get("holder")?,
            lease_until: row.get("lease_until")?,
            created: row.get("created")?,
            updated: row.get("updated")?,
            reason: row.get("reason")?,
            report: row.get("report")?,
        })
    };
    connection.prepare_cached(text)?.query_row([id], row).optional()
}
