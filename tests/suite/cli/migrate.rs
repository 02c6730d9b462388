//! `windlass migrate` and `windlass migrations copy`.

use crate::on_each_empty_database;
use crate::support::TestDb;
use crate::support::jobs::{Log, Note};
use crate::support::program::{Windlass, windlass};
use crate::support::solid_queue;
use crate::support::wait::until;
use diesel::prelude::*;
use diesel_migrations::{FileBasedMigrations, MigrationHarness};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use windlass::{Job, Registry, Worker};

on_each_empty_database!(
    tables_are_created_once,
    many_may_migrate_at_once,
    a_database_of_rails_keeps_its_rows,
    copied_migrations_serve_a_worker,
    copies_leave_what_is_there,
);

/// Another of the same kind.
fn empty(db: &TestDb) -> TestDb {
    #[cfg(feature = "postgres")]
    if db.is_postgres() {
        return TestDb::empty_postgres();
    }
    assert!(!db.is_postgres());
    TestDb::empty_sqlite()
}

fn serves_a_worker(db: &TestDb) {
    let log = Arc::new(Log::default());
    let registry = Registry::new().register::<Note>(Arc::clone(&log));
    let _worker = Worker::new(&db.database, registry)
        .polling_interval(Duration::from_millis(20))
        .start()
        .unwrap();
    Note::new("ours").enqueue(&mut db.connection()).unwrap();
    until("a job is done", || log.lines().contains(&"ours".to_owned()));
    until("it is finished", || db.rows("claimed_executions") == 0);
}

fn tables_are_created_once(db: &TestDb) {
    let said = windlass(&db.url, &["migrate"]);
    assert!(said.is_done(), "{said:?}");
    assert!(said.out.starts_with("Applied to "), "{}", said.out);
    assert!(said.out.contains("\n  20261128000001\n"), "{}", said.out);
    let said = windlass(&db.url, &["migrate"]);
    assert!(said.out.starts_with("Nothing to do"), "{said:?}");
    let said = windlass(&db.url, &["migrate", "--json"]).json();
    assert_eq!(said["applied"], serde_json::json!([]));
    serves_a_worker(db);
}

fn many_may_migrate_at_once(db: &TestDb) {
    for _ in 0..3 {
        let db = empty(db);
        let migrate = || {
            Windlass::new(&["migrate", "--json"])
                .env("DATABASE_URL", &db.url)
                .start()
        };
        let running: Vec<_> = (0..6).map(|_| migrate()).collect();
        let applied: Vec<_> = running
            .into_iter()
            .map(|running| running.said().json()["applied"].clone())
            .filter(|applied| applied != &serde_json::json!([]))
            .collect();
        assert_eq!(applied.len(), 1, "{applied:?}");
        assert_eq!(windlass(&db.url, &["status"]).code, Some(0));
    }
}

fn a_database_of_rails_keeps_its_rows(db: &TestDb) {
    solid_queue::create(db);
    solid_queue::enqueue(db, "note", r#"[{"text":"from Rails"}]"#);
    let time = "'2026-11-20 10:00:00.000000'";
    db.execute(&format!(
        "INSERT INTO solid_queue_jobs (queue_name, class_name, arguments, finished_at, created_at, updated_at) \
         VALUES ('default', 'ReportJob', '{{}}', {time}, {time}, {time})"
    ));
    db.execute(&format!(
        "INSERT INTO solid_queue_processes (kind, last_heartbeat_at, pid, hostname, created_at, name) \
         VALUES ('Supervisor(fork)', {time}, 1, 'web', {time}, 'supervisor-a')"
    ));
    assert!(windlass(&db.url, &["migrate"]).is_done());
    assert_eq!(db.rows("ready_executions"), 1);
    assert_eq!(
        db.count(
            "SELECT count(*) AS n FROM solid_queue_jobs WHERE attempts = 0 AND crash_count = 0 \
             AND NOT at_most_once AND idempotency_key IS NULL"
        ),
        2
    );
    let status = windlass(&db.url, &["status", "--json"]).json();
    assert_eq!(status["queues"][0]["ready"], 1);
    assert_eq!(status["processes"][0]["kind"], "Supervisor(fork)");
    serves_a_worker(db);
    until("the job of Rails is finished", || {
        db.count("SELECT count(*) AS n FROM solid_queue_jobs WHERE finished_at IS NOT NULL") == 3
    });
    // Its process is not ours to judge, however old its heartbeat.
    assert_eq!(db.rows("processes"), 1);
}

fn run_copied(db: &TestDb, directory: &Path) {
    let migrations = FileBasedMigrations::from_path(directory).unwrap();
    #[cfg(feature = "postgres")]
    if db.is_postgres() {
        let mut conn = PgConnection::establish(&db.url).unwrap();
        conn.run_pending_migrations(migrations).unwrap();
        return;
    }
    let mut conn = SqliteConnection::establish(db.url.strip_prefix("sqlite://").unwrap()).unwrap();
    conn.run_pending_migrations(migrations).unwrap();
}

fn copied_migrations_serve_a_worker(db: &TestDb) {
    let directory = tempfile::tempdir().unwrap();
    let target = directory.path().join("migrations");
    // The address alone says for which database; nothing is there yet.
    let said = windlass(&db.url, &["migrations", "copy", target.to_str().unwrap()]);
    assert!(said.is_done(), "{said:?}");
    assert!(said.out.contains("Wrote "), "{}", said.out);
    run_copied(db, &target);
    let said = windlass(&db.url, &["migrate"]);
    assert!(said.out.starts_with("Nothing to do"), "{said:?}");
    serves_a_worker(db);
}

fn copies_leave_what_is_there(db: &TestDb) {
    let directory = tempfile::tempdir().unwrap();
    let dialect = if db.is_postgres() {
        "postgres"
    } else {
        "sqlite"
    };
    let copy = || {
        Windlass::new(&["migrations", "copy", ".", "--dialect", dialect])
            .current_dir(directory.path())
            .run()
            .out
    };
    let first = copy();
    assert!(
        first.lines().all(|line| line.starts_with("Wrote ")),
        "{first}"
    );
    let second = copy();
    assert!(
        second.lines().all(|line| line.ends_with("which exists")),
        "{second}"
    );
    assert_eq!(first.lines().count(), second.lines().count());
    let edited = directory
        .path()
        .join("2026-11-28-000001_solid_queue/up.sql");
    std::fs::write(&edited, "-- mine").unwrap();
    std::fs::remove_dir_all(directory.path().join("2026-11-28-000002_windlass")).unwrap();
    let third = copy();
    assert!(third.lines().next().unwrap().contains("DIFFERS"), "{third}");
    assert!(
        third.lines().nth(1).unwrap().starts_with("Wrote "),
        "{third}"
    );
    assert_eq!(std::fs::read_to_string(edited).unwrap(), "-- mine");
}
