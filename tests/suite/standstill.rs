//! Work that does not go on is named by `doctor`.

use crate::on_each_database;
use crate::support::TestDb;
use crate::support::db::execute;
use crate::support::jobs::Note;
use crate::support::process::Scene;
use crate::support::wait::until;
use diesel::connection::{Connection as _, SimpleConnection as _};
use std::time::Duration;
use windlass::{Concurrency, Dispatcher, NewJob};
use windlass_console::{Finding, Verdict};

on_each_database!(
    a_promotion_that_is_refused_is_named,
    a_request_that_waits_is_named,
    a_worker_that_was_left_quiet_is_named,
    a_write_turn_that_is_kept_is_named,
    a_supervisor_without_a_worker_says_so,
);

/// The findings of a check that are not fine.
fn found(db: &TestDb, check: &str) -> Vec<Finding> {
    let findings = windlass_console::doctor(&mut db.connection()).unwrap();
    let bad = |one: &Finding| one.check == check && one.verdict != Verdict::Fine;
    findings.into_iter().filter(bad).collect()
}

fn a_promotion_that_is_refused_is_named(db: &TestDb) {
    if db.is_postgres() {
        db.execute(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'refused by the test'; END $$",
        );
        db.execute(
            "CREATE TRIGGER refuse BEFORE INSERT ON solid_queue_ready_executions FOR EACH ROW \
             WHEN (NEW.queue_name = 'bad') EXECUTE FUNCTION refuse()",
        );
    } else {
        db.execute(
            "CREATE TRIGGER refuse BEFORE INSERT ON solid_queue_ready_executions WHEN NEW.queue_name = 'bad' \
             BEGIN SELECT RAISE(ABORT, 'refused by the test'); END",
        );
    }
    let on_key = |key: &str| {
        let job = NewJob::new(&Note::new(key)).unwrap();
        job.concurrency(Concurrency::new(key).group("g"))
    };
    let mut conn = db.connect();
    on_key("bad").queue("bad").enqueue(&mut conn).unwrap();
    on_key("good").enqueue(&mut conn).unwrap();
    assert!(found(db, "requests").is_empty());
    let _dispatcher = Dispatcher::new(&db.database)
        .polling_interval(Duration::from_millis(20))
        .start()
        .unwrap();
    until("the other key goes on", || db.rows("ready_executions") == 1);
    until("it is named", || {
        let found = found(db, "requests");
        found.iter().any(|one| one.says.contains("`g/bad`"))
    });
    let found = found(db, "requests");
    assert!(
        found.iter().all(|one| !one.says.contains("good")),
        "{found:?}"
    );
    db.execute(match db.is_postgres() {
        true => "DROP TRIGGER refuse ON solid_queue_ready_executions",
        false => "DROP TRIGGER refuse",
    });
    until("it goes on", || db.rows("ready_executions") == 2);
}

fn a_request_that_waits_is_named(db: &TestDb) {
    db.execute("INSERT INTO windlass_wanted_keys (key) VALUES ('g/new')");
    assert!(found(db, "requests").is_empty());
    db.execute(
        "INSERT INTO windlass_wanted_keys (key, waiting_since) VALUES ('g/old', '2026-01-01 00:00:00.000000')",
    );
    let found = found(db, "requests");
    let [one] = &found[..] else {
        panic!("{found:?}");
    };
    assert!(
        one.says.contains("`g/old`") && !one.says.contains("g/new"),
        "{one:?}"
    );
}

fn a_worker_that_was_left_quiet_is_named(db: &TestDb) {
    let now = match db.is_postgres() {
        true => "statement_timestamp() AT TIME ZONE 'UTC'",
        false => "strftime('%Y-%m-%d %H:%M:%f000', 'now')",
    };
    let process = |id: u32, kind: &str, supervisor: &str, quiet: bool| {
        db.execute(&format!(
            "INSERT INTO solid_queue_processes (id, kind, name, pid, supervisor_id, metadata, last_heartbeat_at, created_at) \
             VALUES ({id}, '{kind}', '{kind}-{id}', {id}, {supervisor}, '{{\"quiet\":{quiet}}}', {now}, {now})"
        ));
    };
    let named = || {
        let found = found(db, "processes");
        found.iter().any(|one| {
            one.says
                .contains("although their supervisor is not: Worker-8")
        })
    };
    process(7, "Supervisor", "NULL", true);
    process(8, "Worker", "7", true);
    process(9, "Worker", "NULL", true);
    assert!(!named());
    db.execute("UPDATE solid_queue_processes SET metadata = '{}' WHERE id = 7");
    assert!(named());
}

/// Postgres has many writers, and no turns.
fn a_write_turn_that_is_kept_is_named(db: &TestDb) {
    let says = || {
        let found = found(db, "writes");
        let says: Vec<String> = found.into_iter().map(|one| one.says).collect();
        says.join("\n")
    };
    assert_eq!(says(), "");
    let mut keeps = db.connect();
    execute(
        &mut keeps,
        if db.is_postgres() {
            "BEGIN"
        } else {
            "BEGIN IMMEDIATE"
        },
    );
    let own = format!(
        "process {} has had its turn to write for more than 1s",
        std::process::id()
    );
    assert_eq!(says().contains(&own), !db.is_postgres(), "{}", says());
    execute(&mut keeps, "ROLLBACK");
    assert_eq!(says(), "");
    if db.is_postgres() {
        return;
    }
    let path = db.url.trim_start_matches("sqlite://");
    let mut other = diesel::SqliteConnection::establish(path).unwrap();
    other.batch_execute("BEGIN IMMEDIATE").unwrap();
    assert!(
        says().contains("takes no turns has held the write lock"),
        "{}",
        says()
    );
    other.batch_execute("ROLLBACK").unwrap();
    assert_eq!(says(), "");
}

fn a_supervisor_without_a_worker_says_so(db: &TestDb) {
    Scene::with_deaths(db)
        .supervisor(0)
        .logs("no worker is registered");
}
