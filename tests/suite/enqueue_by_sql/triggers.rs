//! Triggers that an application has on the tables of jobs, and times of its own.

use crate::support::TestDb;
use crate::support::enqueue_by_sql::run;

/// A trigger may ignore a job. No other job is made ready in its place.
#[test]
fn a_job_that_a_trigger_ignores_is_refused() {
    let db = TestDb::sqlite();
    db.execute("INSERT INTO windlass_enqueue (class) VALUES ('pay')");
    db.execute("DELETE FROM solid_queue_ready_executions");
    db.execute(
        "CREATE TRIGGER ignores BEFORE INSERT ON solid_queue_jobs WHEN NEW.class_name = 'x' BEGIN SELECT RAISE(IGNORE); END",
    );
    for text in [
        "INSERT INTO windlass_enqueue (class) VALUES ('x')",
        "INSERT INTO windlass_enqueue (class, unique_id) VALUES ('x', 'u')",
        "INSERT INTO windlass_enqueue_many VALUES ('x', '[{},{}]')",
    ] {
        let error = run(&db, text).unwrap_err();
        assert!(error.contains("a trigger of solid_queue_jobs"), "{error}");
    }
    assert_eq!((db.rows("jobs"), db.rows("ready_executions")), (1, 0));
    assert_eq!(db.rows_of("windlass_unique_jobs"), 0);
}

/// SQLite would take it, and a worker could not read it.
#[test]
fn the_hour_24_is_refused() {
    let db = TestDb::sqlite();
    for at in ["2026-11-23T24:00:00Z", "2026-11-23 24:00"] {
        let text = format!("INSERT INTO windlass_enqueue (class, run_at) VALUES ('x', '{at}')");
        assert!(run(&db, &text).unwrap_err().contains("run_at"), "{at}");
    }
}
