//! The recurring tasks, a page at a time, and their last ticks.

use chrono::NaiveDateTime;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Double, Nullable, Text, Timestamp};
use windlass::Conn;
use windlass::database::Dialect;
use windlass::internal::db::conn::connection::age;
use windlass::internal::db::conn::dialect::Lossy;
use windlass::internal::db::conn::statement::Statement;
use windlass::internal::db::model::recurring::RecurringTaskRow;
use windlass::internal::db::query::ready::{CappedCount, MOST};
use windlass::internal::db::table::recurring_tasks::{columns, is_undeclared};

/// Returns a page of the tasks of Windlass after a key, by key: one more than `limit` if there are
/// more.
pub(crate) fn page(
    conn: &mut Conn<'_>,
    after: &str,
    limit: i64,
) -> QueryResult<Vec<RecurringTaskRow>> {
    let text = format!(
        "SELECT {} FROM solid_queue_recurring_tasks WHERE key > $1 AND next_run_at IS NOT NULL \
         ORDER BY key LIMIT $2",
        columns(conn)
    );
    Statement::new(text).bind(after).bind(limit + 1).load(conn)
}

/// The numbers of all tasks and of the paused ones.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct TaskTotals {
    pub(crate) known: CappedCount,
    pub(crate) paused: CappedCount,
}

#[derive(QueryableByName)]
struct TaskTotalsRow {
    #[diesel(sql_type = BigInt)]
    known: i64,
    #[diesel(sql_type = BigInt)]
    paused: i64,
}

/// Counts the tasks of Windlass.
pub(crate) fn totals(conn: &mut Conn<'_>) -> QueryResult<TaskTotals> {
    let text = format!(
        "SELECT count(*) AS known, count(paused_at) AS paused FROM (SELECT paused_at FROM solid_queue_recurring_tasks \
         WHERE next_run_at IS NOT NULL LIMIT {}) AS tasks",
        MOST + 1
    );
    let row: TaskTotalsRow = Statement::new(text).get_result(conn)?;
    let known = CappedCount::of(row.known, MOST);
    Ok(TaskTotals {
        known,
        paused: CappedCount::part(row.paused, known.is_more),
    })
}

/// A task that has been due for a while, and was not fired.
#[derive(Debug, QueryableByName)]
pub(crate) struct OverdueTask {
    #[diesel(sql_type = Text, deserialize_as = Lossy)]
    pub(crate) key: String,
    #[diesel(sql_type = Double)]
    pub(crate) seconds: f64,
    /// The time at which it was due.
    #[diesel(sql_type = Nullable<Timestamp>)]
    pub(crate) due_at: Option<NaiveDateTime>,
}

/// Returns the tasks that have been due for at least `late` seconds, the one that has been due for
/// longest first. Not those that no scheduler declares any more.
pub(crate) fn overdue(conn: &mut Conn<'_>, late: u32, limit: i64) -> QueryResult<Vec<OverdueTask>> {
    let text = format!(
        "WITH due AS MATERIALIZED (SELECT key, next_run_at FROM solid_queue_recurring_tasks \
           WHERE next_run_at <= {{later $1}} AND paused_at IS NULL AND NOT {} ORDER BY next_run_at LIMIT $2) \
         SELECT key, coalesce({}, 0) AS seconds, {{moment next_run_at}} AS due_at FROM due ORDER BY next_run_at, key",
        is_undeclared(conn),
        age(conn, "next_run_at")
    );
    Statement::new(text)
        .bind(-1_000_000 * i64::from(late))
        .bind(limit)
        .load(conn)
}

/// A tick, its task, its job, and the name of its job's state.
#[derive(Debug, QueryableByName)]
pub(crate) struct TickOfTask {
    #[diesel(sql_type = Text, deserialize_as = Lossy)]
    pub(crate) key: String,
    #[diesel(sql_type = Nullable<Timestamp>)]
    pub(crate) run_at: Option<NaiveDateTime>,
    #[diesel(sql_type = BigInt)]
    pub(crate) job_id: i64,
    #[diesel(sql_type = Text)]
    pub(crate) state: String,
    #[diesel(sql_type = Nullable<Timestamp>)]
    pub(crate) finished_at: Option<NaiveDateTime>,
    /// Seconds since it entered its state, if it has not finished.
    #[diesel(sql_type = Nullable<Double>)]
    pub(crate) seconds: Option<f64>,
}

/// Returns the newest ticks of each of these tasks that had a job, oldest first.
pub(crate) fn ticks(
    conn: &mut Conn<'_>,
    keys: &[&str],
    count: i64,
) -> QueryResult<Vec<TickOfTask>> {
    if keys.is_empty() {
        return Ok(Vec::new());
    }
    let states = ["claimed", "scheduled", "blocked", "ready", "failed"];
    // For EXISTS, Postgres may read the whole table once, instead of looking each job up.
    let state = states.map(|state| {
        format!(
            "WHEN (SELECT 1 FROM solid_queue_{state}_executions x WHERE x.job_id = newest.job_id) = 1 THEN '{state}'"
        )
    });
    let since = |state: &str| {
        format!(
            "(SELECT x.created_at FROM solid_queue_{state}_executions x WHERE x.job_id = newest.job_id)"
        )
    };
    let own = "SELECT own.id, own.task_key, own.run_at, own.job_id FROM solid_queue_recurring_executions own \
         WHERE own.task_key = named.key ORDER BY own.run_at DESC LIMIT $2";
    let of_task = match conn.dialect() {
        Dialect::Postgres => format!("CROSS JOIN LATERAL ({own}) AS e"),
        Dialect::Sqlite => format!(
            "CROSS JOIN solid_queue_recurring_executions e WHERE e.id IN (SELECT id FROM ({own}) AS own)"
        ),
    };
    let text = format!(
        "WITH newest AS MATERIALIZED (SELECT e.task_key, e.run_at, e.job_id, \
           (SELECT j.finished_at FROM solid_queue_jobs j WHERE j.id = e.job_id) AS finished_at \
           FROM (SELECT value ->> 0 AS key FROM {{rows $1}}) AS named {of_task}), \
         states AS MATERIALIZED (SELECT task_key, run_at, job_id, finished_at, \
           CASE WHEN finished_at IS NULL THEN coalesce({}, {}) END AS since, CASE {} \
           ELSE coalesce((SELECT a.outcome FROM windlass_attempts a WHERE a.job_id = newest.job_id \
             AND coalesce(a.outcome, '') IN ('cancelled', 'discarded') ORDER BY a.id DESC LIMIT 1), 'finished') END AS state \
           FROM newest) \
         SELECT task_key AS key, {{moment run_at}} AS run_at, job_id, state, {{moment finished_at}} AS finished_at, \
         {} AS seconds FROM states ORDER BY task_key, run_at",
        since("claimed"),
        since("failed"),
        state.join(" "),
        age(conn, "since"),
    );
    let named: Vec<[&str; 1]> = keys.iter().map(|key| [*key]).collect();
    let named = serde_json::to_string(&named).unwrap_or_default();
    Statement::new(text).bind(named).bind(count).load(conn)
}
