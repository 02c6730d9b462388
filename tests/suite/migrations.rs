//! Migrating: an empty database, a Rails app's, twice, at once, back, and
//! when something fails in the middle.

use crate::support::TestDb;
use crate::support::db::{count, execute};
use crate::support::jobs::{Log, Note};
use crate::support::program::windlass;
use crate::support::solid_queue;
use crate::support::wait::{DEADLINE, until};
use crate::{on_each_database, on_each_empty_database, with_own_connection};
use diesel::connection::SimpleConnection;
use std::sync::{Arc, Barrier};
use windlass::database::Dialect;
use windlass::errors::SchemaError;
use windlass::{Error, Job, Registry, Worker};

fn dialect(db: &TestDb) -> Dialect {
    if db.is_postgres() {
        Dialect::Postgres
    } else {
        Dialect::Sqlite
    }
}

/// The tables that Windlass could have made, by name.
fn tables(db: &TestDb) -> Vec<String> {
    let mut tables: Vec<String> = db
        .columns()
        .into_iter()
        .map(|column| column.table)
        .collect();
    tables.dedup();
    tables
}

/// Everything that migrations are about, in one comparable text.
fn shape(db: &TestDb) -> String {
    format!("{:#?}\n{:#?}", db.columns(), db.unique_indexes())
}

fn a_job_is_performed(db: &TestDb) {
    let log = Arc::new(Log::default());
    let registry = Registry::new().register::<Note>(Arc::clone(&log));
    let _worker = Worker::new(&db.database, registry).start().unwrap();
    Note::new("a").enqueue(&mut db.connection()).unwrap();
    until("the job is done", || log.len() == 1);
}

/// Every migration there is, in order.
const VERSIONS: [&str; 2] = ["20261128000001", "20261128000002"];

fn an_empty_database_gets_all_tables_once(db: &TestDb) {
    assert_eq!(db.database.migrate().unwrap().versions, VERSIONS);
    let shape_before = shape(db);
    assert_eq!(tables(db).len(), 45);
    assert!(db.database.migrate().unwrap().is_empty());
    assert_eq!(shape(db), shape_before);
    a_job_is_performed(db);
}

/// Every thread with connections of its own, on a file or schema where there
/// is nothing at all yet.
fn migrating_at_once_is_migrating_once(db: &TestDb) {
    let barrier = Barrier::new(4);
    let applied: Vec<usize> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let database = windlass::Database::open(&db.url).unwrap();
                    barrier.wait();
                    database.migrate().unwrap().versions.len()
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    assert_eq!(applied.iter().sum::<usize>(), VERSIONS.len(), "{applied:?}");
}

/// The race above is over in a moment, so it is run on many new files.
#[test]
fn many_new_files_are_migrated_at_once() {
    for _ in 0..20 {
        migrating_at_once_is_migrating_once(&TestDb::empty_sqlite());
    }
}

/// A session that waits for locks only briefly, as ours do, still waits for
/// another migration to end.
#[cfg(feature = "postgres")]
#[test]
fn a_migration_under_way_is_waited_for() {
    let db = TestDb::empty_postgres();
    std::thread::scope(|scope| {
        with_own_connection!(db, |conn| {
            conn.transaction::<_, Error, _>(|conn| {
                windlass::migrate(conn)?;
                let second = scope.spawn(|| {
                    with_own_connection!(db, |conn| {
                        execute(&mut conn, "SET lock_timeout = '100ms'");
                        let applied = windlass::migrate(&mut conn);
                        let timeout = "SELECT count(*) AS n FROM pg_settings WHERE name = 'lock_timeout' AND setting = '100'";
                        (applied, count(&mut conn, timeout))
                    })
                });
                until("the second one waits", || {
                    // Within a transaction it would see what the first look saw.
                    execute(conn, "SELECT pg_stat_clear_snapshot()");
                    count(
                        conn,
                        "SELECT count(*) AS n FROM pg_stat_activity WHERE pid <> pg_backend_pid() \
                         AND query LIKE 'SELECT pg_try_advisory_lock%'",
                    ) > 0
                        || second.is_finished()
                });
                execute(conn, "SELECT pg_sleep(0.3)");
                Ok(second)
            })
            .map(|second| {
                let (applied, kept) = second.join().unwrap();
                assert!(applied.unwrap().is_empty());
                assert_eq!(kept, 1, "the caller's own setting must come back");
            })
            .unwrap();
        });
    });
}

