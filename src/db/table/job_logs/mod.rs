//! `windlass_job_logs`: what jobs have logged about themselves, one row for each run.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::{Lossy, id_list, micros};
use crate::db::conn::statement::{InputRows, Param, Statement};
use crate::db::model::claim::Fence;
use chrono::{DateTime, NaiveDateTime, Utc};
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Integer, Nullable, Text, Timestamp};
use log::Level;
use serde::{Serialize, Serializer};
use std::time::Duration;

/// A line that a job logged with [`Context::log`](crate::Context::log).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct LogLine {
    /// The time since the start of the run; `after_ms` in JSON.
    #[serde(rename = "after_ms", serialize_with = "as_millis")]
    pub after: Duration,
    /// Its level.
    #[serde(serialize_with = "as_word")]
    pub level: Level,
    /// Its text, without control characters.
    pub text: String,
}

/// The log of one run of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct JobLog {
    /// The number of the attempt, starting at 1. A run that was cut short and the next one have the
    /// same.
    pub attempt: u32,
    /// The claim of the run, which no other run has.
    pub claim_id: i64,
    /// The start of the run, by the database's clock.
    pub started_at: Option<DateTime<Utc>>,
    /// The number of older lines that were dropped because there were too many.
    pub dropped: u64,
    /// The lines, oldest first.
    pub lines: Vec<LogLine>,
}

fn as_millis<S: Serializer>(after: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(u64::try_from(after.as_millis()).unwrap_or(u64::MAX))
}

fn as_word<S: Serializer>(level: &Level, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&level.as_str().to_lowercase())
}

/// The log of a run so far.
#[derive(Debug)]
pub(crate) struct LoggedRun {
    pub(crate) fence: Fence,
    pub(crate) job_id: i64,
    pub(crate) attempt: i32,
    /// The time since the start of the run.
    pub(crate) ran: Duration,
    /// The content of the column.
    pub(crate) lines: String,
    /// The number of lines that the run has logged, including those that were dropped.
    pub(crate) total: i64,
    /// True if nothing of the run was stored before.
    pub(crate) is_first: bool,
}

/// Returns the content of the column: microseconds, level and text of each line.
pub(crate) fn to_column<'l>(lines: impl Iterator<Item = &'l LogLine>) -> String {
    let lines: Vec<(i64, &str, &str)> = lines
        .map(|line| (micros(line.after), line.level.as_str(), &*line.text))
        .collect();
    serde_json::to_string(&lines).unwrap_or_default()
}

/// Parses a column. What cannot be parsed gives no lines.
fn of_column(text: &str) -> Vec<LogLine> {
    let lines: Vec<(i64, String, String)> = serde_json::from_str(text).unwrap_or_default();
    lines
        .into_iter()
        .map(|(after, level, text)| LogLine {
            after: Duration::from_micros(u64::try_from(after).unwrap_or(0)),
            level: level.parse().unwrap_or(Level::Info),
            text,
        })
        .collect()
}

/// The most runs of a job that are kept.
const KEPT: i64 = 10;

/// Stores what runs have logged, each in place of what was stored of it before.
///
/// Only of claims that their process still holds, or that it ended itself. So a process that lost a
/// claim adds nothing, and never to another run, as each run has a row of its own.
pub(crate) fn save(conn: &mut Conn<'_>, runs: &[LoggedRun]) -> QueryResult<()> {
    if runs.is_empty() {
        return Ok(());
    }
    let input = InputRows {
        names: [
            "process_id",
            "claim_id",
            "job_id",
            "attempt",
            "ago",
            "lines",
            "total",
        ],
        rows: runs.iter().map(params).collect(),
    };
    let text = format!(
        "INSERT INTO windlass_job_logs (job_id, claim_id, attempt, started_at, lines, total) \
         SELECT input.job_id, input.claim_id, input.attempt, {{later input.ago}}, input.lines, input.total FROM {} \
         WHERE EXISTS (SELECT 1 FROM solid_queue_claimed_executions c WHERE c.id = input.claim_id \
             AND c.process_id + 0 = input.process_id) \
           OR EXISTS (SELECT 1 FROM solid_queue_jobs j WHERE j.id = input.job_id AND j.last_claim_id = input.claim_id) \
         ORDER BY 1, 2 \
         ON CONFLICT (job_id, claim_id) DO UPDATE SET lines = excluded.lines, total = excluded.total \
           WHERE windlass_job_logs.total < excluded.total",
        input.item(conn.dialect())
    );
    let params = input.params(conn.dialect());
    Statement::new(text).bind_all(params).execute(conn)?;
    let first = runs.iter().filter(|run| run.is_first);
    keep_newest(conn, &first.map(|run| run.job_id).collect::<Vec<_>>())
}

