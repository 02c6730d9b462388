//! Lists and counts of selected jobs.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::{Id, IdRange, MaybeId};
use crate::db::conn::statement::Statement;
use crate::db::model::decision::JobState;
use crate::db::model::extras::Extras;
use crate::db::query::filter::{Filter, conditions, joined};
use crate::db::table::failed::FailureRow;
use chrono::{DateTime, NaiveDateTime, Utc};
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Bool, Integer, Nullable, Text, Timestamp};
use serde::Serialize;

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
    /// True if they may run at most once.
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
    let wanted = conditions(conn.dialect(), state, filter);
    let text = format!(
        "SELECT j.class_name, j.queue_name, j.at_most_once, count(*) AS count FROM {} WHERE true{} \
         GROUP BY j.class_name, j.queue_name, j.at_most_once ORDER BY j.class_name, j.queue_name",
        joined(state),
        wanted.text
    );
    Statement::new(text).bind_all(wanted.params).load(conn)
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
    /// The number of its runs since it was enqueued or retried, including a current run.
    ///
    /// A run counts whether it succeeded, failed, was cancelled, or ended with the death of its
    /// process. Runs that were released by a stop, and those that snoozed, do not count.
    pub attempts: i32,
    /// The time of its enqueue.
    pub created_at: DateTime<Utc>,
    /// The time at which it entered its state; for a scheduled job, the time at which it is due.
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
pub(crate) fn list_jobs(
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
    let mut wanted = conditions(conn.dialect(), state, filter);
    let limit = wanted.param(limit as i64);
    let text = format!(
        "SELECT j.id AS job_id, j.class_name, j.queue_name, j.priority, j.policy, {runs} AS attempts, \
         coalesce({{moment j.created_at}}, {{now}}) AS created_at, coalesce({{moment {at}}}, {{now}}) AS at, {error} AS error FROM {} WHERE true{} ORDER BY {order} LIMIT {limit}",
        joined(state),
        wanted.text
    );
    let rows: Vec<SummaryRow> = Statement::new(text).bind_all(wanted.params).load(conn)?;
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

// --- Walks over selected jobs, and counts them up to a bound ---

/// Returns the last execution of a state: the end of a scan, so that jobs that move there meanwhile
/// are not found again.
pub(crate) fn last(conn: &mut Conn<'_>, state: JobState) -> QueryResult<i64> {
    let text = format!("SELECT max(id) AS id FROM {}", state.table());
    Statement::new(text)
        .get_result::<MaybeId>(conn)
        .map(|row| row.id.unwrap_or(0))
}

/// Returns the first execution of a state; 0 if there is none.
pub(crate) fn first(conn: &mut Conn<'_>, state: JobState) -> QueryResult<i64> {
    let text = format!("SELECT min(id) AS id FROM {}", state.table());
    Statement::new(text)
        .get_result::<MaybeId>(conn)
        .map(|row| row.id.unwrap_or(0))
}

/// A job that a search has found, with its key: its position in a list or a scan.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, QueryableByName)]
pub struct JobMatch {
    #[diesel(sql_type = BigInt)]
    pub key: i64,
    #[diesel(sql_type = BigInt)]
    pub job_id: i64,
}

/// One page of a scan.
#[derive(Debug)]
pub(crate) struct ScannedPage {
    /// In the order of their executions.
    pub(crate) jobs: Vec<i64>,
    /// The execution up to which it looked; `None` at the end of the scan.
    pub(crate) reached: Option<i64>,
}

/// The most executions that a page of a scan reads, whether their jobs are selected or not.
const WINDOW: i64 = 5_000;

/// Returns the next jobs of a state whose executions are in the range, in their order, at most
/// `limit`. It reads a bounded number of executions, so a page may have few jobs and still not be
/// the last.
pub(crate) fn next(
    conn: &mut Conn<'_>,
    state: JobState,
    filter: &Filter,
    range: IdRange,
    limit: usize,
) -> QueryResult<ScannedPage> {
    let end = match filter.part_of_group() {
        Some(group) if state == JobState::Failed => group_window(conn, group, range)?,
        _ if filter.has_index() => Some(range.up_to).filter(|end| *end > range.after),
        _ => window(conn, state, range)?,
    };
    let Some(end) = end else {
        return Ok(ScannedPage {
            jobs: Vec::new(),
            reached: None,
        });
    };
    let mut wanted = conditions(conn.dialect(), state, filter);
    wanted.add("e.id > ?", range.after);
    wanted.add("e.id <= ?", end);
    let most = wanted.param(limit as i64);
    let text = format!(
        "SELECT e.id AS key, j.id AS job_id FROM {} WHERE true{} ORDER BY e.id LIMIT {most}",
        joined(state),
        wanted.text
    );
    let found: Vec<JobMatch> = Statement::new(text).bind_all(wanted.params).load(conn)?;
    let is_full = found.len() >= limit;
    let last = found.last().filter(|_| is_full);
    let reached = last.map_or(end, |last| last.key);
    Ok(ScannedPage {
        jobs: found.iter().map(|found| found.job_id).collect(),
        reached: (reached < range.up_to).then_some(reached),
    })
}

/// Returns the last execution of a part of the range. `None` if it has none.
fn window(conn: &mut Conn<'_>, state: JobState, range: IdRange) -> QueryResult<Option<i64>> {
    let text = format!(
        "SELECT max(w.id) AS id FROM (SELECT id FROM {} WHERE id > $1 AND id <= $2 ORDER BY id LIMIT {WINDOW}) AS w",
        state.table()
    );
    let row: MaybeId = Statement::new(text)
        .bind(range.after)
        .bind(range.up_to)
        .get_result(conn)?;
    Ok(row.id)
}

/// Returns the last failure of a part of a group in the range. `None` if it has none.
fn group_window(conn: &mut Conn<'_>, group: &str, range: IdRange) -> QueryResult<Option<i64>> {
    let text = format!(
        "SELECT max(w.id) AS id FROM (SELECT id FROM solid_queue_failed_executions \
         WHERE fingerprint = $1 AND id > $2 AND id <= $3 ORDER BY id LIMIT {WINDOW}) AS w"
    );
    let row: MaybeId = Statement::new(text)
        .bind(group)
        .bind(range.after)
        .bind(range.up_to)
        .get_result(conn)?;
    Ok(row.id)
}

/// A count of jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CountedJobs {
    pub(crate) count: u64,
    /// True if there are no more.
    pub(crate) is_exact: bool,
}

