//! `windlass_steps`: the completed steps of jobs, recorded in the transaction of the work itself,
//! under the fence.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::{id_list, micros};
use crate::db::conn::statement::{InputRows, Statement};
use crate::db::model::claim::Fence;
use chrono::NaiveDateTime;
use diesel::prelude::*;
use diesel::sql_types::{Nullable, Text, Timestamp};
use std::time::Duration;

/// The state of a step when it starts.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum StepState {
    /// The process does not hold the claim any more.
    Lost,
    /// The step has not been completed.
    New,
    /// It has been completed, with this value.
    Completed(String),
}

#[derive(QueryableByName)]
struct StepValue {
    #[diesel(sql_type = Nullable<Text>)]
    value: Option<String>,
}

/// Locks the claim, in the transaction of the step. Until that ends, no process can recover the
/// job.
pub(crate) fn begin(conn: &mut Conn<'_>, fence: Fence, name: &str) -> QueryResult<StepState> {
    let text = "SELECT s.value FROM solid_queue_claimed_executions c \
         LEFT JOIN windlass_steps s ON s.job_id = c.job_id AND s.name = $1 \
         WHERE c.id = $2 AND c.process_id + 0 = $3 {hold of c}";
    let rows: Vec<StepValue> = Statement::new(text)
        .bind(name)
        .bind(fence.claim_id)
        .bind(fence.process_id)
        .load(conn)?;
    Ok(match rows.into_iter().next() {
        None => StepState::Lost,
        Some(StepValue { value: None }) => StepState::New,
        Some(StepValue { value: Some(value) }) => StepState::Completed(value),
    })
}

/// Records that a step is completed, in its transaction.
pub(crate) fn record(conn: &mut Conn<'_>, job_id: i64, name: &str, value: &str) -> QueryResult<()> {
    let text =
        "INSERT INTO windlass_steps (job_id, name, value, created_at) VALUES ($1, $2, $3, {now})";
    Statement::new(text)
        .bind(job_id)
        .bind(name)
        .bind(value)
        .execute(conn)
}

/// Records the steps of pauses that start now, each with the time of its end. One that another program has recorded stays.
pub(crate) fn record_pauses(
    conn: &mut Conn<'_>,
    pauses: &[(i64, &str, Duration)],
) -> QueryResult<()> {
    if pauses.is_empty() {
        return Ok(());
    }
    let row = |(job, step, time): &(i64, &str, Duration)| {
        [
            (*job).into(),
            (*step).to_owned().into(),
            micros(*time).into(),
        ]
    };
    let input = InputRows {
        names: ["job_id", "name", "delay"],
        rows: pauses.iter().map(row).collect(),
    };
    let text = format!(
        "INSERT INTO windlass_steps (job_id, name, value, created_at) \
         SELECT input.job_id, input.name, '\"' || {{later input.delay}} || '\"', {{now}} FROM {} WHERE true \
         ORDER BY 1, 2 ON CONFLICT (job_id, name) DO NOTHING",
        input.item(conn.dialect())
    );
    let params = input.params(conn.dialect());
    Statement::new(text).bind_all(params).execute(conn)
}

/// Records the steps at which jobs wait for others. One that another program has recorded stays.
pub(crate) fn record_joins(conn: &mut Conn<'_>, joins: &[(i64, &str, &str)]) -> QueryResult<()> {
    let row = |(job, step, value): &(i64, &str, &str)| {
        [
            (*job).into(),
            (*step).to_owned().into(),
            (*value).to_owned().into(),
        ]
    };
    let input = InputRows {
        names: ["job_id", "name", "value"],
        rows: joins.iter().map(row).collect(),
    };
    let text = format!(
        "INSERT INTO windlass_steps (job_id, name, value, created_at) \
         SELECT input.job_id, input.name, input.value, {{now}} FROM {} WHERE true \
         ORDER BY 1, 2 ON CONFLICT (job_id, name) DO NOTHING",
        input.item(conn.dialect())
    );
    let params = input.params(conn.dialect());
    Statement::new(text)
        .bind_all(params)
        .uncached()
        .execute(conn)
}

/// Returns the value of a completed step.
pub(crate) fn value(conn: &mut Conn<'_>, job_id: i64, name: &str) -> QueryResult<Option<String>> {
    let text = "SELECT value FROM windlass_steps WHERE job_id = $1 AND name = $2";
    let found: Option<StepValue> = Statement::new(text)
        .bind(job_id)
        .bind(name)
        .get_result(conn)
        .optional()?;
    Ok(found.and_then(|row| row.value))
}

/// A completed step and its value.
#[derive(QueryableByName)]
pub(crate) struct RecordedStep {
    #[diesel(sql_type = Text)]
    pub(crate) name: String,
    #[diesel(sql_type = Text)]
    pub(crate) value: String,
}

/// Returns the completed steps of a job: at most `most`, and none with a long value, which is read
/// only when it is needed.
pub(crate) fn of_job(
    conn: &mut Conn<'_>,
    job_id: i64,
    most: usize,
) -> QueryResult<Vec<RecordedStep>> {
    let text = "SELECT name, value FROM windlass_steps WHERE job_id = $1 AND length(value) <= 256 LIMIT $2";
    Statement::new(text)
        .bind(job_id)
        .bind(most as i64)
        .load(conn)
}

/// A completed step as it is shown.
#[derive(Debug, QueryableByName)]
pub(crate) struct CompletedStep {
    #[diesel(sql_type = Text)]
    pub(crate) name: String,
    #[diesel(sql_type = Text)]
    pub(crate) value: String,
    #[diesel(sql_type = Nullable<Timestamp>)]
    pub(crate) created_at: Option<NaiveDateTime>,
}

/// Returns the first steps of a job, at most `most`.
pub(crate) fn first(conn: &mut Conn<'_>, job: i64, most: i64) -> QueryResult<Vec<CompletedStep>> {
    let text = "SELECT name, value, {moment created_at} AS created_at FROM windlass_steps WHERE job_id = $1 \
         ORDER BY created_at, name LIMIT $2";
    Statement::new(text).bind(job).bind(most).load(conn)
}

/// Deletes the steps of jobs that have ended.
pub(crate) fn remove(conn: &mut Conn<'_>, jobs: &[i64]) -> QueryResult<()> {
    if jobs.is_empty() {
        return Ok(());
    }
    let text = "DELETE FROM windlass_steps WHERE job_id IN {in $1}";
    Statement::new(text).bind(id_list(jobs)).execute(conn)
}
