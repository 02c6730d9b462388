//! The jobs that processes hold, oldest first.

use crate::db::conn::connection::{Conn, age};
use crate::db::conn::dialect::Lossy;
use crate::db::conn::statement::Statement;
use crate::db::query::load::bounded::MOST;
use crate::db::table::progress::Note;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Bool, Double, Nullable, Text};
use std::collections::BTreeMap;

/// A job that a process holds.
#[derive(Debug, Clone)]
pub(crate) struct HeldJob {
    pub(crate) job_id: i64,
    pub(crate) class_name: String,
    pub(crate) queue_name: String,
    pub(crate) process_id: Option<i64>,
    /// Seconds since it started, or since it was claimed.
    pub(crate) seconds: f64,
    /// Whether it was claimed ahead of a free thread, and has not started.
    pub(crate) is_ahead: bool,
    /// What the process has noted about it.
    pub(crate) note: Note,
}

#[derive(QueryableByName)]
struct HeldRunRow {
    #[diesel(sql_type = BigInt)]
    job_id: i64,
    #[diesel(sql_type = Text, deserialize_as = Lossy)]
    class_name: String,
    #[diesel(sql_type = Text, deserialize_as = Lossy)]
    queue_name: String,
    #[diesel(sql_type = Nullable<BigInt>)]
    process_id: Option<i64>,
    #[diesel(sql_type = Double)]
    seconds: f64,
    #[diesel(sql_type = Bool)]
    is_ahead: bool,
    #[diesel(sql_type = Nullable<Text>)]
    note: Option<String>,
}

/// Returns the jobs that were claimed first, in that order.
pub(crate) fn oldest(conn: &mut Conn<'_>, limit: i64) -> QueryResult<Vec<HeldJob>> {
    // The claims of a job are never many; the sort is one of those read.
    let of_job = |column: &str| {
        format!(
            "coalesce((SELECT j.{column} FROM solid_queue_jobs j WHERE j.id = held.job_id), '') AS {column}"
        )
    };
    let text = format!(
        "WITH held AS MATERIALIZED (SELECT id, job_id, process_id, coalesce(started_at, created_at) AS since, \
           coalesce(prefetched, false) AND started_at IS NULL AS is_ahead, note \
           FROM solid_queue_claimed_executions WHERE id > 0 ORDER BY id LIMIT $1) \
         SELECT job_id, {}, {}, process_id, coalesce({}, 0) AS seconds, is_ahead, note FROM held ORDER BY id",
        of_job("class_name"),
        of_job("queue_name"),
        age(conn, "since"),
    );
    let rows: Vec<HeldRunRow> = Statement::new(text).bind(limit).load(conn)?;
    let jobs = rows.into_iter().map(|row| HeldJob {
        job_id: row.job_id,
        class_name: row.class_name,
        queue_name: row.queue_name,
        process_id: row.process_id,
        seconds: row.seconds,
        is_ahead: row.is_ahead,
        note: Note::of_column(row.note.as_deref()),
    });
    Ok(jobs.collect())
}

#[derive(QueryableByName)]
struct HeldCount {
    #[diesel(sql_type = BigInt)]
    process_id: i64,
    #[diesel(sql_type = BigInt)]
    running: i64,
    #[diesel(sql_type = BigInt)]
    ahead: i64,
}

/// Returns how many jobs each process runs, and how many it has claimed ahead, by its id; of the
/// 10,000 that were claimed first.
pub(crate) fn held_by_process(conn: &mut Conn<'_>) -> QueryResult<BTreeMap<i64, (u64, u64)>> {
    let text = format!(
        "SELECT process_id, count(*) - count(ahead) AS running, count(ahead) AS ahead FROM ( \
           SELECT coalesce(process_id, 0) AS process_id, \
             CASE WHEN prefetched AND started_at IS NULL THEN 1 END AS ahead \
           FROM solid_queue_claimed_executions WHERE id > 0 ORDER BY id LIMIT {MOST}) AS held GROUP BY process_id"
    );
    let rows: Vec<HeldCount> = Statement::new(text).load(conn)?;
    let count = |rows| u64::try_from(rows).unwrap_or(0);
    let counts = rows
        .into_iter()
        .map(|row| (row.process_id, (count(row.running), count(row.ahead))));
    Ok(counts.collect())
}
