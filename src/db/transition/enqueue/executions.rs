//! Inserts the first executions of new jobs: ready, scheduled or blocked.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::{Execution, id_list, job_ids};
use crate::db::conn::statement::Statement;
use crate::db::model::job_columns::JobColumns;
use crate::db::model::new_row::NewRow;
use crate::db::table::blocked;
use crate::db::table::flows::edges;
use diesel::QueryResult;

/// A job that has its id.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NewEntry<'r> {
    pub(crate) id: i64,
    pub(crate) row: &'r NewRow,
    /// True if it waits for the end of the job that holds its unique id.
    pub(crate) is_behind: bool,
}

impl NewEntry<'_> {
    pub(crate) fn is_blocked(&self) -> bool {
        self.is_behind || self.row.is_dependent()
    }
}

// --- Postgres: parts of the statement that inserts the jobs ---

/// The columns of inserted jobs that [`due_cte`] and [`later_cte`] read.
pub(crate) const RETURNING: &str =
    "id, queue_name, priority, class_name, at_most_once, crash_count, max_crashes, scheduled_at";

/// Returns the CTE that makes the new jobs of `job` ready, all due, from the parameters that they have in common.
pub(crate) fn fresh_cte(columns: &JobColumns) -> String {
    let [queue, priority, class] =
        ["queue_name", "priority", "class_name"].map(|name| columns.parameter(name));
    let cautious = match columns.contain("at_most_once") {
        true => format!(
            "{} OR coalesce({} = 0, false)",
            columns.parameter("at_most_once"),
            columns.parameter("max_crashes")
        ),
        false => "false".to_owned(),
    };
    format!(
        "ready AS (INSERT INTO solid_queue_ready_executions (job_id, queue_name, priority, class_name, cautious, created_at) \
           SELECT id, {queue}, {priority}, {class}, {cautious}, {{now}} FROM job)"
    )
}

/// Returns the CTE that makes those of the jobs ready that are due. `jobs` may end with a condition and `AND`.
pub(crate) fn due_cte(name: &str, jobs: &str) -> String {
    let jobs = match jobs.ends_with("AND") {
        true => jobs.to_owned(),
        false => format!("{jobs} WHERE"),
    };
    format!(
        "{name} AS (INSERT INTO solid_queue_ready_executions (job_id, queue_name, priority, class_name, cautious, created_at) \
           SELECT id, queue_name, priority, class_name, {{cautious}}, {{now}} FROM {jobs} \
           (scheduled_at IS NULL OR scheduled_at <= {{now}}) RETURNING 1)"
    )
}

/// Returns the CTE that schedules those of the jobs that are not due.
pub(crate) fn later_cte(jobs: &str) -> String {
    format!(
        "later AS (INSERT INTO solid_queue_scheduled_executions (job_id, queue_name, priority, scheduled_at, created_at) \
           SELECT id, queue_name, priority, scheduled_at, {{now}} FROM {jobs} WHERE scheduled_at > {{now}})"
    )
}

// --- SQLite: statements of their own ---

/// Inserts the executions of new jobs, whose ids ascend: those that are free and have no limit are ready, the others
/// scheduled or blocked. `alike` is one of the jobs, if they differ in their names only.
pub(crate) fn insert_executions(
    conn: &mut Conn<'_>,
    entries: &[NewEntry<'_>],
    alike: Option<&NewRow>,
) -> QueryResult<()> {
    let ids = |which: fn(&NewEntry<'_>) -> bool| -> Vec<i64> {
        let entries = entries.iter().filter(|entry| which(entry));
        entries.map(|entry| entry.id).collect()
    };
    let behind = ids(|entry| entry.is_behind);
    if !behind.is_empty() {
        blocked::block(conn, &behind)?;
    }
    let waiting = ids(|entry| !entry.is_behind && entry.row.is_dependent());
    if !waiting.is_empty() {
        edges::block(conn, &waiting)?;
    }
    let has_time = |entry: &NewEntry<'_>| entry.row.at.is_some() || entry.row.delay.is_some();
    let mut later = Vec::new();
    if entries.iter().any(has_time) {
        later = insert_later(conn, &ids(|entry| !entry.is_blocked()))?;
    }
    let is_due = |id: &i64| later.binary_search(id).is_err();
    let mut due = ids(|entry| !entry.is_blocked() && !entry.row.is_gated());
    due.retain(is_due);
    if !due.is_empty() {
        insert_due(conn, &due, alike)?;
    }
    let mut limited = ids(|entry| !entry.is_blocked() && entry.row.is_gated());
    limited.retain(is_due);
    if limited.is_empty() {
        return Ok(());
    }
    blocked::insert_blocked(conn, &limited)
}

/// Makes new jobs ready, whose ids ascend. The values of jobs that are `alike` are passed, which saves the read of each.
pub(crate) fn insert_due(
    conn: &mut Conn<'_>,
    jobs: &[i64],
    alike: Option<&NewRow>,
) -> QueryResult<()> {
    const READY: &str = "INSERT INTO solid_queue_ready_executions \
         (job_id, queue_name, priority, class_name, cautious, created_at) SELECT id";
    const OWN: &str =
        "queue_name, priority, class_name, {cautious}, created_at FROM solid_queue_jobs";
    const PASSED: &str = "$3, $4, $5, $6, {now} FROM solid_queue_jobs";
    let statement = match (range(jobs), alike) {
        (Some((first, last)), Some(row)) => {
            let text = format!("{READY}, {PASSED} WHERE id BETWEEN $1 AND $2 ORDER BY id");
            let statement = Statement::new(text).bind(first).bind(last);
            let statement = statement.bind(&row.queue_name).bind(row.priority);
            statement.bind(&row.class_name).bind(row.is_cautious())
        }
        (Some((first, last)), None) => {
            let text = format!("{READY}, {OWN} WHERE id BETWEEN $1 AND $2 ORDER BY id");
            Statement::new(text).bind(first).bind(last)
        }
        (None, _) => {
            let text = format!("{READY}, {OWN} WHERE id IN {{in $1}} ORDER BY id");
            Statement::new(text).bind(id_list(jobs))
        }
    };
    statement.execute(conn)
}

/// Returns the first and the last of ascending ids, if no id between them is missing.
fn range(ids: &[i64]) -> Option<(i64, i64)> {
    let (first, last) = (*ids.first()?, *ids.last()?);
    let count = i64::try_from(ids.len()).ok()?;
    (last - first == count - 1).then_some((first, last))
}

/// Schedules those of the new jobs that are not due. Returns these, ascending.
pub(crate) fn insert_later(conn: &mut Conn<'_>, jobs: &[i64]) -> QueryResult<Vec<i64>> {
    let text = "INSERT INTO solid_queue_scheduled_executions (job_id, queue_name, priority, scheduled_at, created_at) \
         SELECT id, queue_name, priority, scheduled_at, created_at FROM solid_queue_jobs \
         WHERE id IN {in $1} AND scheduled_at > created_at ORDER BY id RETURNING job_id";
    let rows: Vec<Execution> = Statement::new(text).bind(id_list(jobs)).load(conn)?;
    let mut later = job_ids(rows);
    later.sort_unstable();
    Ok(later)
}
