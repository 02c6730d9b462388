//! Selecting jobs: one value for a list, a count and a change.

use super::{enqueue, fail};
use crate::on_each_database;
use crate::support::TestDb;
use chrono::{DateTime, Utc};
use windlass::jobs::{Change, JobState, Jobs};
use windlass::{JobId, NewJob};

on_each_database!(
    each_condition_selects,
    counts_are_bounded,
    a_change_heeds_each_condition,
);

fn time(text: &str) -> Option<DateTime<Utc>> {
    Some(text.parse().unwrap())
}

fn ids(db: &TestDb, jobs: &Jobs) -> Vec<i64> {
    let conn = &mut db.connection();
    let mut ids: Vec<i64> = jobs
        .list(conn)
        .unwrap()
        .iter()
        .map(|job| job.job_id)
        .collect();
    ids.sort_unstable();
    let counted = jobs.count_up_to(conn, 100).unwrap();
    assert_eq!(
        (counted.count, counted.is_exact),
        (ids.len() as u64, true),
        "{jobs:?}"
    );
    assert_eq!(jobs.count(conn).unwrap(), ids.len() as u64);
    // It is the same when it comes back from an address, or from a row.
    let again = Jobs::from_pairs(jobs.to_pairs()).unwrap();
    let text = serde_json::to_string(jobs).unwrap();
    assert_eq!(
        [&again, &serde_json::from_str(&text).unwrap()],
        [jobs, jobs]
    );
    ids
}

fn each_condition_selects(db: &TestDb) {
    let conn = &mut db.connection();
    enqueue(db, "a", 6);
    NewJob::of_class("b", "{\"file\":\"x.csv\"}")
        .unique_id("u/1")
        .queue("other")
        .enqueue(conn)
        .unwrap();
    fail(db, "id IN (1, 2)");
    db.execute("UPDATE solid_queue_failed_executions SET fingerprint = 'ff00', created_at = '2026-03-05 00:00:00.000000' WHERE job_id = 1");
    db.execute("UPDATE solid_queue_failed_executions SET error = '{\"exception_class\":\"Net::\\\"E\",\"message\":\"m\"}' WHERE job_id = 2");
    db.execute("DELETE FROM solid_queue_ready_executions WHERE job_id IN (3, 4)");
    db.execute("UPDATE solid_queue_jobs SET finished_at = '2026-01-0' || id || ' 12:00:00.000000' WHERE id IN (3, 4)".replace("'2026-01-0' || id || ' 12:00:00.000000'", if db.is_postgres() { "CAST('2026-01-0' || id || ' 12:00:00' AS timestamp)" } else { "'2026-01-0' || id || ' 12:00:00.000000'" }).as_str());
    db.execute(
        "INSERT INTO windlass_attempts (job_id, claim_id, attempt, outcome, kind, message, ended_at) \
         VALUES (4, 1, 1, 'cancelled', 'stop', 'x', '2026-01-04 12:00:00.000000')",
    );
    let old = "UPDATE solid_queue_jobs SET created_at = '2026-02-01 00:00:00.000000' WHERE id = 5";
    db.execute(old);
    let failed = Jobs::failed;
    for (jobs, wanted) in [
        (Jobs::unfinished(), vec![1, 2, 5, 6, 7]),
        (Jobs::unfinished().class("b"), vec![7]),
        (Jobs::unfinished().queue("other"), vec![7]),
        (Jobs::unfinished().unique_id("u/1"), vec![7]),
        (Jobs::unfinished().unique_id("u/2"), vec![]),
        (Jobs::unfinished().arguments_contain("x.csv"), vec![7]),
        (
            Jobs::unfinished().ids([JobId(5), JobId(1), JobId(99)]),
            vec![1, 5],
        ),
        (failed().kind("Oops"), vec![1]),
        (failed().kind("Net::\"E"), vec![2]),
        (failed().kind("Net"), vec![]),
        (failed().error_contains("no"), vec![1]),
        (failed().fingerprint("ff00"), vec![1]),
        (failed().fingerprint("ff"), vec![]),
        (Jobs::unfinished().fingerprint("ff00"), vec![1]),
        (
            failed().failed_between(time("2026-03-05T00:00:00Z"), time("2026-03-06T00:00:00Z")),
            vec![1],
        ),
        (
            failed().failed_between(time("2026-03-04T00:00:00Z"), time("2026-03-05T00:00:00Z")),
            vec![],
        ),
        (
            Jobs::waiting().failed_between(time("2020-01-01T00:00:00Z"), None),
            vec![],
        ),
        (
            Jobs::waiting().created_between(
                time("2026-02-01T00:00:00Z"),
                time("2026-02-01T00:00:00.000001Z"),
            ),
            vec![5],
        ),
        (
            Jobs::waiting().created_between(None, time("2026-02-01T00:00:00Z")),
            vec![],
        ),
        (Jobs::in_state(JobState::Finished), vec![3]),
        (
            Jobs::in_state(JobState::Finished).finished_between(time("2026-01-04T00:00:00Z"), None),
            vec![],
        ),
        (
            Jobs::in_state(JobState::Finished).finished_between(None, time("2026-01-04T00:00:00Z")),
            vec![3],
        ),
        (
            Jobs::in_state(JobState::Cancelled)
                .finished_between(time("2026-01-04T00:00:00Z"), None),
            vec![4],
        ),
        (Jobs::in_state(JobState::Cancelled).kind("stop"), vec![4]),
        (Jobs::in_state(JobState::Cancelled).kind("other"), vec![]),
    ] {
        assert_eq!(ids(db, &jobs), wanted, "{jobs:?}");
    }
}

fn counts_are_bounded(db: &TestDb) {
    enqueue(db, "a", 50);
    fail(db, "id <= 10");
    let conn = &mut db.connection();
    let mut counted = |jobs: Jobs, most: u64| {
        let found = jobs.count_up_to(conn, most).unwrap();
        (found.count, found.is_exact)
    };
    assert_eq!(counted(Jobs::waiting(), 40), (40, true));
    assert_eq!(counted(Jobs::waiting(), 39), (39, false));
    assert_eq!(counted(Jobs::unfinished(), 45), (45, false));
    assert_eq!(counted(Jobs::unfinished().limit(45), 1_000), (45, true));
    assert_eq!(counted(Jobs::failed().class("b"), 1_000), (0, true));
}

fn a_change_heeds_each_condition(db: &TestDb) {
    enqueue(db, "a", 20);
    fail(db, "id <= 10");
    db.execute("UPDATE solid_queue_failed_executions SET fingerprint = 'ff00' WHERE job_id > 3");
    let jobs = Jobs::failed()
        .fingerprint("ff00")
        .kind("Oops")
        .arguments_contain("{");
    let changed = jobs.change(&mut db.connection(), Change::Discard).unwrap();
    assert_eq!((changed.changed, db.rows("failed_executions")), (7, 3));
}
