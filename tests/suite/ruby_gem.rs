//! The gem in `clients/ruby`, with the Active Job and Active Record of Debian.

use crate::support::TestDb;
use crate::support::jobs::{Log, Note};
use crate::support::solid_queue;
use crate::support::wait::until;
use crate::{on_each_database, on_each_empty_database};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use windlass::{Registry, Worker};

/// Runs one of its programs on a database, and returns what it has printed.
fn ruby(db: &TestDb, script: &str, more: &[&str]) -> String {
    let program = std::env::var_os("WINDLASS_TEST_RUBY").unwrap_or_else(|| "ruby".into());
    let script = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../clients/ruby/test")
        .join(script);
    let ran = Command::new(program)
        .arg(script)
        .args(more)
        .env("WINDLASS_CLIENT_DATABASE", db.address())
        .output()
        .expect("install ruby, or run ./bin/test");
    let (out, err) = (
        String::from_utf8_lossy(&ran.stdout),
        String::from_utf8_lossy(&ran.stderr),
    );
    assert!(
        ran.status.success(),
        "{out}{err}\ninstall ruby-activejob, ruby-activerecord, ruby-pg and ruby-sqlite3, or run ./bin/test"
    );
    out.into_owned()
}

fn its_own_tests_pass(db: &TestDb) {
    let said = ruby(db, "test_client.rb", &[]);
    assert!(said.contains(" 0 failures, 0 errors, 0 skips"), "{said}");
}

fn what_it_enqueues_is_performed(db: &TestDb) {
    let log = Arc::new(Log::default());
    let registry = Registry::new().register::<Note>(Arc::clone(&log));
    let _worker = Worker::new(&db.database, registry).start().unwrap();
    ruby(db, "enqueue.rb", &["from Ruby ✓"]);
    until("it has run", || log.len() == 1);
    assert_eq!(log.lines(), ["from Ruby ✓"]);
}

/// The columns of all tables, and their indexes.
fn shape(db: &TestDb) -> Vec<String> {
    let columns = db.columns().into_iter();
    let columns = columns.map(|column| format!("{}.{}", column.table, column.name));
    let mut shape: Vec<String> = columns.chain(db.unique_indexes()).collect();
    shape.sort();
    shape
}

fn is_complete(db: &TestDb) {
    let said = ruby(db, "migrate.rb", &[]);
    let made: Vec<&str> = said.lines().collect();
    assert!(made[0] != "0" && made[1] == "0", "{said}");
    let left = db.database.migrate().unwrap();
    assert!(left.is_empty(), "{left:?}");
    let findings = windlass::doctor(&mut db.connect()).unwrap();
    let wrong: Vec<_> = findings
        .iter()
        .filter(|one| {
            ["schema", "rights"].contains(&one.check) && one.verdict != windlass::Verdict::Fine
        })
        .collect();
    assert!(wrong.is_empty(), "{wrong:?}");
    let fresh = if db.is_postgres() {
        #[cfg(feature = "postgres")]
        let fresh = TestDb::postgres();
        #[cfg(not(feature = "postgres"))]
        let fresh = unreachable!();
        fresh
    } else {
        TestDb::sqlite()
    };
    assert_eq!(shape(db), shape(&fresh));
    what_it_enqueues_is_performed(db);
}

fn it_migrates_an_empty_database(db: &TestDb) {
    if !db.is_postgres() {
        std::fs::File::create(db.address()).unwrap();
    }
    is_complete(db);
}

fn it_migrates_a_database_of_rails(db: &TestDb) {
    solid_queue::create(db);
    is_complete(db);
}

fn it_migrates_a_database_of_rails_without_batches(db: &TestDb) {
    solid_queue::create_before_batches(db);
    is_complete(db);
}

fn it_completes_what_is_half_migrated(db: &TestDb) {
    db.execute("DROP TABLE windlass_attempts");
    db.execute("DROP INDEX index_windlass_results_on_expires_at");
    db.execute("DELETE FROM windlass_schema_migrations WHERE version > '20261124'");
    is_complete(db);
}

on_each_database!(
    its_own_tests_pass,
    what_it_enqueues_is_performed,
    it_completes_what_is_half_migrated,
);

on_each_empty_database!(
    it_migrates_an_empty_database,
    it_migrates_a_database_of_rails,
    it_migrates_a_database_of_rails_without_batches,
);
