//! Clears what quotas have counted.

use crate::db::conn::connection::Conn;
use crate::db::table::quotas;
use diesel::prelude::*;
use std::time::Duration;

/// How long the slots of a quota are kept that is not used.
const UNUSED: Duration = Duration::from_secs(7 * 24 * 3600);

/// Deletes up to `batch` slots of quotas that are not used any more, and gives back the places of as
/// many jobs that do not wait any more. Returns how many rows were deleted. It waits for no
/// transaction that enqueues.
pub(crate) fn clear(conn: &mut Conn<'_>, batch: usize) -> QueryResult<usize> {
    let batch = i64::try_from(batch).unwrap_or(i64::MAX);
    conn.transaction(|conn| {
        let deleted = quotas::clear(conn, UNUSED, batch)?;
        Ok(deleted + quotas::free(conn, None, batch)?)
    })
}
