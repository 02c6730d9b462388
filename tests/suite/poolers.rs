//! `PgBouncer` in transaction mode: the state that its sessions are left in, its detection, and the messages about it.

use crate::support::TestDb;
use crate::support::bouncer::Bouncer;
use crate::support::jobs::{Log, Note};
use crate::support::process::{Do, Scene, Work};
use crate::support::program::{Windlass, windlass};
use crate::support::wait::{DEADLINE, until};
use diesel::connection::{CacheSize, Connection as _, SimpleConnection as _};
use diesel::prelude::*;
use diesel::sql_types::Text;
use rustix::process::Signal;
use std::sync::Arc;
use std::time::Duration;
use windlass::database::Pooling;
use windlass::{Database, Job, NewJob, Registry, Scheduler, Worker};

#[derive(QueryableByName)]
struct Line {
    #[diesel(sql_type = Text)]
    line: String,
}

/// The sessions of the server that `by_transaction` has.
const SESSIONS: usize = 6;

/// All that a client finds in the session that it is given: settings, prepared statements, channels, tables and
/// locks. The settings of PL/pgSQL appear when a session first uses that.
const FOUND: &str = "SELECT 'setting ' || name || ' = ' || setting AS line FROM pg_settings \
     WHERE name NOT LIKE 'plpgsql.%' \
     UNION ALL SELECT 'prepared ' || name FROM pg_prepared_statements \
     UNION ALL SELECT 'cursor ' || name FROM pg_cursors \
     UNION ALL SELECT 'channel ' || channel FROM pg_listening_channels() AS channel \
     UNION ALL SELECT 'lock ' || objid FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid() \
     UNION ALL SELECT 'table ' || relname FROM pg_class WHERE relpersistence = 't' \
     ORDER BY line";

/// Returns the state that another client of the same pooler finds in each of its sessions, all of which it takes at
/// once.
fn found_by_a_neighbour(db: &TestDb) -> Vec<Vec<String>> {
    let url = db.url.split('?').next().unwrap();
    // The pooler gives these parameters to each session that it gives to a client.
    let url = format!("{url}?application_name=neighbour&client_encoding=UTF8");
    let mut clients: Vec<PgConnection> = (0..SESSIONS)
        .map(|_| {
            let mut client = PgConnection::establish(&url).unwrap();
            client.set_prepared_statement_cache_size(CacheSize::Disabled);
            client
        })
        .collect();
    for client in &mut clients {
        client.batch_execute("BEGIN").unwrap();
    }
    let found = clients.iter_mut().map(|client| {
        let lines: Vec<Line> = diesel::sql_query(FOUND).load(client).unwrap();
        lines.into_iter().map(|line| line.line).collect()
    });
    let found = found.collect();
    for client in &mut clients {
        client.batch_execute("COMMIT").unwrap();
    }
    found
}

/// Lets each process and command have a use of the database.
fn use_everything(db: &TestDb) {
    let scene = Scene::new(db);
    let mut supervisor = scene.supervisor(2);
    let mut conn = db.connect();
    for number in 0..50 {
        let name = format!("job-{number}");
        Work::new(&name, Do::Nothing).enqueue(&mut conn).unwrap();
    }
    let job = |name: &str| NewJob::new(&Work::new(name, Do::Nothing)).unwrap();
    job("once")
        .unique_id("once")
        .after(Duration::from_millis(20))
        .enqueue(&mut conn)
        .unwrap();
    let last = job("last").enqueue(&mut conn).unwrap();
    let ended = windlass::jobs::wait_for(&db.database, last.id, DEADLINE).unwrap();
    assert!(ended.is_some_and(|info| info.status.has_ended()));
    for command in [
        &["doctor"][..],
        &["status"],
        &["jobs", "list"],
        &["migrate"],
    ] {
        let said = windlass(&db.url, command);
        assert_eq!(said.code, Some(0), "{said:?}");
    }
    let mut scheduler = Scheduler::new(&db.database).start().unwrap();
    until("a scheduler is there", || {
        db.count("SELECT count(*) AS n FROM solid_queue_processes WHERE kind = 'Scheduler'") == 1
    });
    scheduler.stop();
    scheduler.join(DEADLINE).unwrap();
    scene.drained();
    supervisor.signal(Signal::TERM);
    assert_eq!(supervisor.exit().code(), Some(0));
}

