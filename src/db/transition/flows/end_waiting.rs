//! The end of jobs that had not started.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::id_list;
use crate::db::conn::statement::Statement;
use crate::db::model::claim::FinishedRow;
use crate::db::model::outcome::{AttemptOutcome, JobFailure, NewResult, ResultOutcome};
use crate::db::table::flows::waits;
use crate::db::table::jobs::{self, EndedJob};
use crate::db::table::{attempts, results, steps};
use crate::db::transition::flows::leave::leave;
use crate::db::transition::unique::unblock;
use diesel::prelude::*;

/// Ends jobs that had not started, and whose execution was just deleted. Returns them.
pub(crate) fn end_waiting(
    conn: &mut Conn<'_>,
    ids: &[i64],
    attempt: AttemptOutcome,
    result: ResultOutcome,
    failure: &JobFailure,
) -> QueryResult<Vec<EndedJob>> {
    let text =
        "UPDATE solid_queue_jobs SET finished_at = {now}, updated_at = {now} WHERE id IN {in $1}";
    Statement::new(text).bind(id_list(ids)).execute(conn)?;
    attempts::insert_waiting(conn, ids, attempt, failure)?;
    let rows = jobs::ended(conn, ids)?;
    let error = failure.in_words();
    let new: Vec<NewResult<'_>> = rows
        .iter()
        .filter_map(|job| job.result(result, &error, 0, FinishedRow::Keep))
        .collect();
    results::insert(conn, &new)?;
    results::wake(conn, ids)?;
    let named = rows.iter().filter(|job| job.unique_id.is_some());
    let named: Vec<i64> = named.map(|job| job.id).collect();
    if !named.is_empty() {
        unblock::unblock(conn, &named)?;
    }
    steps::remove(conn, ids)?;
    waits::delete(conn, ids)?;
    let members = rows.iter().filter(|job| job.batch_id.is_some());
    let members: Vec<i64> = members.map(|job| job.id).collect();
    let unsuccessful = result.is_unsuccessful();
    let failed = if unsuccessful { &members[..] } else { &[] };
    leave(conn, &members, failed)?;
    Ok(rows)
}
