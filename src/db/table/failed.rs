//! `solid_queue_failed_executions`: why a job failed.

use crate::db::conn::connection::{Conn, on};
use crate::db::conn::sql::{cached, sql};
use crate::db::model::outcome::Failure;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Text};

/// Records why a job failed. A failed execution that is there already would
/// be a leftover: the newer reason wins.
pub(crate) fn insert(conn: &mut Conn<'_>, job_id: i64, failure: &Failure) -> QueryResult<()> {
    let text = conn.write(
        "INSERT INTO solid_queue_failed_executions (job_id, error, created_at) \
         SELECT id, $1, {now} FROM solid_queue_jobs WHERE id = $2 \
         ON CONFLICT (job_id) DO UPDATE SET error = excluded.error, created_at = excluded.created_at",
    );
    on!(conn, |c| cached(
        sql(text)
            .bind::<Text, _>(failure.to_json())
            .bind::<BigInt, _>(job_id)
    )
    .execute(c))
}
