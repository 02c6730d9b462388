//! The ready jobs of each queue, counted up to a limit.

use crate::db::conn::connection::{Conn, age};
use crate::db::conn::dialect::Lossy;
use crate::db::conn::statement::Statement;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Double, Nullable, Text};
use std::collections::BTreeMap;

/// The most queues that are read.
pub const MOST_QUEUES: i64 = 500;

/// The first count of each queue stops here, so that many queues cost little.
const FIRST_COUNT: i64 = 1_000;

/// The rows that are counted in addition, over all queues that have more.
const COUNTED: i64 = 20_000;

/// The priorities of a queue that are looked at for its oldest job.
const PRIORITIES: u32 = 32;

/// The ready jobs of a queue.
#[doc(hidden)]
#[derive(Debug, Clone, PartialEq)]
pub struct ReadyJobs {
    pub queue_name: String,
    pub ready: CappedCount,
    /// Seconds since the oldest of them became ready.
    pub oldest_seconds: Option<f64>,
}

#[derive(QueryableByName)]
struct ReadyRow {
    #[diesel(sql_type = Text, deserialize_as = Lossy)]
    queue_name: String,
    #[diesel(sql_type = BigInt)]
    ready: i64,
    #[diesel(sql_type = Nullable<Double>)]
    oldest_seconds: Option<f64>,
}

/// Returns an expression for the time since when the oldest ready job of the queue `name` has been
/// ready, as far as the first rows of its priorities show it.
///
/// There is no index by time. Within a priority, older jobs have smaller ids, except for those that
/// were scheduled or have failed before: therefore 20 rows are read, not one.
fn oldest_of(name: &str) -> String {
    let ready = "solid_queue_ready_executions";
    format!(
        "(WITH RECURSIVE priorities(priority, place) AS ( \
           SELECT min(r.priority), 1 FROM {ready} r WHERE r.queue_name = {name} \
           UNION ALL SELECT (SELECT min(r.priority) FROM {ready} r WHERE r.queue_name = {name} \
             AND r.priority > priorities.priority), place + 1 \
           FROM priorities WHERE priorities.priority IS NOT NULL AND place < {PRIORITIES}) \
         SELECT min((SELECT min(oldest.created_at) FROM (SELECT r.created_at FROM {ready} r \
           WHERE r.queue_name = {name} AND r.priority = priorities.priority ORDER BY r.job_id LIMIT 20) AS oldest)) \
         FROM priorities)"
    )
}

/// Returns the rows that became ready first, over all queues: for the queues in it, the oldest is
/// exact.
fn front() -> &'static str {
    "front AS MATERIALIZED (SELECT queue_name, min(created_at) AS oldest FROM ( \
       SELECT queue_name, created_at FROM solid_queue_ready_executions WHERE id > 0 ORDER BY id LIMIT 1000) AS first_rows \
     GROUP BY queue_name)"
}

/// Counts in the order of the index: otherwise Postgres may read the whole table.
fn count_of(name: &str, limit: &str) -> String {
    format!(
        "(SELECT count(*) FROM (SELECT 1 FROM solid_queue_ready_executions r \
         WHERE r.queue_name = {name} ORDER BY r.priority, r.job_id LIMIT {limit}) AS counted)"
    )
}

/// Returns the queues with ready jobs: up to 500, by name, with one more if there are more.
pub fn ready(conn: &mut Conn<'_>) -> QueryResult<Vec<ReadyJobs>> {
    let walk = format!(
        "WITH RECURSIVE walk(queue_name, place) AS ( \
           SELECT min(queue_name), 1 FROM solid_queue_ready_executions \
           UNION ALL \
           SELECT (SELECT min(r.queue_name) FROM solid_queue_ready_executions r WHERE r.queue_name > walk.queue_name), \
             place + 1 FROM walk WHERE walk.queue_name IS NOT NULL AND place <= {MOST_QUEUES})"
    );
    let source = "FROM walk WHERE walk.queue_name IS NOT NULL";
    let limit = (FIRST_COUNT + 1).to_string();
    let text = statement(conn, &walk, "walk.queue_name", source, &limit);
    let rows: Vec<ReadyRow> = Statement::new(text).load(conn)?;
    let full: Vec<&str> = rows
        .iter()
        .filter(|row| row.ready > FIRST_COUNT)
        .map(|row| row.queue_name.as_str())
        .collect();
    let limit = (COUNTED / (full.len().max(1) as i64)).clamp(FIRST_COUNT, MOST);
    let counts = count_further(conn, &full, limit)?;
    let queues = rows.into_iter().map(|row| ReadyJobs {
        ready: match counts.get(&row.queue_name) {
            Some(count) => CappedCount::of(*count, limit),
            None => CappedCount::of(row.ready, FIRST_COUNT),
        },
        oldest_seconds: row.oldest_seconds.filter(|_| row.ready > 0),
        queue_name: row.queue_name,
    });
    Ok(queues.collect())
}

