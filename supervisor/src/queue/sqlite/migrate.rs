//! From the form that a file has to the one that this program reads.

use rusqlite::{Connection, TransactionBehavior};

use super::super::QueueError;
use super::statement as sql;

/// `application_id` of our files: "RFMQ".
pub const APPLICATION: i64 = 0x5246_4d51;
/// The steps from an empty file to the form that this program reads; `user_version` counts those taken. One that was
/// released is never changed.
const MIGRATIONS: &[&str] = &[include_str!("../sql/migrations/001.sql"), include_str!("../sql/migrations/002.sql")];

/// Takes the steps that are left, all or none.
///
/// # Errors
/// [`QueueError::Open`], [`QueueError::Foreign`], [`QueueError::Newer`]
pub(super) fn migrate(connection: &mut Connection, path: &str) -> Result<(), QueueError> {
    let failed = |source| QueueError::Open { path: path.to_owned(), source };
    let known = i64::try_from(MIGRATIONS.len()).unwrap_or(i64::MAX);
    let number = |connection: &Connection, pragma| connection.pragma_query_value(None, pragma, |row| row.get(0));
    if number(connection, "user_version").map_err(failed)? == known
        && number(connection, "application_id").map_err(failed)? == APPLICATION
    {
        return Ok(());
    }
    // Two processes may find the file in need at once; one of them waits here, and then finds it done.
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)?;
    let found: i64 = number(&transaction, "user_version").map_err(failed)?;
    let application: i64 = number(&transaction, "application_id").map_err(failed)?;
    let empty = sql::is_empty(&transaction).map_err(failed)?;
    if application != APPLICATION && !(empty && found == 0 && application == 0) {
        return Err(QueueError::Foreign { path: path.to_owned() });
    }
    if found > known {
        return Err(QueueError::Newer { path: path.to_owned(), found, known });
    }
    for step in MIGRATIONS.iter().skip(usize::try_from(found).unwrap_or(0)) {
        transaction.execute_batch(step).map_err(failed)?;
    }
    transaction.pragma_update(None, "application_id", APPLICATION).map_err(failed)?;
    transaction.pragma_update(None, "user_version", known).map_err(failed)?;
    transaction.commit().map_err(failed)
}
