//! The quota of a class, which counts enqueues on every road.

use super::in_one_window;
use crate::on_each_database;
use crate::support::TestDb;
use crate::support::db::execute;
use crate::support::enqueue_by_sql::run;
use crate::support::program::windlass;
use crate::support::wait::until;
use serde::{Deserialize, Serialize};
use windlass::jobs::EnqueueOutcome;
use windlass::quotas::{self, QuotaStatus};
use windlass::{Context, Error, Job, JobResult, NewJob, Quota, Registry, Worker, enqueue_all};

#[derive(Clone, Serialize, Deserialize)]
struct Export;

impl Job for Export {
    const NAME: &'static str = "export";
    type State = ();
    type Output = ();

    fn class_quota() -> Option<Quota> {
        Some(Quota::of_class("export").per_day(6))
    }

    fn perform(self, _: &Context<'_, ()>) -> JobResult {
        Ok(())
    }
}

#[derive(Clone, Serialize, Deserialize)]
struct Slow;

impl Job for Slow {
    const NAME: &'static str = "slow";
    type State = ();
    type Output = ();

    fn class_quota() -> Option<Quota> {
        Some(Quota::named("slow ones").waiting(2).per_minute(1000).shed())
    }

    fn perform(self, _: &Context<'_, ()>) -> JobResult {
        Ok(())
    }
}

/// A worker stores the classes, and serves a queue without jobs.
fn stored(db: &TestDb) -> windlass::Handle {
    let registry = Registry::new().register::<Export>(()).register::<Slow>(());
    let worker = Worker::new(&db.database, registry)
        .queues(["none"])
        .unwrap()
        .start()
        .unwrap();
    until("the classes are stored", || {
        db.rows_of("windlass_classes") == 2
    });
    worker
}

fn of(db: &TestDb, name: &str) -> QuotaStatus {
    let all = quotas::list(&mut db.connection()).unwrap();
    all.into_iter().find(|quota| quota.name == name).unwrap()
}

const BY_VIEW: &str = "INSERT INTO windlass_enqueue (class) VALUES ('export')";

fn list(db: &TestDb, jobs: &str) -> String {
    match db.is_postgres() {
        true => format!("SELECT windlass_enqueue_many('export', '{jobs}')"),
        false => format!("INSERT INTO windlass_enqueue_many VALUES ('export', '{jobs}')"),
    }
}

fn every_road_counts(db: &TestDb) {
    let _worker = stored(db);
    let mut conn = db.connect();
    Export.enqueue(&mut conn).unwrap();
    NewJob::of_class("export", "null")
        .enqueue(&mut conn)
        .unwrap();
    run(db, BY_VIEW).unwrap();
    run(
        db,
        "INSERT INTO windlass_enqueue (class, unique_id) VALUES ('export', 'a')",
    )
    .unwrap();
    run(db, &list(db, "[{}, {\"priority\": 5}]")).unwrap();
    assert_eq!((of(db, "class export").this_day, db.rows("jobs")), (6, 6));

    // It is used up, on every road.
    for enqueued in [
        Export.enqueue(&mut conn),
        NewJob::of_class("export", "null").enqueue(&mut conn),
    ] {
        assert!(
            matches!(enqueued, Err(Error::QuotaExceeded { limit: 6, .. })),
            "{enqueued:?}"
        );
    }
    for statement in [
        BY_VIEW.to_owned(),
        "INSERT INTO windlass_enqueue (class, unique_id) VALUES ('export', 'b')".to_owned(),
        "INSERT INTO windlass_enqueue (class, delay_seconds) VALUES ('export', 60)".to_owned(),
        list(db, "[{}]"),
        list(db, "[{\"unique_id\": \"c\"}]"),
    ] {
        let error = run(db, &statement).unwrap_err();
        assert!(
            error.contains("quota") && error.contains("enqueues per day"),
            "{statement}: {error}"
        );
    }
    {
        let said = windlass(&db.url, &["enqueue", "export"]);
        assert!(
            said.err
                .contains("the quota `class export` allows 6 enqueues per day"),
            "{said:?}"
        );
    }
    // An enqueue that finds an existing job does not count.
    run(
        db,
        "INSERT INTO windlass_enqueue (class, unique_id) VALUES ('export', 'a')",
    )
    .unwrap();
    assert_eq!((of(db, "class export").this_day, db.rows("jobs")), (6, 6));
}

fn a_rollback_gives_the_places_back(db: &TestDb) {
    let _worker = stored(db);
    let mut conn = db.connect();
    execute(
        &mut conn,
        if db.is_postgres() {
            "BEGIN"
        } else {
            "BEGIN IMMEDIATE"
        },
    );
    for _ in 0..6 {
        execute(&mut conn, BY_VIEW);
    }
    execute(&mut conn, "ROLLBACK");
    for _ in 0..6 {
        run(db, BY_VIEW).unwrap();
    }
    assert!(run(db, BY_VIEW).is_err());
}

fn places_of_jobs_that_wait_are_given_back(db: &TestDb) {
    let _worker = stored(db);
    let enqueue = "INSERT INTO windlass_enqueue (class) VALUES ('slow')";
    for _ in 0..2 {
        run(db, enqueue).unwrap();
    }
    let error = run(db, enqueue).unwrap_err();
    assert!(error.contains("waiting jobs"), "{error}");
    // Rust discards what exceeds it, and counts the same places.
    let shed = Slow.enqueue(&mut db.connection()).unwrap();
    assert_eq!(shed.outcome, EnqueueOutcome::Shed);
    db.execute("DELETE FROM solid_queue_ready_executions WHERE job_id = (SELECT min(job_id) FROM solid_queue_ready_executions)");
    run(db, enqueue).unwrap();
    assert!(run(db, enqueue).is_err());
    assert_eq!(of(db, "slow ones").waiting, 2);
}

fn a_second_has_a_limit(db: &TestDb) {
    let jobs = |quota: &Quota, count: usize| {
        vec![NewJob::of_class("note", "null").quota(quota.clone()); count]
    };
    let (refused, accepted, quota) = in_one_window(db, 1, |quota| {
        let (mut conn, quota) = (db.connect(), quota.per_second(2));
        let refused = enqueue_all(&mut conn, jobs(&quota, 3));
        let accepted = enqueue_all(&mut conn, jobs(&quota, 2));
        (refused.map(|all| all.len()), accepted.is_ok(), quota)
    });
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("2 enqueues per second"), "{refused}");
    assert!(accepted);
    let last = quotas::list(&mut db.connection()).unwrap();
    assert_eq!(last.last().unwrap().most_per_second, Some(2));
    // A second later there are places again.
    let mut conn = db.connect();
    until("the next second", || {
        enqueue_all(&mut conn, jobs(&quota, 2)).is_ok()
    });
}

on_each_database!(
    every_road_counts,
    a_rollback_gives_the_places_back,
    places_of_jobs_that_wait_are_given_back,
    a_second_has_a_limit,
);
