//! Plain inserts of jobs.

use crate::db::Conn;
use crate::laboratory::plain::statement::json;
use crate::laboratory::plain::statement::{PlainId, Prepared, render};
use diesel::prelude::*;
use diesel::sql_types::Array;
use diesel::sql_types::BigInt;
use diesel::sql_types::{Integer, Text};

/// The class in each row.
pub(crate) const CLASS: &str = "windlass_bench_nothing";

/// The statements that follow the insertion of the jobs `{new}`.
pub(crate) type Target = &'static [&'static str];

pub(crate) const READY: Target = &[INSERT_READY];

const INSERT_READY: &str = "INSERT INTO plain_ready (job_id, queue_name, priority, created_at) \
     SELECT value, 'default', 0, {now} FROM {new}";

/// Ready, and with a unique id each.
pub(crate) const UNIQUE: Target = &[
    "INSERT INTO plain_unique (unique_id, job_id) SELECT 'unique/' || value, value FROM {new}",
    INSERT_READY,
];

/// Scheduled, and due at once.
pub(crate) const DUE: Target = &[
    "INSERT INTO plain_scheduled (job_id, queue_name, priority, scheduled_at, created_at) \
     SELECT value, 'default', 0, {now}, {now} FROM {new}",
];

/// Without an execution.
pub(crate) const ALONE: Target = &[];

/// Two rows and one commit.
pub(crate) fn one(conn: &mut Conn<'_>, arguments: &str, priority: i32) -> QueryResult<()> {
    match conn {
        Conn::Postgres(conn) => Prepared(
            diesel::sql_query(
                "WITH job AS (INSERT INTO plain_jobs (queue_name, class_name, arguments, priority, created_at, updated_at) \
                 VALUES ('default', $1, $2, $3, now(), now()) RETURNING id) \
                 INSERT INTO plain_ready (job_id, queue_name, priority, created_at) \
                 SELECT id, 'default', $3, now() FROM job RETURNING job_id AS id",
            )
            .bind::<Text, _>(CLASS)
            .bind::<Text, _>(arguments)
            .bind::<Integer, _>(priority),
        )
        .run(*conn),
        Conn::Sqlite(_) => conn.transaction(|conn| one_step_by_step(conn, arguments, priority)),
    }
}

fn one_step_by_step(conn: &mut Conn<'_>, arguments: &str, priority: i32) -> QueryResult<()> {
    let job = render(
        conn,
        "INSERT INTO plain_jobs (queue_name, class_name, arguments, priority, created_at, updated_at) \
         VALUES ('default', $1, $2, $3, {now}, {now}) RETURNING id",
    );
    let ready = render(
        conn,
        "INSERT INTO plain_ready (job_id, queue_name, priority, created_at) VALUES ($1, 'default', $2, {now})",
    );
    let Conn::Sqlite(conn) = conn else {
        return Ok(());
    };
    let job: PlainId = Prepared(
        diesel::sql_query(job)
            .bind::<Text, _>(CLASS)
            .bind::<Text, _>(arguments)
            .bind::<Integer, _>(priority),
    )
    .get_result(*conn)?;
    let ready = diesel::sql_query(ready).bind::<BigInt, _>(job.id);
    Prepared(ready.bind::<Integer, _>(priority)).run(*conn)
}

/// Does the same, and notifies listeners at the commit.
pub(crate) fn one_and_tell(conn: &mut Conn<'_>, arguments: &str) -> QueryResult<()> {
    conn.transaction(|conn| {
        one(conn, arguments, 0)?;
        match conn {
            Conn::Postgres(conn) => Prepared(diesel::sql_query(
                "SELECT count(pg_notify('windlass', '')) AS id",
            ))
            .run(*conn),
            Conn::Sqlite(_) => Ok(()),
        }
    })
}

const INSERT_JOBS: &str = "INSERT INTO plain_jobs \
     (queue_name, class_name, arguments, priority, created_at, updated_at) \
     SELECT 'default', 'windlass_bench_nothing', value, 0, {now}, {now} FROM {list} RETURNING id";

/// Inserts as many jobs as there are arguments, in one commit, and returns their ids.
pub(crate) fn all(
    conn: &mut Conn<'_>,
    arguments: &[String],
    target: Target,
) -> QueryResult<Vec<i64>> {
    let jobs = render(conn, INSERT_JOBS);
    match conn {
        Conn::Postgres(conn) => {
            let parts: Vec<String> = target
                .iter()
                .enumerate()
                .map(|(place, text)| {
                    let text = text.replace("{now}", "now()");
                    let text = text.replace("{new}", "(SELECT id AS value FROM job) AS list");
                    format!(", part_{place} AS ({text})")
                })
                .collect();
            let text = format!("WITH job AS ({jobs}){} SELECT id FROM job", parts.concat());
            let query = diesel::sql_query(text).bind::<Array<Text>, _>(arguments);
            let rows: Vec<PlainId> = Prepared(query).load(*conn)?;
            Ok(rows.iter().map(|row| row.id).collect())
        }
        Conn::Sqlite(_) => {
            conn.transaction(|conn| all_step_by_step(conn, &jobs, arguments, target))
        }
    }
}

fn all_step_by_step(
    conn: &mut Conn<'_>,
    jobs: &str,
    arguments: &[String],
    target: Target,
) -> QueryResult<Vec<i64>> {
    let texts: Vec<String> = target
        .iter()
        .map(|text| render(conn, &text.replace("{new}", "{list}")))
        .collect();
    let Conn::Sqlite(conn) = conn else {
        return Ok(Vec::new());
    };
    let arguments = serde_json::to_string(arguments).unwrap_or_default();
    let query = diesel::sql_query(jobs).bind::<Text, _>(arguments);
    let rows: Vec<PlainId> = Prepared(query).load(*conn)?;
    let ids: Vec<i64> = rows.iter().map(|row| row.id).collect();
    let list = json(&ids);
    for text in texts {
        Prepared(diesel::sql_query(text).bind::<Text, _>(&list)).run(*conn)?;
    }
    Ok(ids)
}
