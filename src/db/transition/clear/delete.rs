//! Deletes jobs with their other rows.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::{Dialect, Id, IdRange, id_list};
use crate::db::conn::statement::Statement;
use crate::db::table::flows::parents::IS_NOTED;
use crate::db::transition::unique::forget;
use diesel::prelude::*;
use diesel::sql_types::Bool;

/// Deletes finished jobs. Rows that another supervisor has locked are left to it, and those of which others do not know the
/// end yet to the next time.
pub(crate) fn delete_finished(conn: &mut Conn<'_>, due: &[i64]) -> QueryResult<usize> {
    match conn.dialect() {
        Dialect::Postgres => lock_and_delete(conn, due),
        // No other connection writes during the transaction.
        Dialect::Sqlite => {
            let chosen = JobSelection::of(due);
            let text = format!(
                "SELECT id FROM solid_queue_jobs WHERE {} AND {IS_NOTED} ORDER BY id",
                chosen.condition("id")
            );
            let noted: Vec<Id> = chosen.bind(Statement::new(text)).uncached().load(conn)?;
            let noted: Vec<i64> = noted.into_iter().map(|row| row.id).collect();
            delete(conn, &noted)
        }
    }
}

/// Locks finished jobs in order and deletes them. The locked rows are found by their place, not by
/// an index again.
fn lock_and_delete(conn: &mut Conn<'_>, due: &[i64]) -> QueryResult<usize> {
    let chosen = JobSelection::of(due);
    let text = format!(
        "WITH held AS MATERIALIZED (SELECT ctid AS spot FROM solid_queue_jobs \
           WHERE {} AND finished_at IS NOT NULL AND has_dependents IS NOT TRUE ORDER BY id FOR UPDATE SKIP LOCKED) \
         DELETE FROM solid_queue_jobs WHERE ctid = ANY (ARRAY(SELECT spot FROM held)) RETURNING id",
        chosen.condition("id"),
    );
    let gone: Vec<Id> = chosen.bind(Statement::new(text)).load(conn)?;
    let mut gone: Vec<i64> = gone.into_iter().map(|row| row.id).collect();
    if gone.len() < due.len() {
        gone.extend(delete_parents(conn, &chosen)?);
    }
    delete_traces(conn, &gone)?;
    Ok(gone.len())
}

/// Deletes those of the finished jobs that others wait for, or have waited for.
fn delete_parents(conn: &mut Conn<'_>, chosen: &JobSelection) -> QueryResult<Vec<i64>> {
    let text = format!(
        "SELECT id FROM solid_queue_jobs WHERE {} AND finished_at IS NOT NULL AND has_dependents \
         ORDER BY id FOR UPDATE SKIP LOCKED",
        chosen.condition("id"),
    );
    let locked: Vec<Id> = chosen.bind(Statement::new(text)).uncached().load(conn)?;
    if locked.is_empty() {
        return Ok(Vec::new());
    }
    let locked: Vec<i64> = locked.into_iter().map(|row| row.id).collect();
    // A statement of its own: it sees the edges that were committed before the locks were granted.
    let text =
        format!("DELETE FROM solid_queue_jobs WHERE id IN {{in $1}} AND {IS_NOTED} RETURNING id");
    let gone: Vec<Id> = Statement::new(text)
        .uncached()
        .bind(id_list(&locked))
        .load(conn)?;
    Ok(gone.into_iter().map(|row| row.id).collect())
}

/// Jobs by their ids: a range if these are consecutive, as in most cases, or else a list.
enum JobSelection {
    Range(IdRange),
    List(String),
}

impl JobSelection {
    fn of(jobs: &[i64]) -> Self {
        let are_consecutive = jobs
            .windows(2)
            .all(|pair| pair[0].checked_add(1) == Some(pair[1]));
        match (jobs.first(), jobs.last()) {
            (Some(&low), Some(&high)) if are_consecutive => JobSelection::Range(IdRange {
                after: low - 1,
                up_to: high,
            }),
            _ => JobSelection::List(id_list(jobs)),
        }
    }

    /// Returns a condition for a column; the ids are the first parameters.
    fn condition(&self, column: &str) -> String {
        match self {
            JobSelection::Range(_) => format!("{column} > $1 AND {column} <= $2"),
            JobSelection::List(_) => format!("{column} IN {{in $1}}"),
        }
    }

    fn bind<'v>(&'v self, statement: Statement<'v>) -> Statement<'v> {
        match self {
            JobSelection::Range(range) => statement.bind(range.after).bind(range.up_to),
            JobSelection::List(list) => statement.bind(list),
        }
    }
}

/// Deletes jobs, which the caller has locked, and their other rows. A result is kept until it
/// expires.
pub(crate) fn delete(conn: &mut Conn<'_>, jobs: &[i64]) -> QueryResult<usize> {
    if jobs.is_empty() {
        return Ok(0);
    }
    let chosen = JobSelection::of(jobs);
    let text = format!(
        "DELETE FROM solid_queue_jobs WHERE {}",
        chosen.condition("id")
    );
    let deleted = chosen.bind(Statement::new(text)).changes(conn)?;
    delete_traces(conn, jobs)?;
    Ok(deleted)
}

#[derive(QueryableByName)]
struct Traces {
    #[diesel(sql_type = Bool)]
    attempts: bool,
    #[diesel(sql_type = Bool)]
    logs: bool,
    #[diesel(sql_type = Bool)]
    steps: bool,
    #[diesel(sql_type = Bool)]
    unique_ids: bool,
}

/// Deletes the other rows of deleted jobs. Most have none, which one look at each table shows: the
/// ids are close together.
fn delete_traces(conn: &mut Conn<'_>, jobs: &[i64]) -> QueryResult<()> {
    let (Some(low), Some(high)) = (jobs.iter().min(), jobs.iter().max()) else {
        return Ok(());
    };
    let any = |table| format!("EXISTS (SELECT 1 FROM {table} WHERE job_id >= $1 AND job_id <= $2)");
    let text = format!(
        "SELECT {} AS attempts, {} AS logs, {} AS steps, {} AS unique_ids",
        any("windlass_attempts"),
        any("windlass_job_logs"),
        any("windlass_steps"),
        any("windlass_unique_jobs"),
    );
    let found: Traces = Statement::new(text).bind(low).bind(high).get_result(conn)?;
    let chosen = JobSelection::of(jobs);
    for (table, is_found) in [
        ("windlass_attempts", found.attempts),
        ("windlass_job_logs", found.logs),
        ("windlass_steps", found.steps),
    ] {
        if is_found {
            let text = format!("DELETE FROM {table} WHERE {}", chosen.condition("job_id"));
            chosen.bind(Statement::new(text)).uncached().execute(conn)?;
        }
    }
    if found.unique_ids {
        forget(conn, jobs)?;
    }
    Ok(())
}