fn a_database_of_rails_gets_what_it_lacks(db: &TestDb) {
    solid_queue::create(db);
    solid_queue::enqueue(
        db,
        "note",
        r#"[{"text":"waited since before the migration"}]"#,
    );
    db.execute(
        "INSERT INTO solid_queue_processes (kind, last_heartbeat_at, pid, created_at, name) VALUES \
         ('Worker', '2026-01-01 00:00:00.000000', 1, '2026-01-01 00:00:00.000000', 'worker-of-rails')",
    );
    let completed = db.database.migrate().unwrap().completed;
    let is_of_default = |line: &&String| line.contains("default of");
    assert_eq!(completed.iter().find(is_of_default), None);
    let log = Arc::new(Log::default());
    let registry = Registry::new().register::<Note>(Arc::clone(&log));
    let _worker = Worker::new(&db.database, registry).start().unwrap();
    until("the job of Rails is done", || log.len() == 1);
    Note::new("ours").enqueue(&mut db.connection()).unwrap();
    until("ours is done", || log.len() == 2);
    assert_eq!(
        db.count("SELECT count(*) AS n FROM solid_queue_processes WHERE name = 'worker-of-rails' AND heartbeat_seq IS NULL"),
        1
    );
    // The only differences from the tables of an empty database are choices of Rails.
    let fresh = if db.is_postgres() {
        #[cfg(feature = "postgres")]
        let fresh = TestDb::postgres();
        #[cfg(not(feature = "postgres"))]
        let fresh = unreachable!();
        fresh
    } else {
        TestDb::sqlite()
    };
    assert_eq!(db.unique_indexes(), fresh.unique_indexes());
    let names = |db: &TestDb| -> Vec<String> {
        let mut names: Vec<String> = db
            .columns()
            .iter()
            .map(|column| format!("{}.{}", column.table, column.name))
            .collect();
        names.sort();
        names
    };
    assert_eq!(names(db), names(&fresh));
}

/// Those who run migrations with Diesel's tools copy them; the program then
/// finds nothing left to do, and `down.sql` takes everything back.
fn copied_migrations_run_forth_and_back(db: &TestDb) {
    let original = shape(db);
    let directory = tempfile::tempdir().unwrap();
    let made = windlass::schema::copy_migrations(dialect(db), directory.path()).unwrap();
    assert_eq!(made.len(), VERSIONS.len());
    let again = windlass::schema::copy_migrations(dialect(db), directory.path()).unwrap();
    assert!(again.is_empty(), "what exists is left as it is");
    let run = |index: usize, file: &str| {
        let text = std::fs::read_to_string(made[index].join(file)).unwrap();
        with_own_connection!(db, |conn| conn.batch_execute(&text).unwrap());
    };
    for index in (1..VERSIONS.len()).rev() {
        run(index, "down.sql");
    }
    assert_eq!(
        db.texts("SELECT version AS t FROM windlass_schema_migrations"),
        VERSIONS[..1]
    );
    let theirs = db.columns();
    let has = |name: &str| theirs.iter().any(|column| column.name == name);
    assert!(!has("crash_count") && !has("heartbeat_seq"));
    assert_eq!(db.database.migrate().unwrap().versions, VERSIONS[1..]);
    assert_eq!(shape(db), original);
    for index in (0..VERSIONS.len()).rev() {
        run(index, "down.sql");
    }
    assert_eq!(tables(db), Vec::<String>::new());
    // SQLite adds no column twice; on Postgres, all may be repeated.
    for _ in 0..if db.is_postgres() { 2 } else { 1 } {
        for index in 0..VERSIONS.len() {
            run(index, "up.sql");
        }
        assert_eq!(shape(db), original);
    }
    assert!(db.database.migrate().unwrap().is_empty());
    a_job_is_performed(db);
}

