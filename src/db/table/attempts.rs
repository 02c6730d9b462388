//! `windlass_attempts`: the runs that did not succeed, and how they ended.

use crate::db::conn::connection::Conn;
use crate::db::conn::sql::{id_list, micros, timestamp};
use crate::db::conn::statement::Statement;
use crate::db::model::outcome::{AttemptOutcome, EndedRun, JobFailure, RunStart};
use chrono::{DateTime, NaiveDateTime, Utc};
use diesel::prelude::*;
use diesel::sql_types::{Integer, Nullable, Text, Timestamp};
use serde::Serialize;

/// How many attempts of a job are kept.
const KEPT: i64 = 20;

/// A run to record, in the order in which the statement reads it.
#[derive(Debug, Serialize)]
pub(crate) struct NewAttempt<'a>(
    /// The job.
    i64,
    /// The claim.
    i64,
    /// The number of the attempt.
    i32,
    &'static str,
    /// The kind of the failure, its message and its place.
    &'a str,
    &'a str,
    Option<&'a str>,
    /// When the run started, or how many microseconds ago, negative.
    Option<String>,
    Option<i64>,
    /// The process that ran it.
    Option<i64>,
);

impl<'a> NewAttempt<'a> {
    /// Returns the record of a run, for a job with `attempts` earlier ones. A run that never
    /// started has the number of the last attempt, and no process.
    pub(crate) fn new(
        attempts: i32,
        run: &EndedRun,
        outcome: AttemptOutcome,
        failure: &'a JobFailure,
    ) -> Self {
        let begun = run.has_begun() || outcome != AttemptOutcome::Cancelled;
        let (at, ago) = match run.began {
            RunStart::At(at) => (at.map(timestamp), None),
            RunStart::Ago(ran) => (None, Some(-micros(ran))),
        };
        NewAttempt(
            run.job_id,
            if begun { run.claim_id } else { 0 },
            attempts.saturating_add(begun.into()),
            outcome.column(),
            &failure.kind,
            &failure.message,
            failure.place.as_deref(),
            at,
            ago,
            begun.then_some(run.process_id),
        )
    }
}

/// Records runs, and deletes all but the newest of their jobs.
pub(crate) fn insert(conn: &mut Conn<'_>, new: &[NewAttempt<'_>]) -> QueryResult<()> {
    if new.is_empty() {
        return Ok(());
    }
    let of_process = |column: &str| {
        format!(
            "(SELECT {column} FROM solid_queue_processes WHERE id = CAST(value ->> 9 AS bigint))"
        )
    };
    let text = format!(
        "INSERT INTO windlass_attempts (job_id, claim_id, attempt, outcome, kind, message, place, \
           started_at, process_name, hostname, pid, ended_at) \
         SELECT CAST(value ->> 0 AS bigint), CAST(value ->> 1 AS bigint), CAST(value ->> 2 AS integer), \
           value ->> 3, value ->> 4, value ->> 5, value ->> 6, \
           coalesce({{time value ->> 7}}, {{later CAST(value ->> 8 AS bigint)}}), {}, {}, {}, {{now}} \
         FROM {{rows $1}}",
        of_process("name"),
        of_process("hostname"),
        of_process("pid"),
    );
    let rows = serde_json::to_string(new).unwrap_or_default();
    Statement::new(text).bind(&rows).execute(conn)?;
    let jobs: Vec<i64> = new.iter().map(|attempt| attempt.0).collect();
    let text = "DELETE FROM windlass_attempts WHERE job_id IN {in $1} AND id <= \
         (SELECT older.id FROM windlass_attempts older WHERE older.job_id = windlass_attempts.job_id \
          ORDER BY older.id DESC LIMIT 1 OFFSET $2)";
    Statement::new(text)
        .bind(id_list(&jobs))
        .bind(KEPT)
        .execute(conn)
}

/// Records that jobs have ended before they were started.
pub(crate) fn insert_waiting(
    conn: &mut Conn<'_>,
    jobs: &[i64],
    outcome: AttemptOutcome,
    failure: &JobFailure,
) -> QueryResult<()> {
    let text = "INSERT INTO windlass_attempts (job_id, claim_id, attempt, outcome, kind, message, ended_at) \
         SELECT id, 0, attempts, $1, $2, $3, {now} FROM solid_queue_jobs WHERE id IN {in $4} ORDER BY id";
    Statement::new(text)
        .bind(outcome.column())
        .bind(&failure.kind)
        .bind(&failure.message)
        .bind(id_list(jobs))
        .execute(conn)
}

/// An unsuccessful attempt of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Attempt {
    /// 1 for the first.
    ///
    /// A run that was interrupted by a crash has the number of the attempt that it would have been.
    /// A job that was cancelled while it waited has the number of its last attempt.
    pub attempt: u32,
    /// How it ended.
    pub outcome: AttemptOutcome,
    /// The type of the error, or `panic`, `crashed`, `timeout` and the like.
    pub kind: String,
    /// The error's message.
    pub message: String,
    /// `file:line:column` of a panic.
    pub place: Option<String>,
    /// The name of the process that ran it.
    pub process_name: Option<String>,
    /// The host of that process.
    pub hostname: Option<String>,
    /// The process id on that host.
    pub pid: Option<i32>,
    /// When it started, by the database's clock.
    pub started_at: Option<DateTime<Utc>>,
    /// When it ended, by the database's clock.
    pub ended_at: DateTime<Utc>,
}

#[derive(QueryableByName)]
struct AttemptRow {
    #[diesel(sql_type = Integer)]
    attempt: i32,
    #[diesel(sql_type = Text)]
    outcome: String,
    #[diesel(sql_type = Text)]
    kind: String,
    #[diesel(sql_type = Text)]
    message: String,
    #[diesel(sql_type = Nullable<Text>)]
    place: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    process_name: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    hostname: Option<String>,
    #[diesel(sql_type = Nullable<Integer>)]
    pid: Option<i32>,
    #[diesel(sql_type = Nullable<Timestamp>)]
    started_at: Option<NaiveDateTime>,
    #[diesel(sql_type = Timestamp)]
    ended_at: NaiveDateTime,
}

/// Returns the stored attempts of a job, the newest first.
pub(crate) fn of_job(conn: &mut Conn<'_>, job_id: i64) -> QueryResult<Vec<Attempt>> {
    let text = "SELECT attempt, outcome, kind, message, place, process_name, hostname, pid, \
           {moment started_at} AS started_at, coalesce({moment ended_at}, {now}) AS ended_at \
         FROM windlass_attempts WHERE job_id = $1 ORDER BY id DESC";
    let rows: Vec<AttemptRow> = Statement::new(text).bind(job_id).load(conn)?;
    Ok(rows
        .into_iter()
        .map(|row| Attempt {
            attempt: u32::try_from(row.attempt).unwrap_or(0),
            outcome: AttemptOutcome::of_column(&row.outcome),
            kind: row.kind,
            message: row.message,
            place: row.place,
            process_name: row.process_name,
            hostname: row.hostname,
            pid: row.pid,
            started_at: row.started_at.map(|time| time.and_utc()),
            ended_at: row.ended_at.and_utc(),
        })
        .collect())
}
