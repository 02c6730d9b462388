//! Plain claims and dispatches, in batches.

use crate::db::Conn;
use crate::laboratory::plain::statement::{PlainId, Prepared};
use crate::laboratory::plain::statement::{ids, json, render};
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Integer, Text};

/// A claimed job.
#[derive(Debug, QueryableByName)]
pub(crate) struct Claim {
    #[diesel(sql_type = BigInt)]
    pub(crate) id: i64,
    #[diesel(sql_type = Integer)]
    pub(crate) attempts: i32,
    #[diesel(sql_type = Integer)]
    pub(crate) priority: i32,
    #[diesel(sql_type = Text)]
    #[allow(dead_code, reason = "every worker needs them, so they are fetched")]
    pub(crate) arguments: String,
}

/// Claims a batch, in one commit.
pub(crate) fn claim(conn: &mut Conn<'_>, batch: usize) -> QueryResult<Vec<Claim>> {
    match conn {
        Conn::Postgres(conn) => Prepared(
            diesel::sql_query(
                "WITH picked AS MATERIALIZED (SELECT ctid AS place FROM plain_ready ORDER BY priority, job_id \
                   LIMIT $1 FOR UPDATE SKIP LOCKED), \
                 gone AS (DELETE FROM plain_ready WHERE ctid = ANY (ARRAY(SELECT place FROM picked)) RETURNING job_id), \
                 held AS (INSERT INTO plain_claimed (job_id, process_id, created_at) \
                   SELECT job_id, 1, now() FROM gone RETURNING job_id) \
                 SELECT j.id, j.attempts, j.priority, j.arguments FROM held JOIN plain_jobs j ON j.id = held.job_id",
            )
            .bind::<BigInt, _>(batch as i64),
        )
        .load(*conn),
        Conn::Sqlite(_) => conn.transaction(|conn| claim_step_by_step(conn, batch)),
    }
}

fn claim_step_by_step(conn: &mut Conn<'_>, batch: usize) -> QueryResult<Vec<Claim>> {
    let held = render(
        conn,
        "INSERT INTO plain_claimed (job_id, process_id, created_at) SELECT value, 1, {now} FROM {list}",
    );
    let Conn::Sqlite(conn) = conn else {
        return Ok(Vec::new());
    };
    let text = "DELETE FROM plain_ready WHERE id IN \
         (SELECT id FROM plain_ready ORDER BY priority, job_id LIMIT $1) RETURNING job_id AS id";
    let gone = diesel::sql_query(text).bind::<BigInt, _>(batch as i64);
    let gone: Vec<PlainId> = Prepared(gone).load(*conn)?;
    if gone.is_empty() {
        return Ok(Vec::new());
    }
    let list = json(&ids(&gone));
    Prepared(diesel::sql_query(held).bind::<Text, _>(&list)).run(*conn)?;
    let text = "SELECT id, attempts, priority, arguments FROM plain_jobs \
         WHERE id IN (SELECT value FROM json_each($1))";
    Prepared(diesel::sql_query(text).bind::<Text, _>(&list)).load(*conn)
}

/// Makes up to `batch` due jobs ready, in one commit, and returns how many.
pub(crate) fn dispatch(conn: &mut Conn<'_>, batch: usize) -> QueryResult<usize> {
    match conn {
        Conn::Postgres(conn) => {
            let text = "WITH picked AS MATERIALIZED (SELECT ctid AS place FROM plain_scheduled \
                   WHERE scheduled_at <= now() ORDER BY scheduled_at, priority, job_id \
                   LIMIT $1 FOR UPDATE SKIP LOCKED), \
                 gone AS (DELETE FROM plain_scheduled WHERE ctid = ANY (ARRAY(SELECT place FROM picked)) \
                   RETURNING job_id, queue_name, priority) \
                 INSERT INTO plain_ready (job_id, queue_name, priority, created_at) \
                 SELECT job_id, queue_name, priority, now() FROM gone RETURNING job_id AS id";
            let query = diesel::sql_query(text).bind::<BigInt, _>(batch as i64);
            Prepared(query)
                .load(*conn)
                .map(|rows: Vec<PlainId>| rows.len())
        }
        Conn::Sqlite(_) => conn.transaction(|conn| dispatch_step_by_step(conn, batch)),
    }
}

fn dispatch_step_by_step(conn: &mut Conn<'_>, batch: usize) -> QueryResult<usize> {
    let gone = render(
        conn,
        "DELETE FROM plain_scheduled WHERE id IN (SELECT id FROM plain_scheduled \
           WHERE scheduled_at <= {now} ORDER BY scheduled_at, priority, job_id LIMIT $1) RETURNING job_id AS id",
    );
    let ready = render(
        conn,
        "INSERT INTO plain_ready (job_id, queue_name, priority, created_at) \
         SELECT value, 'default', 0, {now} FROM {list}",
    );
    let Conn::Sqlite(conn) = conn else {
        return Ok(0);
    };
    let gone = diesel::sql_query(gone).bind::<BigInt, _>(batch as i64);
    let gone: Vec<PlainId> = Prepared(gone).load(*conn)?;
    if !gone.is_empty() {
        let list = json(&ids(&gone));
        Prepared(diesel::sql_query(ready).bind::<Text, _>(list)).run(*conn)?;
    }
    Ok(gone.len())
}