/// One of those before the newest, too: statements need them all.
fn a_migration_that_was_left_out_is_named(db: &TestDb) {
    for left_out in VERSIONS {
        let forget = format!("DELETE FROM windlass_schema_migrations WHERE version = '{left_out}'");
        assert_eq!(db.execute(&forget), 1);
        let worker = Worker::new(&db.database, Registry::new()).start();
        let error = worker.map(drop).unwrap_err();
        assert!(
            matches!(&error, Error::Schema(SchemaError::Old { needed, .. }) if needed == left_out),
            "{error:?}"
        );
        let message = error.to_string();
        assert!(
            message.contains(&format!("needs {left_out}, which has not been applied")),
            "{message}"
        );
        let again = "INSERT INTO windlass_schema_migrations (version, applied_at) VALUES";
        db.execute(&format!(
            "{again} ('{left_out}', '2026-01-01 00:00:00.000000')"
        ));
    }
    a_job_is_performed(db);
}

/// The second migration cannot use a column that has another type.
fn a_failed_migration_keeps_nothing(db: &TestDb) {
    solid_queue::create(db);
    db.execute("ALTER TABLE solid_queue_jobs ADD COLUMN crash_count text");
    let before = shape(db);
    let error = db.database.migrate().unwrap_err();
    assert!(
        matches!(&error, Error::Migration { version, .. } if version == VERSIONS[1]),
        "{error:?}"
    );
    assert!(error.to_string().contains("crash_count"), "{error}");
    assert_eq!(shape(db), before);
    db.execute("ALTER TABLE solid_queue_jobs DROP COLUMN crash_count");
    assert_eq!(
        db.database.migrate().unwrap().versions.len(),
        VERSIONS.len()
    );
}

fn the_users_own_connection_does_as_well(db: &TestDb) {
    if !db.is_postgres() {
        std::fs::File::create(db.address()).unwrap();
    }
    with_own_connection!(db, |conn| {
        // In the user's own transaction the tables go with a rollback.
        let result = conn.transaction::<(), Error, _>(|conn| {
            assert_eq!(windlass::migrate(conn)?.versions.len(), VERSIONS.len());
            Note::new("gone too").enqueue(conn)?;
            Err(diesel::result::Error::RollbackTransaction.into())
        });
        assert!(result.is_err());
        assert_eq!(tables(db), Vec::<String>::new());
        assert_eq!(
            windlass::migrate(&mut conn).unwrap().versions.len(),
            VERSIONS.len()
        );
        assert!(windlass::migrate(&mut conn).unwrap().is_empty());
        Note::new("kept").enqueue(&mut conn).unwrap();
    });
    assert_eq!(db.rows("ready_executions"), 1);
}

fn processes_refuse_tables_that_are_missing_or_old(db: &TestDb) {
    if !db.is_postgres() {
        std::fs::File::create(db.address()).unwrap();
    }
    let refused = || {
        let mut errors = vec![
            Worker::new(&db.database, Registry::new())
                .start()
                .unwrap_err(),
            windlass::Dispatcher::new(&db.database).start().unwrap_err(),
            windlass::Supervisor::new(&db.database).start().unwrap_err(),
        ];
        errors.dedup_by_key(|error| error.to_string());
        assert_eq!(errors.len(), 1);
        errors[0].to_string()
    };
    assert!(refused().contains("run `windlass migrate"), "{}", refused());
    db.database.migrate().unwrap();
    let [.., before, newest] = VERSIONS;
    db.execute(&format!(
        "DELETE FROM windlass_schema_migrations WHERE version = '{newest}'"
    ));
    let error = refused();
    assert!(error.contains(&format!("of version {before}")), "{error}");
    assert!(error.contains(&format!("needs {newest}")), "{error}");
    // Newer ones serve: migrations only ever add.
    db.execute(&format!(
        "INSERT INTO windlass_schema_migrations (version, applied_at) VALUES \
         ('{newest}', '2026-11-21 00:00:00'), ('29991231000000', '2026-11-21 00:00:00')"
    ));
    let mut worker = Worker::new(&db.database, Registry::new()).start().unwrap();
    worker.stop();
    assert!(worker.join(DEADLINE).is_some());
}

