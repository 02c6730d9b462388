//! The statements of the guides that move the jobs of other queues, on tables with those columns of the queues that they
//! use. The argument of each row is its state.

use crate::on_each_database;
use crate::support::TestDb;
use diesel::prelude::*;
use diesel::sql_types::{Double, Integer, Text};
use std::time::Duration;
use windlass::{Error, Function, Registry, with_conn};

on_each_database!(jobs_of_river_move);

const WELCOME: Function<String> = Function::new("send_welcome").queue("mail");

/// A row, as `move_jobs` of `coming-from-others.md` reads it.
#[derive(QueryableByName)]
struct Old {
    #[diesel(sql_type = Text)]
    id: String,
    #[diesel(sql_type = Text)]
    fields: String,
    #[diesel(sql_type = Integer)]
    priority: i32,
    #[diesel(sql_type = Double)]
    wait: f64,
}

/// Moves the jobs of the class as the page does, with its statement for Postgres or, after that, for SQLite.
fn move_jobs(db: &TestDb, page: &str) {
    let (_, section) = page.split_once("## Jobs that are waiting").unwrap();
    let block = section
        .split("```sql\n")
        .nth(1 + usize::from(!db.is_postgres()));
    let statement = block.unwrap().split("```").next().unwrap();
    let registry = Registry::new().function(WELCOME, |_, _| Ok(()));
    let moved = windlass::transaction(&mut db.connect(), |conn| {
        let query = diesel::sql_query(statement).bind::<Text, _>(WELCOME.name());
        let old: Vec<Old> = with_conn!(conn, |c| query.load(c))?;
        let jobs = old.into_iter().map(|old| {
            let job = registry.new_job(WELCOME.name(), &old.fields)?;
            let job = job.after(Duration::from_secs_f64(old.wait));
            Ok::<_, Error>(job.priority(old.priority).idempotency_key(old.id))
        });
        windlass::enqueue_all(conn, jobs.collect::<Result<Vec<_>, _>>()?)
    });
    assert_eq!(moved.unwrap().len(), 3);
}

/// Asserts that these jobs are there: the argument, the priority, and the minutes until it is due.
fn assert_moved(db: &TestDb, wanted: &str) {
    let minutes = match db.is_postgres() {
        true => "extract(epoch FROM scheduled_at - (clock_timestamp() AT TIME ZONE 'UTC')) / 60",
        false => "(julianday(scheduled_at) - julianday('now')) * 1440",
    };
    let due =
        format!("SELECT CAST(round({minutes}) AS integer) FROM solid_queue_scheduled_executions");
    let jobs = format!(
        "SELECT trim(arguments, '\"') || ' ' || priority || ' ' || coalesce(({due} WHERE job_id = jobs.id), 0) AS t \
         FROM solid_queue_jobs AS jobs WHERE queue_name = 'mail' ORDER BY 1"
    );
    assert_eq!(db.texts(&jobs).join(", "), wanted);
    assert_eq!((db.rows("jobs"), db.rows("ready_executions")), (3, 1));
}

const STATES: &str = "'available', 'scheduled', 'retryable', 'running', 'completed', 'pending'";

/// The first three wait: each with its priority, and the minutes until it is due.
const ROWS: &str = "(VALUES ('available', 2, 0), ('scheduled', 3, 10), ('retryable', 1, 5), \
                    ('running', 1, 0), ('completed', 1, 0), ('pending', 1, 0)) AS rows";

fn jobs_of_river_move(db: &TestDb) {
    let (types, row) = match db.is_postgres() {
        true => (
            "id bigserial, state river_job_state, args jsonb, priority smallint, scheduled_at timestamptz",
            "column1::river_job_state, to_jsonb(column1), column2, now() + interval '1 minute' * column3",
        ),
        false => (
            "id integer PRIMARY KEY, state text, args blob, priority integer, scheduled_at timestamp",
            "column1, jsonb(json_quote(column1)), column2, strftime('%Y-%m-%d %H:%M:%f', 'now', column3 || ' minutes')",
        ),
    };
    if db.is_postgres() {
        db.execute(&format!("CREATE TYPE river_job_state AS ENUM ({STATES})"));
    }
    db.execute(&format!("CREATE TABLE river_job (kind text, {types})"));
    for kind in ["other", WELCOME.name()] {
        let rows = format!(
            "(kind, state, args, priority, scheduled_at) SELECT '{kind}', {row} FROM {ROWS}"
        );
        db.execute(&format!("INSERT INTO river_job {rows}"));
    }
    move_jobs(db, include_str!("../../docs/coming-from-river.md"));
    assert_moved(db, "available 1 0, retryable 0 5, scheduled 2 10");
    assert_eq!(db.rows_of("river_job WHERE kind = 'send_welcome'"), 3);
    assert_eq!(db.rows_of("river_job"), 9);
}

#[cfg(feature = "postgres")]
#[test]
fn jobs_of_graphile_worker_move() {
    let db = TestDb::postgres();
    db.in_transaction(&[
        "CREATE SCHEMA graphile_worker",
        "CREATE TABLE graphile_worker._private_tasks (id integer, identifier text)",
        "INSERT INTO graphile_worker._private_tasks VALUES (1, 'other'), (2, 'send_welcome')",
        "CREATE TABLE graphile_worker._private_jobs (id bigint, task_id integer, payload json, priority smallint, \
         run_at timestamptz, attempts smallint, max_attempts smallint, locked_at timestamptz)",
        "INSERT INTO graphile_worker._private_jobs VALUES (1, 2, '\"available\"', 2, now(), 0, 5, NULL), \
         (2, 2, '\"scheduled\"', -3, now() + interval '10 minutes', 0, 5, NULL), \
         (3, 2, '\"retryable\"', 0, now() + interval '5 minutes', 4, 5, NULL), (4, 1, '{}', 0, now(), 0, 5, NULL), \
         (5, 2, '\"failed\"', 0, now(), 5, 5, NULL), (6, 2, '\"locked\"', 0, now(), 1, 5, now())",
    ]);
    move_jobs(&db, include_str!("../../docs/coming-from-graphile.md"));
    assert_moved(&db, "available 2 0, retryable 0 5, scheduled -3 10");
    assert_eq!(db.rows_of("graphile_worker._private_jobs WHERE id > 3"), 3);
}

/// The view `awa.jobs` is a table here.
#[cfg(feature = "postgres")]
#[test]
fn jobs_of_awa_move() {
    let db = TestDb::postgres();
    db.in_transaction(&[
        "CREATE SCHEMA awa",
        &format!("CREATE TYPE awa.job_state AS ENUM ({STATES})"),
        "CREATE TABLE awa.jobs (id bigint, kind text, state awa.job_state, args jsonb, priority smallint, run_at timestamptz)",
        &format!(
            "INSERT INTO awa.jobs SELECT row_number() OVER (), 'send_welcome', column1::awa.job_state, \
             to_jsonb(column1), column2, now() + interval '1 minute' * column3 FROM {ROWS}"
        ),
    ]);
    move_jobs(&db, include_str!("../../docs/coming-from-awa.md"));
    assert_moved(&db, "available 0 0, retryable -1 5, scheduled 1 10");
    assert_eq!(db.rows_of("awa.jobs"), 3);
}
