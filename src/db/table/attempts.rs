//! `windlass_attempts`: how runs ended that did not succeed, and what the end
//! of one means for its job.

use crate::db::conn::connection::{Conn, on};
use crate::db::conn::sql::{cached, micros, sql, timestamp};
use crate::db::model::outcome::{AttemptOutcome, Began, EndedRun, Failure};
use chrono::{DateTime, NaiveDateTime, Utc};
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Integer, Nullable, Text, Timestamp};
use serde::Serialize;

/// How many attempts of a job are kept.
const KEPT: i64 = 20;

/// Writes an attempt down, before its job's count has changed.
pub(crate) fn insert(
    conn: &mut Conn<'_>,
    run: &EndedRun,
    outcome: AttemptOutcome,
    failure: &Failure,
) -> QueryResult<()> {
    let (at, ago) = match run.began {
        Began::At(at) => (at.map(timestamp), None),
        Began::Ago(ran) => (None, Some(-micros(ran))),
    };
    let text = conn.write(
        "INSERT INTO windlass_attempts (job_id, claim_id, attempt, outcome, kind, message, place, \
           process_name, hostname, pid, started_at, ended_at) \
         SELECT j.id, $1, {next j.attempts}, $2, $3, $4, $5, p.name, p.hostname, p.pid, \
           coalesce({time $6}, {later $7}), {now} \
         FROM solid_queue_jobs j LEFT JOIN solid_queue_processes p ON p.id = $8 WHERE j.id = $9",
    );
    on!(conn, |c| cached(
        sql(text)
            .bind::<BigInt, _>(run.claim_id)
            .bind::<Text, _>(outcome.column())
            .bind::<Text, _>(&failure.kind)
            .bind::<Text, _>(&failure.message)
            .bind::<Nullable<Text>, _>(&failure.place)
            .bind::<Nullable<Text>, _>(at)
            .bind::<Nullable<BigInt>, _>(ago)
            .bind::<BigInt, _>(run.process_id)
            .bind::<BigInt, _>(run.job_id)
    )
    .execute(c))?;
    let text = conn.write(
        "DELETE FROM windlass_attempts WHERE job_id = $1 AND id <= \
         (SELECT id FROM windlass_attempts WHERE job_id = $1 ORDER BY id DESC LIMIT 1 OFFSET $2)",
    );
    on!(conn, |c| cached(
        sql(text)
            .bind::<BigInt, _>(run.job_id)
            .bind::<BigInt, _>(KEPT)
    )
    .execute(c))
    .map(drop)
}

/// Writes down that jobs have ended before anybody had begun them.
pub(crate) fn insert_waiting(
    conn: &mut Conn<'_>,
    jobs: &[i64],
    outcome: AttemptOutcome,
    failure: &Failure,
) -> QueryResult<()> {
    let text = conn.write(
        "INSERT INTO windlass_attempts (job_id, claim_id, attempt, outcome, kind, message, ended_at) \
         SELECT id, 0, attempts, $1, $2, $3, {now} FROM solid_queue_jobs WHERE id IN {in $4} ORDER BY id",
    );
    on!(conn, |c| cached(
        sql(text)
            .bind::<Text, _>(outcome.column())
            .bind::<Text, _>(&failure.kind)
            .bind::<Text, _>(&failure.message)
            .bind::<Text, _>(crate::db::conn::sql::id_list(jobs))
    )
    .execute(c))
    .map(drop)
}

/// An attempt at a job that did not succeed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Attempt {
    /// 1 for the first. A run that was cut short by a crash has the number of
    /// the attempt that it would have been, and a job that was cancelled while
    /// it waited that of its last attempt.
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
    /// When it began, by the database's clock.
    pub started_at: Option<DateTime<Utc>>,
    /// When it ended, by the database's clock.
    pub ended_at: DateTime<Utc>,
}

#[derive(QueryableByName)]
struct Row {
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

/// The attempts that are kept of a job, the newest first.
pub(crate) fn of_job(conn: &mut Conn<'_>, job_id: i64) -> QueryResult<Vec<Attempt>> {
    let text = conn.write(
        "SELECT attempt, outcome, kind, message, place, process_name, hostname, pid, \
           {moment started_at} AS started_at, coalesce({moment ended_at}, {now}) AS ended_at \
         FROM windlass_attempts WHERE job_id = $1 ORDER BY id DESC",
    );
    let rows: Vec<Row> = on!(conn, |c| cached(sql(text).bind::<BigInt, _>(job_id))
        .load(c))?;
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
