//! Migrating the tables of a Postgres database beside programs that write to
//! them all the time.
#![cfg(feature = "postgres")]

use crate::support::TestDb;
use crate::support::db::{count, execute};
use crate::support::solid_queue;
use crate::support::wait::until;
use diesel::prelude::*;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// As Solid Queue and its users write, each in an order of its own.
const WRITERS: [&[&str]; 4] = [
    &[
        "INSERT INTO solid_queue_jobs (queue_name, class_name, created_at, updated_at) VALUES ('q', 'c', now(), now())",
        "INSERT INTO solid_queue_ready_executions (job_id, queue_name, created_at) SELECT max(id), 'q', now() FROM solid_queue_jobs ON CONFLICT DO NOTHING",
    ],
    &[
        "SELECT job_id FROM solid_queue_ready_executions ORDER BY priority, job_id LIMIT 5 FOR UPDATE SKIP LOCKED",
        "SELECT count(*) FROM solid_queue_processes",
        "SELECT id FROM solid_queue_jobs ORDER BY id DESC LIMIT 1 FOR UPDATE SKIP LOCKED",
    ],
    &[
        "SELECT count(*) FROM solid_queue_claimed_executions",
        "SELECT count(*) FROM solid_queue_scheduled_executions",
        "UPDATE solid_queue_jobs SET finished_at = now() WHERE id = (SELECT id FROM solid_queue_jobs ORDER BY id DESC LIMIT 1 FOR UPDATE SKIP LOCKED)",
    ],
    &[
        "UPDATE solid_queue_processes SET last_heartbeat_at = now()",
        "SELECT count(*) FROM solid_queue_ready_executions",
        "SELECT count(*) FROM solid_queue_recurring_tasks",
    ],
];

/// Writes until told to stop, and returns the longest wait for a transaction.
fn write(db: &TestDb, statements: &[&str], stop: &AtomicBool, done: &AtomicUsize) -> Duration {
    let mut conn = PgConnection::establish(&db.url).unwrap();
    let mut longest = Duration::ZERO;
    while !stop.load(Ordering::Relaxed) {
        let start = Instant::now();
        conn.transaction(|conn| {
            statements
                .iter()
                .try_for_each(|text| diesel::sql_query(*text).execute(conn).map(drop))
        })
        .unwrap_or_else(|error| panic!("a writer must notice nothing but a wait: {error}"));
        longest = longest.max(start.elapsed());
        done.fetch_add(1, Ordering::Relaxed);
    }
    longest
}

/// The database of a Rails app that is at work, with so many finished jobs.
fn at_work(db: &TestDb, jobs: usize, migrate: impl FnOnce()) {
    db.execute(&format!(
        "INSERT INTO solid_queue_jobs (queue_name, class_name, finished_at, created_at, updated_at) \
         SELECT 'q', 'c', now(), now(), now() FROM generate_series(1, {jobs})"
    ));
    let (stop, done) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let writers: Vec<_> = WRITERS
            .iter()
            .cycle()
            .take(8)
            .map(|statements| scope.spawn(|| write(db, statements, &stop, &done)))
            .collect();
        let so_far = |n: usize| done.load(Ordering::Relaxed) > n;
        until("all write", || so_far(100));
        let before = done.load(Ordering::Relaxed);
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(migrate));
        until("they still write", || {
            so_far(before + 100) || ended.is_err()
        });
        stop.store(true, Ordering::Relaxed);
        let waits = writers.into_iter().map(|writer| writer.join().unwrap());
        eprintln!("the longest wait of a writer: {:?}", waits.max().unwrap());
        ended.unwrap();
    });
}

#[test]
fn writers_of_every_order_notice_nothing_but_a_short_wait() {
    for jobs in [0, 5_000] {
        let db = TestDb::empty_lone_postgres();
        solid_queue::create(&db);
        at_work(&db, jobs, || {
            let done = db.database.migrate().unwrap();
            assert_eq!(done.versions.len(), 2, "{done:?}");
            assert!(done.completed.len() > 30, "{done:?}");
        });
        assert!(db.database.migrate().unwrap().is_empty());
    }
}

/// A session that has a row locked and does nothing more.
fn holding(db: &TestDb) -> PgConnection {
    let mut conn = PgConnection::establish(&db.url).unwrap();
    execute(&mut conn, "SET application_name = 'the one who holds'");
    execute(&mut conn, "BEGIN");
    execute(&mut conn, "SELECT count(*) FROM solid_queue_pauses");
    conn
}

#[test]
fn nothing_is_locked_when_nothing_is_missing() {
    let db = TestDb::postgres();
    let _holder = holding(&db);
    assert!(db.database.migrate().unwrap().is_empty());
}

/// A migration waits for a table that another session has locked, while writers go on.
#[test]
fn a_long_transaction_is_waited_for_without_holding_up_writers() {
    let db = TestDb::postgres();
    db.execute("ALTER TABLE solid_queue_pauses DROP COLUMN paused_by");
    db.execute("ALTER TABLE solid_queue_jobs DROP COLUMN policy");
    let mut holder = holding(&db);
    std::thread::scope(|scope| {
        let migration = scope.spawn(|| db.database.migrate().unwrap().completed.len());
        let mut writer = PgConnection::establish(&db.url).unwrap();
        for _ in 0..50 {
            execute(&mut writer, WRITERS[0][0]);
            execute(&mut writer, "SELECT pg_sleep(0.01)");
        }
        assert!(!migration.is_finished());
        execute(&mut holder, "COMMIT");
        assert_eq!(migration.join().unwrap(), 2);
    });
}

/// An index of a large table that could not be built to its end stays behind,
/// not valid, and is built again.
#[test]
fn an_index_that_was_not_built_to_its_end_is_built_again() {
    let db = TestDb::postgres();
    let index = "index_windlass_jobs_on_idempotency_key";
    db.execute(&format!("DROP INDEX {index}"));
    db.execute(
        "INSERT INTO solid_queue_jobs (queue_name, class_name, idempotency_key, created_at, updated_at) \
         SELECT 'q', 'c', greatest(n, 2), now(), now() FROM generate_series(1, 2000) AS n",
    );
    let error = db.database.migrate().unwrap_err().to_string();
    assert!(
        error.contains(index) && error.contains("could not create unique index"),
        "{error}"
    );
    let valid = format!(
        "SELECT count(*) AS n FROM pg_index WHERE indexrelid = '{index}'::regclass AND indisvalid"
    );
    assert_eq!(count(&mut db.connection(), &valid), 0);
    db.execute("DELETE FROM solid_queue_jobs WHERE id = (SELECT min(id) FROM solid_queue_jobs)");
    let done = db.database.migrate().unwrap().completed;
    assert_eq!(
        done,
        [format!(
            "the index {index} of solid_queue_jobs is not valid"
        )]
    );
    assert_eq!(count(&mut db.connection(), &valid), 1);
}
