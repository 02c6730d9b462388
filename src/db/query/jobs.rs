//! Selecting jobs: for lists, for counts, and for changes in bulk.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::Dialect;
use crate::db::conn::sql::IdRange;
use crate::db::conn::sql::id_list;
use crate::db::conn::statement::Statement;
use crate::db::model::extras::Extras;
use crate::db::model::state::JobState;
use chrono::{DateTime, NaiveDateTime, Utc};
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Bool, Integer, Nullable, Text, Timestamp};
use serde::Serialize;

/// Which jobs to select; an empty filter selects all.
#[derive(Debug, Clone, Default)]
pub(crate) struct Filter {
    pub(crate) ids: Option<Vec<i64>>,
    pub(crate) class: Option<String>,
    pub(crate) queue: Option<String>,
    /// A part of the error of a failed job.
    pub(crate) error: Option<String>,
    /// All of these tags, as a JSON array.
    pub(crate) tags: Option<String>,
    /// At least one of these tags, as a JSON array.
    pub(crate) any_tag: Option<String>,
}

/// Returns the conditions for the tags of a job `j`, which are compared as decoded texts. The
/// parameters are `$5` and `$6`.
fn tagged(dialect: Dialect) -> String {
    let (of_job, wanted) = match dialect {
        // Other programs may have stored what is no JSON.
        Dialect::Postgres => (
            "SELECT own.tag FROM json_array_elements_text(CASE WHEN strpos(j.policy, '\"tags\":[') > 0 \
               THEN CAST(j.policy AS json) -> 'extras' -> 'tags' END) AS own (tag) WHERE own.tag IS NOT NULL",
            ["$5", "$6"].map(|tags| {
                format!("(SELECT tag FROM json_array_elements_text(CAST({tags} AS json)) AS named (tag)) AS wanted")
            }),
        ),
        Dialect::Sqlite => (
            "SELECT own.value FROM json_each(CASE WHEN json_valid(j.policy) THEN j.policy END, '$.extras.tags') AS own WHERE own.type = 'text'",
            ["$5", "$6"].map(|tags| format!("(SELECT value AS tag FROM json_each({tags})) AS wanted")),
        ),
    };
    let [all, any] = wanted;
    format!(
        "($5 IS NULL OR NOT EXISTS (SELECT 1 FROM {all} WHERE wanted.tag NOT IN ({of_job}))) \
         AND ($6 IS NULL OR EXISTS (SELECT 1 FROM {any} WHERE wanted.tag IN ({of_job})))"
    )
}

/// Returns the conditions on an execution `e` and its job `j`. The parameters are `$1` to `$6`.
fn conditions(conn: &Conn<'_>, state: JobState, filter: &Filter) -> String {
    // Named ids are looked up; any other way would read the whole table.
    let named = match filter.ids {
        Some(_) => "j.id IN {in $1}",
        None => "$1 IS NULL",
    };
    let contains = match (state, conn) {
        (JobState::Failed, _) => match conn.dialect() {
            Dialect::Postgres => "strpos(e.error, $4) > 0",
            Dialect::Sqlite => "instr(e.error, $4) > 0",
        },
        _ => "false",
    };
    let finished = match state {
        JobState::Finished => {
            " AND j.finished_at IS NOT NULL AND NOT EXISTS (SELECT 1 FROM windlass_attempts a \
             WHERE a.job_id = j.id AND a.outcome IN ('cancelled', 'discarded'))"
        }
        JobState::Cancelled => " AND j.finished_at IS NOT NULL AND e.outcome = 'cancelled'",
        JobState::Discarded => " AND j.finished_at IS NOT NULL AND e.outcome = 'discarded'",
        _ => "",
    };
    let tagged = tagged(conn.dialect());
    format!(
        "{named} AND ($2 IS NULL OR j.class_name = $2) \
         AND ($3 IS NULL OR j.queue_name = $3) AND ($4 IS NULL OR {contains}) \
         AND {tagged}{finished}"
    )
}

