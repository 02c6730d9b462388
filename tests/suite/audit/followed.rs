//! A cancel of many jobs finds those that move while it runs.

use super::{enqueue, now};
use crate::on_each_database;
use crate::support::TestDb;
use std::time::Duration;
use windlass::JobId;
use windlass::jobs::{Change, JobState, Jobs};
use windlass::operations::{OperationState, Preview};

on_each_database!(
    a_cancel_follows_jobs_that_moved_since_the_preview,
    a_cancel_in_the_foreground_follows_them_as_well,
);

const HOUR: Duration = Duration::from_secs(3_600);

/// Counts the claimed jobs that are asked to stop.
pub const ASKED: &str = "SELECT count(*) AS n FROM solid_queue_claimed_executions WHERE cancel_requested_at IS NOT NULL";

/// Has a new process claim ready jobs, by a condition on their executions.
pub fn claim(db: &TestDb, which: &str) {
    db.execute(&format!(
        "INSERT INTO solid_queue_processes (kind, name, pid, heartbeat_seq, created_at, last_heartbeat_at) \
         VALUES ('Worker', 'worker-a', 1, 3, {0}, {0})",
        now(db)
    ));
    db.execute(&format!(
        "INSERT INTO solid_queue_claimed_executions (job_id, process_id, created_at) \
         SELECT job_id, (SELECT max(id) FROM solid_queue_processes), {} FROM solid_queue_ready_executions WHERE {which}",
        now(db)
    ));
    db.execute(&format!(
        "DELETE FROM solid_queue_ready_executions WHERE {which}"
    ));
}

fn a_cancel_follows_jobs_that_moved_since_the_preview(db: &TestDb) {
    enqueue(db, "a", 6);
    let third = Jobs::in_state(JobState::Ready).ids([JobId(3)]);
    third
        .change(&mut db.connection(), Change::RunIn(HOUR))
        .unwrap();
    let jobs = Jobs::waiting_or_running();
    let preview = jobs.preview(&mut db.connection()).unwrap();
    let text = serde_json::to_string(&preview).unwrap();
    let preview: Preview = serde_json::from_str(&text).unwrap();
    let third = Jobs::in_state(JobState::Scheduled);
    let now = Change::RunIn(Duration::ZERO);
    third.change(&mut db.connection(), now).unwrap();
    enqueue(db, "a", 2);
    claim(db, "job_id IN (1, 2, 8)");
    let new = jobs.in_background(Change::Cancel).preview(preview);
    let operation = new.start(&mut db.connection()).unwrap();
    claim(db, "job_id = 4");
    windlass::operations::run(&mut db.connection(), HOUR).unwrap();
    let done = windlass::operations::find(&mut db.connection(), operation.id)
        .unwrap()
        .unwrap();
    assert_eq!((done.state, done.fraction), (OperationState::Done, 1.0));
    let counts = done.counts.done;
    assert_eq!((counts.changed, counts.running), (3, 3), "{counts:?}");
    // Those that came after the preview go on.
    assert_eq!((db.count(ASKED), db.rows("claimed_executions")), (3, 4));
    assert_eq!(db.rows("ready_executions"), 1);
}

fn a_cancel_in_the_foreground_follows_them_as_well(db: &TestDb) {
    enqueue(db, "a", 600);
    let mut is_first = true;
    let done = Jobs::waiting_or_running()
        .change_with_progress(&mut db.connection(), Change::Cancel, |_| {
            if std::mem::take(&mut is_first) {
                claim(db, "job_id = 600");
                enqueue(db, "a", 1);
                claim(db, "job_id = 601");
            }
        })
        .unwrap();
    assert_eq!((done.changed, done.running), (599, 1));
    assert_eq!((db.count(ASKED), db.rows("claimed_executions")), (1, 2));
}
