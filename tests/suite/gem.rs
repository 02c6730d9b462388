//! The gem for Rails, with a real Active Job and Active Record: its own tests, what workers in Rust perform of it, and
//! the tables that it completes.

use crate::support::TestDb;
use crate::support::db::{count, execute};
use crate::support::jobs::{Log, Note};
use crate::support::program::windlass;
use crate::support::solid_queue;
use crate::support::wait::until;
use crate::{on_each_database, on_each_empty_database};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use windlass::{Context, Job, JobResult, Registry, Worker};

on_each_database!(
    the_tests_of_the_gem_pass,
    what_active_job_enqueues_is_performed_in_rust,
);

on_each_empty_database!(
    the_gem_makes_all_tables,
    the_gem_completes_the_tables_of_solid_queue,
    the_gem_completes_what_was_made_in_part,
    the_gem_waits_for_another_migration,
    a_column_that_differs_is_named,
    the_gem_refuses_tables_of_before_the_first_release,
);

/// Runs a program in Ruby, and returns what it has printed, or its error.
fn try_ruby(script: &str, db: &TestDb, mode: Option<&str>) -> Result<String, String> {
    let ruby = std::env::var_os("WINDLASS_TEST_RUBY").unwrap_or_else(|| "ruby".into());
    let needs = "install ruby with Active Job, Active Record, minitest, pg and sqlite3 (ruby-activejob, \
                 ruby-activerecord, ruby-minitest, ruby-pg, ruby-sqlite3), or run ./bin/test";
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let ran = Command::new(&ruby)
        .arg(here.join(script))
        .arg(db.address())
        .args(mode)
        .env("WINDLASS_CLIENT_DATABASE", db.address())
        .env("TZ", "Europe/Berlin")
        .output();
    let ran = ran.unwrap_or_else(|error| panic!("{}: {error}; {needs}", ruby.display()));
    let said = String::from_utf8(ran.stdout).unwrap();
    if ran.status.success() {
        return Ok(said);
    }
    let error = String::from_utf8_lossy(&ran.stderr);
    Err(format!("{script}: {said}{error}\n{needs}"))
}

fn ruby(script: &str, db: &TestDb) -> String {
    try_ruby(script, db, None).unwrap_or_else(|error| panic!("{error}"))
}

fn migrate(db: &TestDb) -> Vec<String> {
    let said = ruby("drivers/gem_migrate.rb", db);
    said.lines().map(str::to_owned).collect()
}

/// Does the same in a migration of Rails, and thus in its transaction.
fn migrate_by_rails(db: &TestDb) -> Vec<String> {
    let said = try_ruby("drivers/gem_migrate.rb", db, Some("rails"));
    let said = said.unwrap_or_else(|error| panic!("{error}"));
    said.lines().map(str::to_owned).collect()
}

fn the_tests_of_the_gem_pass(db: &TestDb) {
    ruby("../clients/ruby/test/windlass_test.rb", db);
}

/// Notes its fields.
#[derive(Debug, Serialize, Deserialize)]
#[serde(transparent)]
struct Facts(Map<String, Value>);

impl Job for Facts {
    const NAME: &'static str = "facts";
    type State = Log;
    type Output = ();

    fn perform(self, cx: &Context<'_, Log>) -> JobResult {
        cx.add(Value::from(self.0).to_string());
        Ok(())
    }
}

fn number(db: &TestDb, of: &str) -> i64 {
    count(
        &mut db.connection(),
        &format!("SELECT count(*) AS n FROM {of}"),
    )
}

fn work(db: &TestDb, jobs: usize) -> Vec<String> {
    let log = Arc::new(Log::default());
    let registry = Registry::new()
        .register::<Facts>(Arc::clone(&log))
        .register::<Note>(Arc::clone(&log));
    let _worker = Worker::new(&db.database, registry).start().unwrap();
    until("all jobs are performed", || log.len() >= jobs);
    until("all jobs are finished", || {
        number(db, "solid_queue_jobs WHERE finished_at IS NOT NULL") >= i64::try_from(jobs).unwrap()
    });
    let mut lines = log.lines();
    lines.sort();
    lines
}

fn what_active_job_enqueues_is_performed_in_rust(db: &TestDb) {
    let envelope = ruby("drivers/gem_enqueue.rb", db);
    let rows = [
        (
            1,
            "solid_queue_jobs WHERE class_name = 'facts' AND queue_name = 'rust' AND priority = 3",
        ),
        (
            1,
            "solid_queue_scheduled_executions WHERE queue_name = 'later' AND scheduled_at = '2100-01-02 03:04:05.600000'",
        ),
        // Workers let them pass, one at a time.
        (
            2,
            "solid_queue_jobs WHERE concurrency_key = 'notes/l' AND concurrency_slots = 1",
        ),
        (
            2,
            "solid_queue_blocked_executions WHERE concurrency_key = 'notes/l'",
        ),
        (1, "solid_queue_jobs WHERE unique_id = 'note/unique'"),
        (1, "solid_queue_jobs WHERE at_most_once"),
    ];
    for (expected, row) in rows {
        assert_eq!(number(db, row), expected, "{row}");
    }
    assert_eq!(number(db, "solid_queue_jobs"), 6);
    // The same fields in Active Job's own envelope, for which Rust has its own reader.
    solid_queue::enqueue(db, "facts", envelope.trim());
    let lines = work(db, 6);
    assert_eq!(lines[..4], ["limited 1", "limited 2", "once", "unique"]);
    assert_eq!(lines[4], lines[5]);
    let facts: Value = serde_json::from_str(&lines[4]).unwrap();
    assert_eq!(facts["widget"], "gid://app/Widget/7");
    assert_eq!(facts["large"], u64::MAX);
    assert_eq!(facts["time"], "2026-09-21T14:13:20.123456789Z");
    assert_eq!(facts["span"], 300);
    assert_eq!(facts["decimal"], "12.5");
}