/// Returns the alias of an execution, or of a job without one, and its join with the job.
fn joined(state: JobState) -> String {
    match state {
        JobState::Finished => {
            "solid_queue_jobs e JOIN solid_queue_jobs j ON j.id = e.id".to_owned()
        }
        _ => format!(
            "{} e JOIN solid_queue_jobs j ON j.id = e.job_id",
            state.table()
        ),
    }
}

/// Returns the statement with the values of `$1` to `$6`.
fn filtered(text: String, filter: &Filter) -> Statement<'_> {
    Statement::new(text)
        .bind(filter.ids.as_deref().map(id_list))
        .bind(&filter.class)
        .bind(&filter.queue)
        .bind(&filter.error)
        .bind(&filter.tags)
        .bind(&filter.any_tag)
}

#[derive(QueryableByName)]
struct LastExecution {
    #[diesel(sql_type = Nullable<BigInt>)]
    last: Option<i64>,
}

/// Returns the last execution of a state: the end of a scan, so that jobs that move there meanwhile
/// are not found again.
pub(crate) fn last(conn: &mut Conn<'_>, state: JobState) -> QueryResult<i64> {
    let text = format!("SELECT max(id) AS last FROM {}", state.table());
    Statement::new(text)
        .get_result::<LastExecution>(conn)
        .map(|row| row.last.unwrap_or(0))
}

/// A job found by a scan.
#[derive(Debug, Clone, Copy, QueryableByName)]
pub(crate) struct ScannedJob {
    #[diesel(sql_type = BigInt)]
    pub(crate) execution_id: i64,
    #[diesel(sql_type = BigInt)]
    pub(crate) job_id: i64,
}

/// Returns the next jobs of a state whose executions are in the range, in their order.
pub(crate) fn next(
    conn: &mut Conn<'_>,
    state: JobState,
    filter: &Filter,
    range: IdRange,
    limit: usize,
) -> QueryResult<Vec<ScannedJob>> {
    let text = format!(
        "SELECT e.id AS execution_id, j.id AS job_id FROM {} WHERE {} AND e.id > $7 AND e.id <= $8 \
         ORDER BY e.id LIMIT $9",
        joined(state),
        conditions(conn, state, filter)
    );
    filtered(text, filter)
        .bind(range.after)
        .bind(range.up_to)
        .bind(limit as i64)
        .load(conn)
}

/// The number of jobs of a class and a queue in one state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, QueryableByName)]
#[non_exhaustive]
pub struct JobCount {
    /// Their class.
    #[diesel(sql_type = Text)]
    pub class_name: String,
    /// Their queue.
    #[diesel(sql_type = Text)]
    pub queue_name: String,
    /// Whether they may run at most once.
    #[diesel(sql_type = Bool)]
    pub at_most_once: bool,
    /// The number of jobs.
    #[diesel(sql_type = BigInt)]
    pub count: i64,
}

/// Counts the jobs of a state.
pub(crate) fn counts(
    conn: &mut Conn<'_>,
    state: JobState,
    filter: &Filter,
) -> QueryResult<Vec<JobCount>> {
    let text = format!(
        "SELECT j.class_name, j.queue_name, j.at_most_once, count(*) AS count FROM {} WHERE {} \
         GROUP BY j.class_name, j.queue_name, j.at_most_once ORDER BY j.class_name, j.queue_name",
        joined(state),
        conditions(conn, state, filter)
    );
    filtered(text, filter).load(conn)
}

/// A job in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct JobSummary {
    /// Its id.
    pub job_id: i64,
    /// Its class.
    pub class_name: String,
    /// Its queue.
    pub queue_name: String,
    /// A smaller number is more important.
    pub priority: i32,
    /// Its state.
    pub state: JobState,
    /// How many times it has run since it was enqueued or retried, including a current run.
    ///
    /// A run counts whether it succeeded, failed, was cancelled, or ended with the death of its
    /// process. Runs that were released by a stop, and those that snoozed, do not count.
    pub attempts: i32,
    /// When it was enqueued.
    pub created_at: DateTime<Utc>,
    /// When it entered its state; for a scheduled job, when it is due.
    pub at: DateTime<Utc>,
    /// Why it failed.
    pub error: Option<String>,
    /// Its tags.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
}

