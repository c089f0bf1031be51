//! Which job is next, and whether a further one is taken: the terms of tenants, inside the caller's transaction.

use rusqlite::{Connection, named_params};

use super::super::share::{Candidate, turn};
use super::super::tenant::{self, Class};
use super::{JobId, NewJob, Refusal, Standing, Tally, statement as sql};

/// Whether the job's tenant may have it.
pub(super) fn admit(connection: &Connection, job: &NewJob) -> Result<(), Refusal> {
    let text = include_str!("../sql/tenant.sql");
    let found = sql::standings(connection, text, named_params! {":tenant": job.tenant})?;
    let refused = |refusal: tenant::Refusal| Refusal::Queue(refusal.into());
    match found.into_iter().find(|standing| standing.configured) {
        Some(standing) => standing.admit(job.device_bytes).map_err(refused),
        None => {
            let all = sql::standings(connection, include_str!("../sql/tenants.sql"), [])?;
            let known = all.into_iter().filter(|standing| standing.configured).map(|standing| standing.tenant.name);
            Err(refused(tenant::Refusal::Unknown { name: job.tenant.clone(), known: known.collect() }))
        }
    }
}

/// The job whose turn it is; its tenant's time and the queue's have moved on.
pub(super) fn pick(connection: &Connection, now: i64) -> rusqlite::Result<Option<JobId>> {
    sql::promote(connection, now)?;
    let clock = sql::clock(connection)?;
    let admissible = sql::standings(connection, include_str!("../sql/admissible.sql"), [])?;
    let mut names = Vec::with_capacity(admissible.len());
    let mut candidates = Vec::with_capacity(admissible.len());
    for standing in admissible {
        if let Some((job, priority)) = head(connection, &standing, now)? {
            let Standing { tenant, pass, .. } = standing;
            let guaranteed = tenant.class == Class::Guaranteed;
            candidates.push(Candidate { pass, weight: tenant.weight, guaranteed, priority, job: job.0 });
            names.push(tenant.name);
        }
    }
    let Some(turn) = turn(clock, &candidates) else { return Ok(None) };
    let (Some(name), Some(chosen)) = (names.get(turn.place), candidates.get(turn.place)) else { return Ok(None) };
    sql::advance(connection, name, (turn.pass, turn.clock))?;
    Ok(Some(JobId(chosen.job)))
}

/// The tenant's next job, if there is room for it. One that has become too large for its tenant's quota is buried:
/// else it would stand before all others for good.
fn head(connection: &Connection, standing: &Standing, now: i64) -> rusqlite::Result<Option<(JobId, i32)>> {
    while let Some((id, priority, need)) = sql::head(connection, &standing.tenant.name)? {
        match standing.tenant.device_bytes {
            Some(quota) if need > quota => {
                let name = standing.tenant.name.clone();
                let reason = tenant::Refusal::Quota { name, need, quota }.failure().to_string();
                let tally = sql::job(connection, id)?.map_or_else(Tally::default, |job| job.tally);
                sql::bury(connection, id, tally, &reason, (now, None))?;
            }
            Some(quota) if standing.device_bytes_in_use.saturating_add(need) > quota => return Ok(None),
            _ => return Ok(Some((id, priority))),
        }
    }
    Ok(None)
}
