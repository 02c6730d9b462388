//! Fills the database.

use crate::db::conn::typed::with_conn;
use crate::db::{AsConn as _, Conn, Database, DbConnection};
use crate::error::{ErrorContext as _, Result};
use crate::laboratory::filled::around;
use crate::laboratory::filled::failures::SHAPES;
use crate::laboratory::filled::sizes::Sizes;
use crate::laboratory::filled::{ended, past, waiting};
use crate::laboratory::plain::tables::solid_queue_jobs as jobs;
use crate::laboratory::sql::{execute, render};
use diesel::prelude::*;

/// Rows of one statement, so that no transaction becomes very large.
const CHUNK: i64 = 250_000;

const ACTION: &str = "fill the benchmark's database";

/// Fills an empty database that has the Windlass tables. `progress` is told what is being inserted.
pub(crate) fn fill(database: &Database, sizes: Sizes, progress: &dyn Fn(String)) -> Result<()> {
    let mut connection = database.connect()?;
    in_chunks(
        &mut connection,
        (1, sizes.ended()),
        &ended::jobs(sizes),
        &|last| {
            progress(format!("{last} of {} ended jobs", sizes.ended()));
        },
    )?;
    for (number, shape) in SHAPES.iter().enumerate() {
        progress(format!("failures, {number} of {}", SHAPES.len()));
        for text in [ended::failed(sizes, shape), ended::attempts(sizes, shape)] {
            in_chunks(&mut connection, (1, sizes.failed()), &text, &|_| {})?;
        }
    }
    progress("discarded jobs and results".to_owned());
    in_chunks(
        &mut connection,
        (1, sizes.ended() / 500),
        &ended::discarded(sizes),
        &|_| {},
    )?;
    in_chunks(
        &mut connection,
        (1, sizes.ended() / 200),
        &ended::results(sizes),
        &|_| {},
    )?;
    connection
        .with_write_lock(|conn| {
            let last = around::running(conn, sizes)?;
            count_on(conn, last)?;
            around::audit(conn)?;
            around::operations(conn)?;
            around::classes(conn)
        })
        .during(ACTION)?;
    around::recurring(&mut connection, sizes)?;
    past::fill(&mut connection, &|count| {
        progress(format!("{count} rows of history"))
    })?;
    waiting::enqueue(&mut connection, sizes, &|what, count| {
        progress(format!("{count} {what} jobs"))
    })?;
    progress("flows".to_owned());
    waiting::flows(&mut connection)?;
    progress("statistics".to_owned());
    finish(&mut connection.as_conn()).during("collect statistics")
}

/// Returns whether a database has no jobs.
pub(crate) fn is_empty(database: &Database) -> Result<bool> {
    let mut connection = database.connect()?;
    let jobs = with_conn!(&mut connection, |c| jobs::table
        .select(jobs::id)
        .first::<i64>(c)
        .optional());
    Ok(jobs.during("look for jobs")?.is_none())
}

fn in_chunks(
    connection: &mut DbConnection,
    (first, last): (i64, i64),
    text: &str,
    progress: &dyn Fn(i64),
) -> Result<()> {
    let mut next = first;
    while next <= last {
        let until = (next + CHUNK - 1).min(last);
        progress(until);
        let mut conn = connection.as_conn();
        let text = render(&conn, (next, until), text);
        execute(&mut conn, &text).during(ACTION)?;
        next = until + 1;
    }
    Ok(())
}

/// Lets ids of jobs go on after this one. SQLite does so by itself.
fn count_on(conn: &mut Conn<'_>, last: i64) -> QueryResult<()> {
    match conn {
        Conn::Postgres(_) => {
            let sequence = "pg_get_serial_sequence('solid_queue_jobs', 'id')";
            execute(conn, &format!("SELECT setval({sequence}, {last})"))
        }
        Conn::Sqlite(_) => {
            let _ = last;
            Ok(())
        }
    }
}

fn own_tables(conn: &mut Conn<'_>) -> QueryResult<Vec<String>> {
    #[derive(QueryableByName)]
    struct OwnTable {
        #[diesel(sql_type = diesel::sql_types::Text)]
        name: String,
    }
    let text = "SELECT quote_ident(tablename) AS name FROM pg_tables WHERE schemaname = current_schema() \
         AND (tablename LIKE 'windlass%' OR tablename LIKE 'solid_queue%')";
    let rows: Vec<OwnTable> = with_conn!(conn, |c| diesel::sql_query(text).load(c))?;
    Ok(rows.into_iter().map(|row| row.name).collect())
}

/// Collects statistics, and removes what the filling left in the log.
fn finish(conn: &mut Conn<'_>) -> QueryResult<()> {
    match conn {
        Conn::Postgres(_) => {
            // As the server's own vacuum would have done.
            let tables = own_tables(conn)?;
            // A fifth of so many rows, the default, would be two million dead ones.
            execute(
                conn,
                "ALTER TABLE solid_queue_jobs SET (autovacuum_vacuum_scale_factor = 0, \
                 autovacuum_vacuum_threshold = 100000)",
            )?;
            execute(conn, &format!("VACUUM ANALYZE {}", tables.join(", ")))
        }
        Conn::Sqlite(_) => execute(conn, "ANALYZE; PRAGMA wal_checkpoint(TRUNCATE);"),
    }
}
