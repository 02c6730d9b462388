//! Ends retries that would come too late.

use crate::db::conn::connection::Conn;
use crate::db::conn::sql::{Id, micros, timestamp};
use crate::db::conn::statement::Statement;
use crate::db::model::outcome::{ClaimEnd, Ending};
use chrono::NaiveDateTime;
use diesel::prelude::*;
use std::collections::HashSet;

/// Returns the claims whose next attempt would be due after the last time for one, by the database's
/// clock. Only retries with a limit cost a statement.
pub(crate) fn too_late(conn: &mut Conn<'_>, ends: &[ClaimEnd<'_>]) -> QueryResult<HashSet<i64>> {
    let limited: Vec<(i64, i64, String)> = ends
        .iter()
        .filter_map(|end| match (end.ending, end.last_retry) {
            (Ending::Retry(_, delay), Some(last)) => {
                Some((end.claim_id, micros(*delay), timestamp(last)))
            }
            _ => None,
        })
        .collect();
    if limited.is_empty() {
        return Ok(HashSet::new());
    }
    let rows = serde_json::to_string(&limited)
        .map_err(|error| diesel::result::Error::SerializationError(Box::new(error)))?;
    let text = "SELECT CAST(value ->> 0 AS bigint) AS id FROM {rows $1} \
         WHERE {later CAST(value ->> 1 AS bigint)} > {time (value ->> 2)}";
    let late: Vec<Id> = Statement::new(text).unkept().bind(&rows).load(conn)?;
    Ok(late.into_iter().map(|row| row.id).collect())
}

/// Returns the ending of a job that may not be retried any more.
pub(crate) fn final_ending(ending: &Ending) -> Ending {
    match ending {
        Ending::Retry(failure, _) => Ending::Fail(failure.clone()),
        other => other.clone(),
    }
}

/// Returns an ending, or the failure of a retry that would come too late.
pub(crate) fn limited(
    conn: &mut Conn<'_>,
    ending: &Ending,
    last_retry: Option<NaiveDateTime>,
) -> QueryResult<Ending> {
    let end = ClaimEnd {
        claim_id: 0,
        ending,
        ran: std::time::Duration::ZERO,
        last_retry,
    };
    Ok(if too_late(conn, &[end])?.is_empty() {
        ending.clone()
    } else {
        final_ending(ending)
    })
}
