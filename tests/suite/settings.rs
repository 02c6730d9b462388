//! Settings that cannot work are refused before anything is started, and
//! extreme ones that can do not harm.

use crate::on_each_database;
use crate::support::TestDb;
use crate::support::chance::Control;
use crate::support::jobs::{Gate, Log, Note, Wait};
use crate::support::wait::{DEADLINE, until};
use std::sync::Arc;
use std::time::Duration;
use windlass::{Database, Dispatcher, Error, Handle, Job, Registry, Result, Supervisor, Worker};

const SECOND: Duration = Duration::from_secs(1);

fn worker(db: &TestDb) -> Worker {
    Worker::new(&db.database, Registry::new())
}

#[track_caller]
fn refused(result: Result<Handle>, reason: &str) {
    let error = result.unwrap_err();
    assert!(
        matches!(error, Error::Settings(_) | Error::InvalidName { .. }),
        "{error:?}"
    );
    assert!(error.to_string().contains(reason), "{error}");
}

fn what_cannot_work_is_refused(db: &TestDb) {
    let dispatcher = || Dispatcher::new(&db.database);
    let supervisor = || Supervisor::new(&db.database);
    refused(worker(db).threads(0).start(), "at least one thread");
    refused(
        worker(db).queues([""; 0]).and_then(Worker::start),
        "at least one queue",
    );
    for name in ["", "a b", "a*b", "**", "ä"] {
        refused(
            worker(db).queues(["fine", name]).and_then(Worker::start),
            "is not a valid queue name",
        );
    }
    refused(
        worker(db).polling_interval(Duration::ZERO).start(),
        "above zero",
    );
    refused(
        dispatcher().polling_interval(Duration::ZERO).start(),
        "above zero",
    );
    refused(dispatcher().batch_size(0).start(), "above zero");
    let pulse = "at least three heartbeat intervals";
    for (interval, threshold) in [
        (SECOND, 3 * SECOND - Duration::from_nanos(1)),
        (Duration::ZERO, SECOND),
        (SECOND, Duration::ZERO),
        (Duration::MAX, Duration::MAX),
    ] {
        refused(
            worker(db)
                .heartbeat_interval(interval)
                .alive_threshold(threshold)
                .start(),
            pulse,
        );
        refused(
            dispatcher()
                .heartbeat_interval(interval)
                .alive_threshold(threshold)
                .start(),
            pulse,
        );
        refused(
            supervisor()
                .heartbeat_interval(interval)
                .alive_threshold(threshold)
                .start(),
            pulse,
        );
    }
    refused(
        worker(db)
            .heartbeat_interval(Duration::from_nanos(1))
            .start(),
        "at least 1ms",
    );
    let slow = dispatcher()
        .heartbeat_interval(40 * SECOND)
        .alive_threshold(600 * SECOND);
    refused(
        supervisor().dispatcher(slow).start(),
        "three heartbeat intervals of its dispatcher",
    );
    assert_eq!(db.rows("processes"), 0);
    let mut just = worker(db)
        .heartbeat_interval(SECOND)
        .alive_threshold(3 * SECOND)
        .start()
        .unwrap();
    just.stop();
    assert!(just.join(DEADLINE).is_some());
}

/// Nobody is left to beat for a supervisor that did not start.
fn a_refused_supervisor_leaves_nothing_behind(db: &TestDb) {
    let supervisor = Supervisor::new(&db.database)
        .heartbeat_interval(Duration::from_millis(10))
        .dispatcher(Dispatcher::new(&db.database))
        .worker(worker(db).threads(0));
    refused(supervisor.start(), "at least one thread");
    // The next process sends heartbeats, and so would one that was left behind.
    let mut control = Dispatcher::new(&db.database)
        .heartbeat_interval(Duration::from_millis(10))
        .start()
        .unwrap();
    let beats =
        "SELECT CAST(coalesce(sum(heartbeat_seq), 0) AS bigint) AS n FROM solid_queue_processes";
    until("the control beats", || db.count(beats) >= 20);
    assert_eq!(db.rows("processes"), 1);
    control.stop();
    assert!(control.join(DEADLINE).is_some());
    assert_eq!(db.rows("processes"), 0);
}

/// `MAX` is how one writes «for ever».
fn for_ever_is_a_duration(db: &TestDb) {
    let (log, gate) = (Arc::new(Log::default()), Arc::new(Gate::default()));
    let registry = Registry::new()
        .register::<Note>(Arc::clone(&log))
        .register::<Wait>(Arc::clone(&gate));
    let worker = Worker::new(&db.database, registry)
        .polling_interval(Duration::MAX)
        .alive_threshold(Duration::MAX)
        .shutdown_timeout(Duration::MAX);
    let mut supervisor = Supervisor::new(&db.database)
        .alive_threshold(Duration::MAX)
        .shutdown_timeout(Duration::MAX)
        .worker(worker)
        .dispatcher(Dispatcher::new(&db.database).polling_interval(Duration::MAX))
        .start()
        .unwrap();
    let mut conn = db.connect();
    Note::new("a").enqueue(&mut conn).unwrap();
    Wait.enqueue(&mut conn).unwrap();
    until("one is done, one runs", || {
        log.len() == 1 && gate.begun() == 1
    });
    let control = Control::start(db);
    supervisor.stop();
    control.has_stopped();
    assert!(supervisor.join(Duration::ZERO).is_none());
    gate.open();
    assert!(supervisor.join(Duration::MAX).unwrap().is_drained());
    assert_eq!(db.rows("processes") + db.rows("claimed_executions"), 0);
}

fn no_job_needs_more_connections_than_there_are(db: &TestDb) {
    let log = Arc::new(Log::default());
    let database = Database::open_with_pool(&db.url, 0).unwrap();
    let registry = Registry::new().register::<Note>(Arc::clone(&log));
    let _worker = Worker::new(&database, registry).threads(1).start().unwrap();
    Note::new("a")
        .enqueue(&mut database.get().unwrap())
        .unwrap();
    until("the job is done", || log.len() == 1);
}

on_each_database!(
    what_cannot_work_is_refused,
    a_refused_supervisor_leaves_nothing_behind,
    for_ever_is_a_duration,
    no_job_needs_more_connections_than_there_are,
);

/// The limits of a role for sessions without work, and from Postgres 17 on for whole transactions, are not those of the
/// connections of Windlass.
#[cfg(feature = "postgres")]
#[test]
fn postgres_limits_of_idle_sessions_are_overridden() {
    let db = TestDb::postgres();
    let name = db
        .texts("SELECT CAST(current_database() AS text) AS t")
        .remove(0);
    for setting in ["idle_session_timeout", "transaction_timeout"] {
        let known = format!("SELECT count(*) AS n FROM pg_settings WHERE name = '{setting}'");
        if db.count(&known) == 0 {
            continue;
        }
        db.execute(&format!("ALTER DATABASE {name} SET {setting} = '1h'"));
        let current = format!(
            "SELECT count(*) AS n FROM pg_settings WHERE name = '{setting}' AND setting = '0'"
        );
        assert_eq!(
            crate::support::db::count(&mut db.connection(), &current),
            1,
            "{setting}"
        );
    }
}