/// Returns the ready jobs of one queue.
pub fn ready_of(conn: &mut Conn<'_>, queue: &str) -> QueryResult<ReadyJobs> {
    let one = "WITH one AS (SELECT CAST($1 AS text) AS queue_name)";
    let limit = (MOST + 1).to_string();
    let text = statement(conn, one, "one.queue_name", "FROM one", &limit);
    let row: ReadyRow = Statement::new(text).bind(queue).get_result(conn)?;
    Ok(ReadyJobs {
        queue_name: queue.to_owned(),
        ready: CappedCount::of(row.ready, MOST),
        oldest_seconds: row.oldest_seconds.filter(|_| row.ready > 0),
    })
}

/// Returns the statement that counts the queues of a source, and looks for their oldest jobs.
fn statement(conn: &Conn<'_>, with: &str, name: &str, source: &str, limit: &str) -> String {
    format!(
        "{with}, {}, heads AS MATERIALIZED (SELECT {name} AS queue_name, {} AS ready, {} AS oldest {source}), \
         ages AS MATERIALIZED (SELECT heads.queue_name, heads.ready, \
           CASE WHEN heads.oldest IS NULL OR front.oldest < heads.oldest THEN front.oldest ELSE heads.oldest END AS oldest \
           FROM heads LEFT JOIN front ON front.queue_name = heads.queue_name) \
         SELECT queue_name, ready, {} AS oldest_seconds FROM ages ORDER BY queue_name",
        front(),
        count_of(name, limit),
        oldest_of(name),
        age(conn, "oldest"),
    )
}

fn count_further(
    conn: &mut Conn<'_>,
    queues: &[&str],
    limit: i64,
) -> QueryResult<BTreeMap<String, i64>> {
    if queues.is_empty() {
        return Ok(BTreeMap::new());
    }
    let text = format!(
        "SELECT named.queue_name, {} AS jobs FROM (SELECT value ->> 0 AS queue_name FROM {{rows $1}}) AS named",
        count_of("named.queue_name", "$2")
    );
    let named: Vec<[&str; 1]> = queues.iter().map(|queue| [*queue]).collect();
    let named = serde_json::to_string(&named).unwrap_or_default();
    let rows: Vec<QueueCountRow> = Statement::new(text)
        .bind(named)
        .bind(limit + 1)
        .load(conn)?;
    Ok(rows.into_iter().map(QueueCountRow::pair).collect())
}

#[derive(QueryableByName)]
struct QueueCountRow {
    #[diesel(sql_type = Text, deserialize_as = Lossy)]
    queue_name: String,
    #[diesel(sql_type = BigInt)]
    jobs: i64,
}

impl QueueCountRow {
    fn pair(self) -> (String, i64) {
        (self.queue_name, self.jobs)
    }
}

// --- Counts that stop at a limit ---

/// The limit of a count.
pub const MOST: i64 = 10_000;

/// A count that stops at a limit: exact, or the limit if there are more.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CappedCount {
    pub count: u64,
    /// True if there are more.
    pub is_more: bool,
}

impl CappedCount {
    /// Returns the count of up to `limit` rows and one.
    pub fn of(rows: i64, limit: i64) -> Self {
        CappedCount {
            count: u64::try_from(rows.min(limit)).unwrap_or(0),
            is_more: rows > limit,
        }
    }

    /// Returns the count of those rows of a table that have something, if not all were read.
    pub fn part(rows: i64, is_more: bool) -> Self {
        CappedCount {
            count: u64::try_from(rows).unwrap_or(0),
            is_more,
        }
    }

    #[doc(hidden)]
    pub fn plus(self, other: CappedCount) -> Self {
        CappedCount {
            count: self.count + other.count,
            is_more: self.is_more || other.is_more,
        }
    }

    #[doc(hidden)]
    pub fn is_zero(self) -> bool {
        self.count == 0
    }
}
