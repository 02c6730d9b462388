//! A migration whose process is killed, wherever it is, is completed by the
//! next one.

use crate::on_each_empty_database;
use crate::schema_life::{differences, names, works};
use crate::support::TestDb;
use crate::support::program::Windlass;
use crate::support::solid_queue;
use rustix::process::Signal;
use std::time::Duration;

/// The database of a Rails app with so many jobs that indexes take a while.
fn of_rails(db: &TestDb) {
    solid_queue::create(db);
    db.execute(
        "INSERT INTO solid_queue_jobs (queue_name, class_name, finished_at, created_at, updated_at) \
         WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3000) \
         SELECT 'q', 'c', '2026-11-21 00:00:00', '2026-11-21 00:00:00', '2026-11-21 00:00:00' FROM n",
    );
}

fn fresh(db: &TestDb) -> TestDb {
    #[cfg(feature = "postgres")]
    if db.is_postgres() {
        return TestDb::postgres();
    }
    assert!(!db.is_postgres());
    TestDb::sqlite()
}

/// Each run is killed a little later than the one before, until one ends by
/// itself. Each goes on from where the one before was killed.
fn a_killed_migration_is_completed_by_the_next(db: &TestDb) {
    of_rails(db);
    let mut columns = vec![db.columns().len()];
    for delay in 0.. {
        let mut migration = Windlass::new(&["migrate"])
            .env("DATABASE_URL", &db.url)
            .start();
        std::thread::sleep(Duration::from_millis(delay));
        if !migration.is_running() {
            break;
        }
        migration.signal(Signal::KILL);
        drop(migration);
        columns.push(db.columns().len());
    }
    assert!(columns.len() > 1, "none was killed");
    columns.dedup();
    eprintln!("columns after each kill: {columns:?}");
    db.database.migrate().unwrap();
    assert!(db.database.migrate().unwrap().is_empty());
    let whole = fresh(db);
    assert_eq!(
        differences(&names(db), &names(&whole)),
        Vec::<String>::new()
    );
    works(db);
}

on_each_empty_database!(a_killed_migration_is_completed_by_the_next);