/// The number of executions of a state that a count reads, the newest, if no index finds the jobs.
const COUNTED: i64 = 100_000;

/// Counts the jobs of a state up to `most`. If there are more executions than are read, it returns
/// how many are among the newest.
pub(crate) fn count(
    conn: &mut Conn<'_>,
    state: JobState,
    filter: &Filter,
    most: u64,
) -> QueryResult<CountedJobs> {
    if let (JobState::Ready, Some(queue)) = (state, filter.only_queue()) {
        return count_ready(conn, queue, most);
    }
    let before = match filter.has_index() {
        true => 0,
        false => before_newest(conn, state)?,
    };
    let mut wanted = conditions(conn.dialect(), state, filter);
    // Without a condition on the jobs, none of them is read.
    let rows = match wanted.text.contains("j.") {
        true => joined(state),
        false => format!("{} e", state.table()),
    };
    wanted.add("e.id > ?", before);
    let limit = wanted.param(i64::try_from(most).unwrap_or(i64::MAX).saturating_add(1));
    let text = format!(
        "SELECT count(*) AS id FROM (SELECT 1 AS one FROM {rows} WHERE true{} LIMIT {limit}) AS found",
        wanted.text
    );
    let row: Id = Statement::new(text)
        .bind_all(wanted.params)
        .get_result(conn)?;
    let all = counted(row.id, most);
    Ok(CountedJobs {
        is_exact: all.is_exact && before == 0,
        ..all
    })
}

/// Counts the ready jobs of a queue up to `most`, in the order of their index.
fn count_ready(conn: &mut Conn<'_>, queue: &str, most: u64) -> QueryResult<CountedJobs> {
    let text = "SELECT count(*) AS id FROM (SELECT 1 AS one FROM solid_queue_ready_executions e \
         WHERE e.queue_name = $1 ORDER BY e.priority, e.job_id LIMIT $2) AS found";
    let limit = i64::try_from(most).unwrap_or(i64::MAX).saturating_add(1);
    let row: Id = Statement::new(text)
        .bind(queue)
        .bind(limit)
        .get_result(conn)?;
    Ok(counted(row.id, most))
}

fn counted(rows: i64, most: u64) -> CountedJobs {
    let count = u64::try_from(rows).unwrap_or(0);
    CountedJobs {
        count: count.min(most),
        is_exact: count <= most,
    }
}