fn leaves_nothing_behind(db: Option<TestDb>) {
    let Some(db) = db else { return };
    let before = found_by_a_neighbour(&db);
    assert!(before[0].len() > 300, "{:?}", before[0]);
    for session in &before {
        let new: Vec<_> = session
            .iter()
            .filter(|line| !before[0].contains(line))
            .collect();
        assert!(new.is_empty(), "{new:?}");
    }
    use_everything(&db);
    for session in found_by_a_neighbour(&db) {
        let new: Vec<_> = session
            .iter()
            .filter(|line| !before[0].contains(line))
            .collect();
        assert!(new.is_empty(), "{new:?}");
        assert_eq!(session.len(), before[0].len());
    }
}

#[test]
fn a_neighbour_finds_nothing_of_ours() {
    leaves_nothing_behind(TestDb::pooled());
}

#[test]
fn nor_where_the_pooler_was_recognised() {
    let db = TestDb::pooled_as("");
    if let Some(db) = &db {
        db.database.migrate().unwrap();
    }
    leaves_nothing_behind(db);
}

/// In a transaction of Windlass; outside of one, nothing is left of them.
#[test]
fn settings_come_with_each_transaction() {
    let Some(db) = TestDb::pooled() else { return };
    let settings = "SELECT string_agg(name || '=' || setting, ' ' ORDER BY name) AS line FROM pg_settings \
         WHERE name IN ('statement_timeout', 'lock_timeout', 'idle_in_transaction_session_timeout', \
         'transaction_isolation')";
    let mut conn = db.connect();
    let ours = "idle_in_transaction_session_timeout=15000 lock_timeout=5000 statement_timeout=30000 \
         transaction_isolation=read committed";
    let servers = "idle_in_transaction_session_timeout=0 lock_timeout=0 statement_timeout=0 \
         transaction_isolation=read committed";
    for _ in 0..2 {
        let within = conn.transaction(|conn| {
            let line: Line = diesel::sql_query(settings).get_result(conn.postgres()?)?;
            Ok::<_, Box<dyn std::error::Error>>(line.line)
        });
        assert_eq!(within.unwrap(), ours);
        let outside: Line = diesel::sql_query(settings)
            .get_result(conn.postgres().unwrap())
            .unwrap();
        assert_eq!(outside.line, servers);
    }
}

/// Returns the report of `windlass check --connect` about the pooler.
fn checked(url: &str, variables: &[(&str, &str)]) -> serde_json::Value {
    let directory = tempfile::tempdir().unwrap();
    let command = ["check", "--connect", "--json"];
    let mut check = Windlass::new(&command).current_dir(directory.path());
    check = check.env("WINDLASS_DATABASE_URL", url);
    for (name, value) in variables {
        check = check.env(name, value);
    }
    let said = check.run();
    assert_eq!(said.code, Some(0), "{said:?}");
    serde_json::from_str::<serde_json::Value>(&said.out).unwrap()["database"].take()
}

#[test]
fn it_is_recognised() {
    let Some(db) = TestDb::pooled_as("") else {
        return;
    };
    db.database.migrate().unwrap();
    let by_itself = checked(&db.url, &[]);
    assert_eq!(by_itself["pooling"], "transaction");
    assert_eq!(by_itself["listens"], false);
    // Beside other clients too.
    let _log = Arc::new(Log::default());
    let registry = || Registry::new().register::<Note>(Arc::clone(&_log));
    let _worker = Worker::new(&db.database, registry()).start().unwrap();
    assert_eq!(checked(&db.url, &[])["pooling"], "transaction");
    // The pooling is not looked for if the settings give it.
    let stated = [("WINDLASS_DATABASE_POOLING", "session")];
    assert_eq!(checked(&db.url, &stated)["pooling"], "session");
    let direct = [("WINDLASS_DATABASE_LISTEN_URL", db.address())];
    assert_eq!(checked(&db.url, &direct)["listens"], true);
    assert_eq!(checked(db.address(), &[])["pooling"], "session");
}

#[test]
fn session_mode_is_told_apart() {
    let db = TestDb::postgres();
    let Some(bouncer) = Bouncer::start(&db.url).map(Bouncer::listening) else {
        return;
    };
    let found = checked(&bouncer.url(&db.url), &[]);
    assert_eq!(found["pooling"], "session");
    assert_eq!(found["listens"], true);
}

/// A database behind a pooler in transaction mode that the address calls one in session mode.
fn misnamed() -> Option<TestDb> {
    let db = TestDb::pooled_as("?pooling=session")?;
    Database::open(db.address()).unwrap().migrate().unwrap();
    Some(db)
}

