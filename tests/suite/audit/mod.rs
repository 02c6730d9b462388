//! Who changed what; changes of many jobs; groups of failed jobs.

mod append_only;
mod followed;
mod groups;
#[cfg(feature = "postgres")]
mod locked;
mod operations;
mod processes;
mod requeue;
mod rows;
mod selection;

use crate::support::TestDb;
use windlass::audit::{AuditEntry, AuditLog};
use windlass::{JobId, NewJob};

/// Enqueues so many jobs that nothing performs.
fn enqueue(db: &TestDb, class: &str, count: usize) -> Vec<JobId> {
    let job = |_| NewJob::of_class(class, "{}");
    let jobs = windlass::enqueue_all(&mut db.connection(), (0..count).map(job)).unwrap();
    jobs.into_iter().map(|job| job.id).collect()
}

/// Makes ready jobs look as if they had failed, by a condition on their rows.
fn fail(db: &TestDb, which: &str) {
    db.execute(&format!(
        "INSERT INTO solid_queue_failed_executions (job_id, error, created_at) \
         SELECT id, '{{\"exception_class\":\"Oops\",\"message\":\"no\"}}', created_at \
         FROM solid_queue_jobs WHERE {which} ORDER BY id"
    ));
    db.execute(&format!(
        "DELETE FROM solid_queue_ready_executions WHERE job_id IN (SELECT id FROM solid_queue_jobs WHERE {which})"
    ));
}

/// All actions in the audit, oldest first.
fn entries(db: &TestDb) -> Vec<AuditEntry> {
    let mut entries = AuditLog::new()
        .limit(1000)
        .list(&mut db.connection())
        .unwrap();
    entries.reverse();
    entries
}

/// The actions with what they changed, and how many jobs.
fn actions(db: &TestDb) -> Vec<(String, Option<String>, Option<i64>)> {
    let entries = entries(db).into_iter();
    entries
        .map(|entry| (entry.action, entry.target, entry.total))
        .collect()
}

/// The database's clock.
fn now(db: &TestDb) -> &'static str {
    if db.is_postgres() {
        "statement_timestamp() AT TIME ZONE 'UTC'"
    } else {
        "strftime('%Y-%m-%d %H:%M:%f000', 'now')"
    }
}

/// So many days before the database's clock.
fn days_ago(db: &TestDb, days: u32) -> String {
    if db.is_postgres() {
        format!("statement_timestamp() AT TIME ZONE 'UTC' - interval '{days} days'")
    } else {
        format!("strftime('%Y-%m-%d %H:%M:%f000', 'now', '-{days} days')")
    }
}

/// Has the database refuse every change of a table's row for which a condition on `NEW` is true.
fn refuse(db: &TestDb, table: &str, event: &str, condition: &str) {
    let statements = if db.is_postgres() {
        vec![
            format!(
                "CREATE FUNCTION refuse_{table}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
                 IF {condition} THEN RAISE EXCEPTION 'poisoned'; END IF; RETURN NEW; END $$"
            ),
            format!(
                "CREATE TRIGGER refuse_{table} BEFORE {event} ON {table} FOR EACH ROW \
                 EXECUTE FUNCTION refuse_{table}()"
            ),
        ]
    } else {
        vec![format!(
            "CREATE TRIGGER refuse_{table} BEFORE {event} ON {table} WHEN {condition} \
             BEGIN SELECT RAISE(ABORT, 'poisoned'); END"
        )]
    };
    for statement in statements {
        db.execute(&statement);
    }
}
