//! `solid_queue_scheduled_executions`: dispatching what is due.

use super::conn::{Conn, on};
use super::execution::{Execution, job_ids};
use super::sql::{cached, id_list, sql};
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Double, Nullable, Text};
use std::time::Duration;

/// SQLite writes no year after 9999: a job for later would have no time, and
/// be due at once.
const LONGEST: Duration = Duration::from_secs(1_000 * 366 * 86_400);

/// A duration as the statements take it, cut to a thousand years.
pub(crate) fn micros(delay: Duration) -> i64 {
    i64::try_from(delay.min(LONGEST).as_micros()).unwrap_or(i64::MAX)
}

/// Lets jobs wait until `delay` from now, or for a thousand years. One that is
/// scheduled already, put there by hand, must not hold up the others.
pub(super) fn insert(conn: &mut Conn<'_>, jobs: &[i64], delay: Duration) -> QueryResult<()> {
    let text = conn.write(
        "INSERT INTO solid_queue_scheduled_executions (job_id, queue_name, priority, scheduled_at, created_at) \
         SELECT id, queue_name, priority, {later $1}, {now} FROM solid_queue_jobs WHERE id IN {in $2} ORDER BY id \
         ON CONFLICT (job_id) DO UPDATE SET scheduled_at = excluded.scheduled_at",
    );
    on!(conn, |c| cached(
        sql(text)
            .bind::<BigInt, _>(micros(delay))
            .bind::<Text, _>(id_list(jobs))
    )
    .execute(c))
    .map(drop)
}

/// Makes up to `batch` due jobs ready and returns how many. Any number of
/// dispatchers may do so at once: each takes other rows.
pub(crate) fn dispatch(conn: &mut Conn<'_>, batch: usize) -> QueryResult<usize> {
    conn.transaction(|conn| {
        let text = conn.write(
            "SELECT job_id FROM solid_queue_scheduled_executions WHERE scheduled_at <= {now} \
             ORDER BY scheduled_at, priority, job_id LIMIT $1 {lock skip}",
        );
        let due: Vec<Execution> = on!(conn, |c| cached(sql(text).bind::<BigInt, _>(batch as i64))
            .load(c))?;
        let jobs = job_ids(due);
        if jobs.is_empty() {
            return Ok(0);
        }
        let text =
            conn.write("DELETE FROM solid_queue_scheduled_executions WHERE job_id IN {in $1}");
        on!(conn, |c| cached(sql(text).bind::<Text, _>(id_list(&jobs)))
            .execute(c))?;
        super::blocked::enter(conn, &jobs)?;
        Ok(jobs.len())
    })
}

#[derive(QueryableByName)]
struct Wait {
    #[diesel(sql_type = Nullable<Double>)]
    seconds: Option<f64>,
}

/// How long until the next execution is due, by the database's clock.
pub(crate) fn next_due(conn: &mut Conn<'_>) -> QueryResult<Option<Duration>> {
    let seconds = conn.seconds("{now}", "{moment min(scheduled_at)}");
    let text = conn.write(&format!(
        "SELECT {seconds} AS seconds FROM solid_queue_scheduled_executions"
    ));
    let wait: Wait = on!(conn, |c| cached(sql(text)).get_result(c))?;
    Ok(wait
        .seconds
        .map(|seconds| Duration::try_from_secs_f64(seconds).unwrap_or(Duration::ZERO)))
}
