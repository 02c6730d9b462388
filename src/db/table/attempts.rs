//! `windlass_attempts`: the runs that did not succeed, and how they ended.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::{id_list, micros, timestamp};
use crate::db::conn::statement::{InputRows, Param, Statement};
use crate::db::model::outcome::{AttemptOutcome, EndedRun, JobFailure, RunStart};
use crate::db::table::jobs::EndedJob;
use chrono::{DateTime, NaiveDateTime, Utc};
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Integer, Nullable, Text, Timestamp};
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;

/// The most attempts of a job that are kept, and the most of its released runs.
pub(crate) const KEPT: i64 = 20;

/// A run to record.
#[derive(Debug)]
pub(crate) struct NewAttempt<'a> {
    job_id: i64,
    claim_id: i64,
    attempt: i32,
    outcome: &'static str,
    failure: &'a JobFailure,
    /// The start of the run. If its time is unknown, `ago` has the microseconds since then, negative.
    started_at: Option<String>,
    ago: Option<i64>,
    /// The process that ran it.
    process_id: Option<i64>,
    /// True if the job may have more attempts than are kept.
    is_surplus: bool,
}

impl<'a> NewAttempt<'a> {
    /// Returns the record of a run of a job. A run that never started has the number of the last
    /// attempt, and no process.
    pub(crate) fn new(
        job: &EndedJob,
        run: &EndedRun,
        outcome: AttemptOutcome,
        failure: &'a JobFailure,
    ) -> Self {
        let begun = run.has_begun() || outcome != AttemptOutcome::Cancelled;
        let (started_at, ago) = match run.began {
            RunStart::At(at) => (at.map(timestamp), None),
            RunStart::Ago(ran) => (None, Some(-micros(ran))),
        };
        NewAttempt {
            job_id: job.id,
            claim_id: if begun { run.claim_id } else { 0 },
            attempt: job.attempts.saturating_add(begun.into()),
            outcome: outcome.column(),
            failure,
            started_at,
            ago,
            process_id: begun.then_some(run.process_id),
            // Interrupted and released runs are not counted.
            is_surplus: i64::from(job.runs()) >= KEPT
                || matches!(
                    outcome,
                    AttemptOutcome::Interrupted | AttemptOutcome::Released
                ),
        }
    }

    fn params(&self) -> [Param<'_>; 10] {
        [
            self.job_id.into(),
            self.claim_id.into(),
            self.attempt.into(),
            self.outcome.into(),
            (&self.failure.kind).into(),
            (&self.failure.message).into(),
            (&self.failure.place).into(),
            (&self.started_at).into(),
            self.ago.into(),
            self.process_id.into(),
        ]
    }
}

/// Records runs, and deletes all but the newest of their jobs.
pub(crate) fn record_attempts(conn: &mut Conn<'_>, new: &[NewAttempt<'_>]) -> QueryResult<()> {
    if new.is_empty() {
        return Ok(());
    }
    let input = InputRows {
        names: [
            "job_id",
            "claim_id",
            "attempt",
            "outcome",
            "kind",
            "message",
            "place",
            "started_at",
            "ago",
            "process_id",
        ],
        rows: new.iter().map(NewAttempt::params).collect(),
    };
    let text = format!(
        "INSERT INTO windlass_attempts (job_id, claim_id, attempt, outcome, kind, message, place, \
           started_at, process_name, hostname, pid, ended_at) \
         SELECT input.job_id, input.claim_id, input.attempt, input.outcome, input.kind, input.message, input.place, \
           coalesce({{time input.started_at}}, {{later input.ago}}), p.name, p.hostname, p.pid, {{now}} \
         FROM {} LEFT JOIN solid_queue_processes p ON p.id = input.process_id",
        input.item(conn.dialect())
    );
    let params = input.params(conn.dialect());
    Statement::new(text).bind_all(params).execute(conn)?;
    let surplus = new.iter().filter(|attempt| attempt.is_surplus);
    let jobs: Vec<i64> = surplus.map(|attempt| attempt.job_id).collect();
    keep_newest(conn, &jobs)
}

/// Returns how often each of the jobs was interrupted within this time; those never are missing.
pub(crate) fn interruptions(
    conn: &mut Conn<'_>,
    jobs: &[i64],
    within: Duration,
) -> QueryResult<BTreeMap<i64, u32>> {
    let text = "SELECT job_id AS id, count(*) AS n FROM windlass_attempts \
         WHERE job_id IN {in $1} AND outcome = 'interrupted' AND ended_at > {later $2} GROUP BY job_id";
    let rows: Vec<Interruptions> = Statement::new(text)
        .bind(id_list(jobs))
        .bind(-micros(within))
        .uncached()
        .load(conn)?;
    let count = |row: Interruptions| (row.id, u32::try_from(row.n).unwrap_or(u32::MAX));
    Ok(rows.into_iter().map(count).collect())
}

#[derive(QueryableByName)]
struct Interruptions {
    #[diesel(sql_type = BigInt)]
    id: i64,
    #[diesel(sql_type = BigInt)]
    n: i64,
}

/// Deletes all but the newest attempts of jobs. Runs that were released are counted by themselves: they must not
/// hide the interruptions, whose number is limited.
pub(crate) fn keep_newest(conn: &mut Conn<'_>, jobs: &[i64]) -> QueryResult<()> {
    if jobs.is_empty() {
        return Ok(());
    }
    let text = "DELETE FROM windlass_attempts WHERE job_id IN {in $1} AND id <= \
         (SELECT older.id FROM windlass_attempts older WHERE older.job_id = windlass_attempts.job_id \
            AND (older.outcome = 'released') = (windlass_attempts.outcome = 'released') \
          ORDER BY older.id DESC LIMIT 1 OFFSET $2)";
    Statement::new(text)
        .bind(id_list(jobs))
        .bind(KEPT)
        .execute(conn)
}

/// Records that jobs have ended before they were started.
pub(crate) fn record_unstarted(
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
    /// A run that was cut short by a stop, a crash or the database has the number of the attempt that it would have been.
    /// A job that was cancelled while it waited has the number of its last attempt.
    pub attempt: u32,
    /// The way in which it ended.
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
    /// The time of its start, by the database's clock.
    pub started_at: Option<DateTime<Utc>>,
    /// The time of its end, by the database's clock.
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
         FROM windlass_attempts WHERE job_id = $1 ORDER BY id DESC LIMIT $2";
    let rows: Vec<AttemptRow> = Statement::new(text).bind(job_id).bind(KEPT).load(conn)?;
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
