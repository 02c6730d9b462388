//! `solid_queue_scheduled_executions`: dispatching what is due.

use crate::db::conn::connection::{Conn, on};
use crate::db::conn::sql::{cached, id_list, micros, sql};
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Double, Nullable, Text};
use std::time::Duration;

/// Lets jobs wait until `delay` from now, or for a thousand years. One that is
/// scheduled already, put there by hand, must not hold up the others.
pub(crate) fn insert(conn: &mut Conn<'_>, jobs: &[i64], delay: Duration) -> QueryResult<()> {
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
