//! Postgres: inserting very many plain jobs with `COPY`.

use super::jobs::NewRow;
use super::schema::{solid_queue_jobs, solid_queue_ready_executions};
use super::sql::{cached, sql};
use super::wakeup::NOTIFY;
use chrono::NaiveDateTime;
use diesel::prelude::*;
use diesel::sql_types::{Array, BigInt, Timestamp};

/// With fewer jobs one statement is as quick: `COPY` takes five round trips
/// more.
const WORTH_IT: usize = 100;

/// Whether [`insert`] takes these jobs: many, and all of them ready at once.
pub(super) fn suits(rows: &[NewRow]) -> bool {
    rows.len() >= WORTH_IT
        && rows
            .iter()
            .all(|row| row.at.is_none() && row.delay.is_none())
}

#[derive(QueryableByName)]
struct Reserved {
    /// Ascending, one for each job.
    #[diesel(sql_type = Array<BigInt>)]
    ids: Vec<i64>,
    #[diesel(sql_type = Timestamp)]
    now: NaiveDateTime,
}

#[derive(Insertable)]
#[diesel(table_name = solid_queue_jobs, treat_none_as_default_value = false)]
struct JobRow<'a> {
    id: i64,
    queue_name: &'a str,
    class_name: &'a str,
    arguments: &'a str,
    priority: i32,
    active_job_id: Option<&'a str>,
    max_attempts: Option<i32>,
    max_crashes: Option<i32>,
    at_most_once: bool,
    policy: Option<&'a str>,
    created_at: NaiveDateTime,
    updated_at: NaiveDateTime,
}

#[derive(Insertable)]
#[diesel(table_name = solid_queue_ready_executions, treat_none_as_default_value = false)]
struct ReadyRow<'a> {
    job_id: i64,
    queue_name: &'a str,
    priority: i32,
    class_name: &'a str,
    cautious: bool,
    created_at: NaiveDateTime,
}

/// Inserts jobs that are ready, have no key and no limit, in the caller's
/// transaction, and returns their ids in order.
///
/// The ids are given out beforehand, so that both tables can be filled with
/// no executor in between: half of the server's time is saved, and most of
/// what is left goes into the indexes of the ready executions.
pub(super) fn insert(conn: &mut PgConnection, rows: &[NewRow]) -> QueryResult<Vec<i64>> {
    let Reserved { ids, now } = reserve(conn, rows.len())?;
    let pairs = || rows.iter().zip(&ids);
    let jobs: Vec<_> = pairs().map(|(row, id)| job(row, *id, now)).collect();
    diesel::copy_from(solid_queue_jobs::table)
        .from_insertable(jobs)
        .execute(conn)?;
    let ready: Vec<_> = pairs().map(|(row, id)| ready(row, *id, now)).collect();
    diesel::copy_from(solid_queue_ready_executions::table)
        .from_insertable(ready)
        .execute(conn)?;
    Ok(ids)
}

/// Gives out ids, ascending, with the database's time, and wakes at commit
/// who sleeps. The sequence is looked up once: for each row that would take
/// longer than the row itself.
fn reserve(conn: &mut PgConnection, count: usize) -> QueryResult<Reserved> {
    let text = super::sql::Dialect::Postgres.write(&format!(
        "WITH once AS MATERIALIZED (SELECT {NOTIFY} AS listeners, \
           pg_get_serial_sequence('solid_queue_jobs', 'id')::regclass AS ids) \
         SELECT ARRAY(SELECT nextval(once.ids) FROM generate_series(1, $1) AS number) AS ids, {{now}} AS now FROM once"
    ));
    cached(sql(text).bind::<BigInt, _>(count as i64)).get_result(conn)
}

fn job(row: &NewRow, id: i64, now: NaiveDateTime) -> JobRow<'_> {
    JobRow {
        id,
        queue_name: &row.queue_name,
        class_name: &row.class_name,
        arguments: &row.arguments,
        priority: row.priority,
        active_job_id: row.active_job_id.as_deref(),
        max_attempts: row.max_attempts,
        max_crashes: row.max_crashes,
        at_most_once: row.at_most_once,
        policy: row.policy.as_deref(),
        created_at: now,
        updated_at: now,
    }
}

fn ready(row: &NewRow, id: i64, now: NaiveDateTime) -> ReadyRow<'_> {
    ReadyRow {
        job_id: id,
        queue_name: &row.queue_name,
        priority: row.priority,
        class_name: &row.class_name,
        // `{cautious}` of one that has not run yet.
        cautious: row.at_most_once || row.max_crashes == Some(0),
        created_at: now,
    }
}
