//! Old rows that cannot be deleted.

use crate::batch::{accept, refuse};
use crate::on_each_database;
use crate::support::TestDb;
use crate::support::events::Events;
use crate::support::wait::until;
use std::time::{Duration, Instant};
use windlass::processes::Retention;
use windlass::{Handle, NewJob, Supervisor};

on_each_database!(
    a_job_that_cannot_be_deleted_holds_up_no_other,
    what_fails_is_said_every_ten_seconds,
);

crate::through_a_pooler_in_all!(
    a_job_that_cannot_be_deleted_holds_up_no_other,
    what_fails_is_said_every_ten_seconds,
);

fn supervisor(db: &TestDb, events: &Events) -> Handle {
    let day = Duration::from_secs(24 * 3600);
    let retention = Retention::new().finished_for(day).failed_for(day);
    Supervisor::new(&db.database)
        .retention(retention.every(Duration::from_millis(10)))
        .subscriber(events.subscriber())
        .start()
        .unwrap()
}

const OLD: &str = "'2020-01-01 00:00:00.000000'";

/// Jobs, the half of them failed and the others finished, and a result.
fn fill(db: &TestDb, count: usize) {
    let job = |_| NewJob::of_class("no_class", "{}");
    windlass::enqueue_all(&mut db.connection(), (0..count).map(job)).unwrap();
    for statement in [
        "DELETE FROM solid_queue_ready_executions".to_owned(),
        format!("UPDATE solid_queue_jobs SET created_at = {OLD}"),
        format!("UPDATE solid_queue_jobs SET finished_at = {OLD} WHERE id % 2 = 1"),
        format!(
            "INSERT INTO solid_queue_failed_executions (job_id, error, created_at) \
             SELECT id, '{{}}', {OLD} FROM solid_queue_jobs WHERE id % 2 = 0 ORDER BY id"
        ),
        result(),
    ] {
        db.execute(&statement);
    }
}

fn result() -> String {
    format!(
        "INSERT INTO windlass_results (job_id, class_name, outcome, attempt, finished_at, expires_at) \
         VALUES (1, 'no_class', 'succeeded', 1, {OLD}, {OLD})"
    )
}

fn jobs(db: &TestDb) -> Vec<i64> {
    let texts = db.texts("SELECT CAST(id AS text) AS t FROM solid_queue_jobs ORDER BY id");
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn a_job_that_cannot_be_deleted_holds_up_no_other(db: &TestDb) {
    fill(db, 4_000);
    refuse(db, "solid_queue_jobs", "DELETE", "OLD.id IN (7, 8)");
    let events = Events::default();
    let _supervisor = supervisor(db, &events);
    until("only those two are left", || jobs(db) == [7, 8]);
    assert_eq!(db.rows("failed_executions"), 1, "a failed job stays whole");
    until("the result is gone", || db.rows_of("windlass_results") == 0);
    until("it is said", || {
        let troubles = events.of("Unreachable");
        troubles
            .iter()
            .any(|trouble| trouble.contains("refused by the test"))
    });
    accept(db, "solid_queue_jobs");
    until("those two are gone too", || jobs(db).is_empty());
}

/// Once at first. What goes well meanwhile changes nothing.
fn what_fails_is_said_every_ten_seconds(db: &TestDb) {
    fill(db, 100);
    refuse(db, "windlass_results", "DELETE", "OLD.job_id = 1");
    let events = Events::default();
    let start = Instant::now();
    let _supervisor = supervisor(db, &events);
    until("the jobs are gone", || jobs(db).is_empty());
    until("it has tried for some seconds", || {
        start.elapsed() > Duration::from_secs(4) && events.count("Unreachable") > 0
    });
    let said = events.count("Unreachable");
    let most = 1 + usize::try_from(start.elapsed().as_secs() / 10).unwrap();
    assert!(said <= most, "{said} lines: {:?}", events.of("Unreachable"));
}