fn params(run: &LoggedRun) -> [Param<'_>; 7] {
    [
        run.fence.process_id.into(),
        run.fence.claim_id.into(),
        run.job_id.into(),
        run.attempt.into(),
        Some(-micros(run.ran)).into(),
        (&run.lines).into(),
        run.total.into(),
    ]
}

/// Deletes the rows of all but the newest runs of jobs.
fn keep_newest(conn: &mut Conn<'_>, jobs: &[i64]) -> QueryResult<()> {
    if jobs.is_empty() {
        return Ok(());
    }
    let text = "DELETE FROM windlass_job_logs WHERE job_id IN {in $1} AND claim_id <= \
         (SELECT older.claim_id FROM windlass_job_logs older WHERE older.job_id = windlass_job_logs.job_id \
          ORDER BY older.claim_id DESC LIMIT 1 OFFSET $2)";
    Statement::new(text)
        .bind(id_list(jobs))
        .bind(KEPT)
        .uncached()
        .execute(conn)
}

#[derive(QueryableByName)]
struct StoredLog {
    #[diesel(sql_type = BigInt)]
    claim_id: i64,
    #[diesel(sql_type = Integer)]
    attempt: i32,
    #[diesel(sql_type = Nullable<Timestamp>)]
    started_at: Option<NaiveDateTime>,
    #[diesel(sql_type = Text, deserialize_as = Lossy)]
    lines: String,
    #[diesel(sql_type = BigInt)]
    total: i64,
}

/// Returns what the runs of a job logged, the oldest first.
pub(crate) fn of_job(conn: &mut Conn<'_>, job_id: i64) -> QueryResult<Vec<JobLog>> {
    let text = "SELECT claim_id, attempt, {moment started_at} AS started_at, lines, total \
         FROM windlass_job_logs WHERE job_id = $1 ORDER BY claim_id";
    let rows: Vec<StoredLog> = Statement::new(text).bind(job_id).uncached().load(conn)?;
    let logs = rows.into_iter().map(|row| {
        let lines = of_column(&row.lines);
        let total = u64::try_from(row.total).unwrap_or(0);
        JobLog {
            attempt: u32::try_from(row.attempt).unwrap_or(0),
            claim_id: row.claim_id,
            started_at: row.started_at.map(|time| time.and_utc()),
            dropped: total.saturating_sub(lines.len() as u64),
            lines,
        }
    });
    Ok(logs.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_holds_all_of_a_line() {
        let line = LogLine {
            after: Duration::from_micros(1_500_000),
            level: Level::Warn,
            text: "a \"text\"".to_owned(),
        };
        let column = to_column([&line].into_iter());
        assert_eq!(column, r#"[[1500000,"WARN","a \"text\""]]"#);
        assert_eq!(of_column(&column), std::slice::from_ref(&line));
        assert_eq!(of_column("nonsense"), []);
        let json = serde_json::to_string(&line).unwrap();
        assert_eq!(
            json,
            r#"{"after_ms":1500,"level":"warn","text":"a \"text\""}"#
        );
    }
}