#[derive(QueryableByName)]
struct SummaryRow {
    #[diesel(sql_type = BigInt)]
    job_id: i64,
    #[diesel(sql_type = Text)]
    class_name: String,
    #[diesel(sql_type = Text)]
    queue_name: String,
    #[diesel(sql_type = Integer)]
    priority: i32,
    #[diesel(sql_type = BigInt)]
    attempts: i64,
    #[diesel(sql_type = Timestamp)]
    created_at: NaiveDateTime,
    #[diesel(sql_type = Timestamp)]
    at: NaiveDateTime,
    #[diesel(sql_type = Nullable<Text>)]
    error: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    policy: Option<String>,
}

/// Returns an expression for how many times a job `j` in this state has run. Rows of successful
/// jobs count neither the last attempt nor crashes, as that would cost every job a write: the
/// crashes since the last failure are looked up.
pub(crate) fn runs(state: JobState) -> &'static str {
    match state {
        JobState::Finished => {
            "(CAST(j.attempts AS bigint) + 1 + (SELECT count(*) FROM windlass_attempts a WHERE a.job_id = j.id \
             AND a.outcome = 'crashed' AND a.id > coalesce((SELECT max(l.id) FROM windlass_attempts l \
             WHERE l.job_id = j.id AND l.outcome = 'failed'), 0)))"
        }
        JobState::Claimed => "(CAST(j.attempts AS bigint) + j.crash_count + 1)",
        _ => "(CAST(j.attempts AS bigint) + j.crash_count)",
    }
}

/// Returns the jobs of a state: failed and finished ones newest first, all others in the order in
/// which they run.
pub(crate) fn list(
    conn: &mut Conn<'_>,
    state: JobState,
    filter: &Filter,
    limit: usize,
) -> QueryResult<Vec<JobSummary>> {
    let (at, order) = match state {
        JobState::Ready => ("e.created_at", "e.priority, e.job_id"),
        JobState::Scheduled => ("e.scheduled_at", "e.scheduled_at, e.priority, e.job_id"),
        JobState::Blocked => ("e.created_at", "e.priority, e.job_id"),
        JobState::Claimed => ("e.created_at", "e.id"),
        JobState::Failed => ("e.created_at", "e.id DESC"),
        JobState::Finished => ("e.finished_at", "e.id DESC"),
        JobState::Cancelled | JobState::Discarded => ("e.ended_at", "e.id DESC"),
    };
    let error = match state {
        JobState::Failed => "e.error",
        JobState::Cancelled | JobState::Discarded => "e.kind || ': ' || e.message",
        _ => "NULL",
    };
    let runs = runs(state);
    let text = format!(
        "SELECT j.id AS job_id, j.class_name, j.queue_name, j.priority, j.policy, {runs} AS attempts, \
         coalesce({{moment j.created_at}}, {{now}}) AS created_at, coalesce({{moment {at}}}, {{now}}) AS at, {error} AS error FROM {} WHERE {} ORDER BY {order} LIMIT $7",
        joined(state),
        conditions(conn, state, filter)
    );
    let rows: Vec<SummaryRow> = filtered(text, filter).bind(limit as i64).load(conn)?;
    let jobs = rows.into_iter().map(|row| JobSummary {
        job_id: row.job_id,
        class_name: row.class_name,
        queue_name: row.queue_name,
        priority: row.priority,
        state,
        attempts: i32::try_from(row.attempts).unwrap_or(i32::MAX),
        created_at: row.created_at.and_utc(),
        at: row.at.and_utc(),
        error: match state {
            JobState::Failed => row
                .error
                .map(|error| crate::db::model::outcome::in_words(&error)),
            _ => row.error,
        },
        tags: Extras::of_policy(row.policy.as_deref()).tags,
    });
    Ok(jobs.collect())
}