/// The tables are those of `windlass migrate`, and work.
fn is_complete(db: &TestDb) {
    assert_eq!(
        db.database.migrate().unwrap(),
        windlass::schema::Migrated::default()
    );
    assert_eq!(migrate(db), [""; 0], "the second time");
    assert_eq!(migrate_by_rails(db), [""; 0], "the second time");
    {
        let said = windlass(&db.url, &["migrate", "--dry-run"]);
        assert!(said.is_done(), "{said:?}");
        let said = windlass(&db.url, &["doctor"]);
        assert!(said.is_done(), "{said:?}");
    }
    if db.is_postgres() {
        let open = "pg_proc WHERE pronamespace = current_schema()::regnamespace AND proname LIKE 'windlass%' \
                    AND prosecdef AND (proconfig IS NULL OR proacl IS NULL)";
        assert_eq!(number(db, open), 0);
    }
    ruby("../clients/ruby/test/windlass_test.rb", db);
    Note::new("by Rust").enqueue(&mut db.connection()).unwrap();
    assert_eq!(work(db, 1), ["by Rust"]);
}

fn the_gem_makes_all_tables(db: &TestDb) {
    let made = migrate(db);
    assert!(
        made.contains(&"table solid_queue_jobs".to_owned()),
        "{made:?}"
    );
    is_complete(db);
}

fn the_gem_completes_the_tables_of_solid_queue(db: &TestDb) {
    solid_queue::create(db);
    let made = migrate_by_rails(db);
    assert!(
        made.contains(&"column solid_queue_jobs.policy".to_owned()),
        "{made:?}"
    );
    is_complete(db);
}

/// Rails has made some tables again, and its dump does not have everything.
fn the_gem_completes_what_was_made_in_part(db: &TestDb) {
    db.database.migrate().unwrap();
    let conn = &mut db.connection();
    let function = "DROP FUNCTION windlass_enqueue";
    let lost = [
        "ALTER TABLE solid_queue_processes DROP COLUMN channel",
        "DROP TABLE windlass_settings",
        "DROP VIEW windlass_enqueue",
        "DELETE FROM windlass_schema_migrations WHERE version > '20261128000001'",
    ];
    for statement in lost.into_iter().chain(db.is_postgres().then_some(function)) {
        execute(conn, statement);
    }
    let made = migrate(db);
    let lost = [
        "column solid_queue_processes.channel",
        "table windlass_settings",
        "view windlass_enqueue",
    ];
    for one in lost {
        assert!(made.iter().any(|made| made == one), "{one}: {made:?}");
    }
    is_complete(db);
}

/// Several at once complete it once.
fn the_gem_waits_for_another_migration(db: &TestDb) {
    solid_queue::create(db);
    let made: Vec<usize> = std::thread::scope(|scope| {
        let ruby = [migrate, migrate_by_rails].map(|by| scope.spawn(move || by(db).len()));
        let rust = scope.spawn(|| db.database.migrate().unwrap().completed.len());
        let ruby = ruby.map(|one| one.join().unwrap());
        ruby.into_iter().chain([rust.join().unwrap()]).collect()
    });
    assert_eq!(made.iter().filter(|made| **made > 0).count(), 1, "{made:?}");
    assert!(db.database.migrate().unwrap().is_empty());
}

fn a_column_that_differs_is_named(db: &TestDb) {
    solid_queue::create(db);
    db.execute("DROP TABLE solid_queue_pauses");
    db.execute("CREATE TABLE solid_queue_pauses (id integer, queue_name varchar NOT NULL, created_at integer)");
    let error = try_ruby("drivers/gem_migrate.rb", db, None).unwrap_err();
    assert!(error.contains("column solid_queue_pauses."), "{error}");
    assert!(error.contains("windlass migrate"), "{error}");
    assert_eq!(number(db, "solid_queue_jobs"), 0);
}

fn the_gem_refuses_tables_of_before_the_first_release(db: &TestDb) {
    db.database.migrate().unwrap();
    db.execute(
        "INSERT INTO windlass_schema_migrations (version, applied_at) VALUES ('20261121000001', '2026-11-21 00:00:00')",
    );
    let error = try_ruby("drivers/gem_migrate.rb", db, None).unwrap_err();
    let says = "before its first release (migration 20261121000001)";
    assert!(error.contains(says), "{error}");
}