/// Returns the execution before the newest that a count reads; 0 if it reads all.
fn before_newest(conn: &mut Conn<'_>, state: JobState) -> QueryResult<i64> {
    let text = format!(
        "SELECT id FROM {} ORDER BY id DESC LIMIT 1 OFFSET {COUNTED}",
        state.table()
    );
    let row: Option<Id> = Statement::new(text).get_result(conn).optional()?;
    Ok(row.map_or(0, |row| row.id))
}

// --- Failed jobs, grouped by their fingerprints ---

/// The first and the last failure with a fingerprint.
#[derive(Debug, Clone, QueryableByName)]
pub(crate) struct KnownFingerprint {
    #[diesel(sql_type = Text)]
    pub(crate) fingerprint: String,
    #[diesel(sql_type = BigInt)]
    pub(crate) first_id: i64,
    #[diesel(sql_type = BigInt)]
    pub(crate) last_id: i64,
}

/// Returns the first fingerprints of all, at most `limit`, in no useful order. Each is found by some looks
/// at the index, however many failures it has.
pub(crate) fn fingerprints(
    conn: &mut Conn<'_>,
    limit: usize,
) -> QueryResult<Vec<KnownFingerprint>> {
    let text = "WITH RECURSIVE known AS (SELECT min(fingerprint) AS fingerprint FROM solid_queue_failed_executions \
           UNION ALL SELECT (SELECT min(f.fingerprint) FROM solid_queue_failed_executions f \
             WHERE f.fingerprint > known.fingerprint) FROM known WHERE known.fingerprint IS NOT NULL) \
         SELECT k.fingerprint, \
           (SELECT min(a.id) FROM solid_queue_failed_executions a WHERE a.fingerprint = k.fingerprint) AS first_id, \
           (SELECT max(z.id) FROM solid_queue_failed_executions z WHERE z.fingerprint = k.fingerprint) AS last_id \
         FROM known k WHERE k.fingerprint IS NOT NULL LIMIT $1";
    Statement::new(text)
        .bind(limit as i64)
        .uncached()
        .load(conn)
}

/// A group of failures.
#[derive(Debug, QueryableByName)]
pub(crate) struct GroupRow {
    #[diesel(sql_type = Text)]
    pub(crate) fingerprint: String,
    /// Counted up to one more than the bound.
    #[diesel(sql_type = BigInt)]
    pub(crate) count: i64,
    #[diesel(sql_type = Timestamp)]
    pub(crate) first_at: NaiveDateTime,
    #[diesel(sql_type = Timestamp)]
    pub(crate) last_at: NaiveDateTime,
    /// The newest of them.
    #[diesel(embed)]
    pub(crate) newest: FailureRow,
}

/// Returns the groups of fingerprints, each counted up to `most`.
pub(crate) fn groups(
    conn: &mut Conn<'_>,
    known: &[KnownFingerprint],
    most: u64,
) -> QueryResult<Vec<GroupRow>> {
    let wanted = known
        .iter()
        .map(|one| (&*one.fingerprint, one.first_id, one.last_id));
    let wanted = serde_json::to_string(&wanted.collect::<Vec<_>>()).unwrap_or_default();
    let text = "SELECT g.fingerprint, (SELECT count(*) FROM (SELECT 1 AS one FROM solid_queue_failed_executions c \
             WHERE c.fingerprint = g.fingerprint ORDER BY c.id LIMIT $2) AS counted) AS count, \
           coalesce({moment a.created_at}, {now}) AS first_at, coalesce({moment z.created_at}, {now}) AS last_at, \
           z.id, z.job_id, j.class_name, z.error, coalesce({moment z.created_at}, {now}) AS at \
         FROM (SELECT value ->> 0 AS fingerprint, CAST(value ->> 1 AS bigint) AS first_id, \
             CAST(value ->> 2 AS bigint) AS last_id FROM {rows $1}) AS g \
         JOIN solid_queue_failed_executions a ON a.id = g.first_id \
         JOIN solid_queue_failed_executions z ON z.id = g.last_id \
         JOIN solid_queue_jobs j ON j.id = z.job_id";
    Statement::new(text)
        .bind(wanted)
        .bind(i64::try_from(most).unwrap_or(i64::MAX).saturating_add(1))
        .uncached()
        .load(conn)
}
