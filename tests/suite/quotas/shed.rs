//! Jobs that are discarded.

use super::note;
use crate::on_each_database;
use crate::support::TestDb;
use windlass::jobs::{self, EnqueueOutcome, JobState, Jobs, TaskStatus};
use windlass::{Concurrency, Quota};

on_each_database!(a_shed_job_keeps_nothing_but_its_reason);

fn a_shed_job_keeps_nothing_but_its_reason(db: &TestDb) {
    let (mut conn, quota) = (db.connect(), Quota::named("tight").waiting(0).shed());
    let conn = &mut conn;
    let job = || {
        let job = note("a", &quota).unique_id("1").idempotency_key("1");
        job.concurrency(Concurrency::new("key"))
    };
    let shed = job().enqueue(conn).unwrap();
    assert_eq!((shed.outcome, shed.is_new), (EnqueueOutcome::Shed, true));
    let bare = note("b", &quota).enqueue(conn).unwrap();
    let again = job().enqueue(conn).unwrap();
    assert!(again.id != shed.id && again.outcome == EnqueueOutcome::Shed);
    for table in ["ready", "scheduled", "blocked", "claimed", "failed"] {
        assert_eq!(db.rows(&format!("{table}_executions")), 0, "{table}");
    }
    assert_eq!(db.rows_of("windlass_unique_jobs"), 0);
    assert_eq!(db.rows_of("windlass_quota_jobs"), 0);
    assert!(windlass::limits::semaphores(conn).unwrap().is_empty());
    let reason = "the quota `tight` allows 0 waiting jobs, and sheds the jobs that exceed it";
    for id in [shed.id, bare.id] {
        let info = jobs::status(conn, id).unwrap().unwrap();
        assert_eq!(info.status, TaskStatus::Discarded);
        let error = info.error.unwrap();
        assert!(error.contains(reason), "{error}");
        let explained = jobs::explain(conn, id).unwrap().unwrap();
        let error = explained.task.error.unwrap();
        assert!(error.contains(reason), "{error}");
    }
    assert_eq!(
        Jobs::in_state(JobState::Discarded)
            .list(conn)
            .unwrap()
            .len(),
        3
    );
    // The next one finds nothing of it.
    let next = job().without_quota().enqueue(conn).unwrap();
    assert_eq!(next.outcome, EnqueueOutcome::New);
    assert_eq!(
        db.rows("ready_executions") + db.rows("blocked_executions"),
        1
    );
}