/// Nothing was released before, so no table of then is brought up to date.
fn tables_of_a_version_before_the_first_release_are_refused(db: &TestDb) {
    let versions = "SELECT version AS t FROM windlass_schema_migrations ORDER BY version";
    let insert = |version: &str| {
        db.execute(&format!(
            "INSERT INTO windlass_schema_migrations (version, applied_at) VALUES ('{version}', '2026-11-21 00:00:00')"
        ));
    };
    let is_refused = |result: Result<(), Error>| {
        let error = result.unwrap_err();
        assert!(
            matches!(&error, Error::Schema(SchemaError::Unreleased { found, .. }) if found == "20261121000001"),
            "{error:?}"
        );
    };
    insert("20261121000001");
    insert("20261125000004");
    // Also without the migrations of this version, and beside those of a later one.
    for more in [
        "DELETE FROM windlass_schema_migrations WHERE version LIKE '20261128%'",
        "",
    ] {
        if more.is_empty() {
            insert("29991231000000");
        } else {
            db.execute("ALTER TABLE solid_queue_pauses DROP COLUMN pause_reason");
            db.execute(more);
        }
        let before = (shape(db), db.texts(versions));
        is_refused(db.database.migrate().map(drop));
        is_refused(windlass::migrate(&mut db.connection()).map(drop));
        is_refused(Worker::new(&db.database, Registry::new()).start().map(drop));
        is_refused(windlass::Dispatcher::new(&db.database).start().map(drop));
        is_refused(windlass::Scheduler::new(&db.database).start().map(drop));
        is_refused(windlass::Supervisor::new(&db.database).start().map(drop));
        for (arguments, code) in [
            (&["migrate"][..], 1),
            (&["migrate", "--dry-run"], 1),
            (&["doctor"], 3),
            (&["status"], 1),
            (&["enqueue", "note", "{}"], 1),
            (&["supervise", "--", "true"], 1),
        ] {
            let said = windlass(&db.url, arguments);
            assert_eq!(said.code, Some(code), "{arguments:?}: {said:?}");
            let text = format!("{}{}", said.out, said.err);
            assert!(
                text.contains("before its first release (migration 20261121000001)")
                    && text.contains("use an empty database"),
                "{arguments:?}: {text}"
            );
        }
        assert_eq!((shape(db), db.texts(versions)), before);
    }
}

/// A setting of the database with which the catalog quotes the names of types and functions.
#[cfg(feature = "postgres")]
#[test]
fn a_database_that_quotes_all_identifiers_is_complete() {
    let db = TestDb::postgres();
    db.execute(
        "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET quote_all_identifiers = on', current_database()); END $$",
    );
    let conn = &mut windlass::Database::open(&db.url)
        .unwrap()
        .connect()
        .unwrap();
    assert_eq!(
        windlass::migrate(conn).unwrap(),
        windlass::schema::Migrated::default()
    );
    a_job_is_performed(&db);
}

on_each_database!(
    copied_migrations_run_forth_and_back,
    a_migration_that_was_left_out_is_named,
    tables_of_a_version_before_the_first_release_are_refused,
);

on_each_empty_database!(
    an_empty_database_gets_all_tables_once,
    migrating_at_once_is_migrating_once,
    a_database_of_rails_gets_what_it_lacks,
    a_failed_migration_keeps_nothing,
    the_users_own_connection_does_as_well,
    processes_refuse_tables_that_are_missing_or_old,
);

/// One text that it cannot hold would take those of other jobs along, which are written with it.
#[cfg(feature = "postgres")]
#[test]
fn a_database_that_cannot_hold_every_text_is_refused() {
    let db = TestDb::empty_in_encoding("LATIN1");
    let refused = db.database.migrate().unwrap_err().to_string();
    assert!(
        refused.contains("has the encoding LATIN1") && refused.contains("--encoding UTF8"),
        "{refused}"
    );
    assert!(tables(&db).is_empty());
    let worker = Worker::new(&db.database, Registry::new()).start();
    assert!(matches!(
        worker.unwrap_err(),
        Error::Schema(SchemaError::Encoding { .. })
    ));
    let said = windlass(&db.url, &["doctor"]);
    assert_eq!(said.code, Some(3), "{said:?}");
    assert!(said.out.contains("has the encoding LATIN1"), "{said:?}");
    let said = windlass(&db.url, &["enqueue", "import", "{}"]);
    assert!(said.err.contains("has the encoding LATIN1"), "{said:?}");
}