const ADVICE: [&str; 4] = [
    "prepared statement",
    "PgBouncer",
    "`pooling = \"transaction\"`",
    "`?pooling=transaction`",
];

/// Two programs that prepare statements of the same names meet in one session of the server.
#[test]
fn without_the_setting_the_error_names_it() {
    let Some(db) = misnamed() else { return };
    let mut conn = db.connect();
    Note::new("first").enqueue(&mut conn).unwrap();
    let said = windlass(&db.url, &["status"]);
    assert_eq!(said.code, Some(1), "{said:?}");
    assert_eq!(said.err.lines().count(), 1, "{said:?}");
    for part in ADVICE {
        assert!(said.err.contains(part), "`{part}` is not in: {}", said.err);
    }
}

/// Its statements could be those of others, so it sends no more.
#[test]
fn a_process_that_meets_the_statements_of_others_ends() {
    let Some(db) = misnamed() else { return };
    let scene = Scene::new(&db);
    for workers in [None, Some(1)] {
        let mut process = scene.worker_with(|role| {
            role.workers = workers;
            role.shutdown_ms = 500;
        });
        // 1: its check of the tables has met them, 70: one of its loops.
        let code = process.exit().code();
        assert!(matches!(code, Some(1 | 70)), "{code:?}");
        let log = process.log();
        for part in ADVICE {
            assert!(log.contains(part), "`{part}` is not in: {log}");
        }
    }
}

/// Without a direct address it asks for no notifications, and says so once.
#[test]
fn a_worker_that_cannot_listen_polls() {
    let Some(db) = TestDb::pooled_as("?pooling=transaction") else {
        return;
    };
    db.database.migrate().unwrap();
    let scene = Scene::new(&db);
    let worker = scene.worker();
    worker.logs("poll for jobs");
    let listening = "SELECT count(*) AS n FROM solid_queue_processes WHERE listening";
    for name in ["first", "second"] {
        Work::new(name, Do::Nothing)
            .enqueue(&mut db.connection())
            .unwrap();
        scene.ended(name, 1);
        assert_eq!(db.count(listening), 0);
    }
    scene.drained();
    let log = worker.log();
    assert_eq!(log.matches("poll for jobs").count(), 1, "{log}");
    assert!(!log.contains("nothing is kept in sessions"), "{log}");
}

#[test]
fn what_was_recognised_is_said() {
    let Some(db) = TestDb::pooled_as("") else {
        return;
    };
    db.database.migrate().unwrap();
    let scene = Scene::new(&db);
    let supervisor = scene.worker_with(|role| role.workers = Some(1));
    Work::new("job", Do::Nothing)
        .enqueue(&mut db.connection())
        .unwrap();
    scene.ended("job", 1);
    supervisor.logs("nothing is kept in sessions");
}

/// An index of a large table is not built in one transaction, in which all others would wait for it.
#[test]
fn a_long_migration_goes_past_the_pooler() {
    let Some(db) = TestDb::pooled() else { return };
    let fill = "INSERT INTO solid_queue_jobs (queue_name, class_name, priority, created_at, updated_at) \
         SELECT 'q', 'c', 0, now(), now() FROM generate_series(1, 2000)";
    db.execute(fill);
    let index = "SELECT indexname::text AS t FROM pg_indexes WHERE tablename = 'solid_queue_jobs' \
         AND indexname LIKE '%concurrency_key' ORDER BY 1";
    let name = &db.texts(index)[0];
    db.execute(&format!("DROP INDEX {name}"));
    let refused = db.database.migrate().unwrap_err().to_string();
    assert!(
        refused.contains("does not lead through the pooler"),
        "{refused}"
    );
    assert!(!db.texts(index).contains(name));
    Database::open(db.address()).unwrap().migrate().unwrap();
    assert!(db.texts(index).contains(name));
    assert!(db.database.migrate().unwrap().is_empty());
}

#[test]
fn a_wrong_parameter_is_refused() {
    let refused = |url: &str| Database::open(url).unwrap_err().to_string();
    let told = refused("postgres://db/app?pooling=yes");
    assert!(
        told.contains("`auto`, `session` or `transaction`"),
        "{told}"
    );
    let told = refused("postgres://db/app?listen_url=jobs.db");
    assert!(told.contains("leads to Postgres"), "{told}");
    let database = Database::open("postgres://db/app").unwrap();
    let database = database.pooling(Pooling::Transaction);
    assert!(database.listen_url("sqlite://jobs.db").is_err());
}
