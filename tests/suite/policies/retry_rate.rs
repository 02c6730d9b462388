//! Failed jobs that are retried one after the other.

use super::executions;
use crate::on_each_database;
use crate::support::TestDb;
use crate::support::program::windlass;
use std::ops::ControlFlow;
use windlass::failed::RetryRate;
use windlass::jobs::Jobs;
use windlass::{Delivery, NewJob, Policy};

on_each_database!(
    retried_jobs_are_spread_over_time,
    a_retry_that_is_stopped_says_how_far_it_came,
    jobs_that_are_left_alone_take_no_time,
);

/// Enqueues jobs and makes them look as if they had failed.
fn failed(db: &TestDb, count: usize, policy: &Policy) {
    let job = |_| NewJob::of_class("nobody", "{}").policy(policy.clone());
    windlass::enqueue_all(&mut db.connection(), (0..count).map(job)).unwrap();
    db.execute(
        "INSERT INTO solid_queue_failed_executions (job_id, error, created_at) \
         SELECT job_id, '{\"exception_class\":\"Oops\",\"message\":\"x\"}', created_at FROM solid_queue_ready_executions \
         ORDER BY job_id",
    );
    db.execute("DELETE FROM solid_queue_ready_executions");
}

/// The seconds between the first and each of the scheduled jobs.
fn delays(db: &TestDb) -> Vec<i64> {
    let jobs = Jobs::unfinished()
        .limit(10_000)
        .list(&mut db.connection())
        .unwrap();
    let mut jobs: Vec<_> = jobs.iter().map(|job| (job.job_id, job.at)).collect();
    jobs.sort_unstable();
    let scheduled =
        db.texts("SELECT CAST(job_id AS varchar) AS t FROM solid_queue_scheduled_executions");
    let scheduled: Vec<i64> = scheduled.iter().map(|id| id.parse().unwrap()).collect();
    let times = jobs.iter().filter(|(id, _)| scheduled.contains(id));
    let times: Vec<_> = times.map(|(_, at)| *at).collect();
    times
        .iter()
        .map(|at| (*at - times[0]).num_seconds())
        .collect()
}

fn retried_jobs_are_spread_over_time(db: &TestDb) {
    failed(db, 600, &Policy::new());
    let rate: RetryRate = "10/h".parse().unwrap();
    let mut batches = Vec::new();
    let done = Jobs::failed().retry_at_rate(&mut db.connection(), rate, false, |done| {
        batches.push(done.changed);
        ControlFlow::Continue(())
    });
    assert_eq!((done.unwrap().changed, batches), (600, vec![500, 600]));
    // The first one is due at once.
    assert_eq!(
        (
            executions(db, "ready"),
            executions(db, "scheduled"),
            executions(db, "failed")
        ),
        (1, 599, 0)
    );
    let expected: Vec<i64> = (0..599).map(|index| index * 360).collect();
    assert_eq!(delays(db), expected);
}

fn a_retry_that_is_stopped_says_how_far_it_came(db: &TestDb) {
    failed(db, 600, &Policy::new());
    let rate: RetryRate = "10/h".parse().unwrap();
    let stop = |_: &windlass::jobs::Changed| ControlFlow::Break(());
    let done = Jobs::failed()
        .retry_at_rate(&mut db.connection(), rate, false, stop)
        .unwrap();
    assert_eq!(done.changed, 500);
    assert_eq!(
        (executions(db, "scheduled"), executions(db, "failed")),
        (499, 100)
    );
}

/// Those of an earlier batch neither.
fn jobs_that_are_left_alone_take_no_time(db: &TestDb) {
    failed(db, 502, &Policy::new().delivery(Delivery::AtMostOnce));
    failed(db, 3, &Policy::new());
    let rate: RetryRate = "1/h".parse().unwrap();
    let go_on = |_: &windlass::jobs::Changed| ControlFlow::Continue(());
    let all = Jobs::unfinished();
    let done = all
        .retry_at_rate(&mut db.connection(), rate, false, go_on)
        .unwrap();
    assert_eq!((done.changed, done.at_most_once), (3, 502));
    assert_eq!(delays(db), [0, 3600]);
}

#[test]
fn the_program_retries_at_a_rate() {
    let db = TestDb::sqlite();
    failed(&db, 5, &Policy::new());
    let retry = |options: &[&str]| {
        windlass(
            &db.url,
            &[&["failed", "retry", "--all"][..], options].concat(),
        )
    };
    let said = retry(&["--rate", "6/h", "--dry-run"]);
    assert!(said.is_done(), "{said:?}");
    let expected = "They would become due one after the other within 50m;";
    assert!(said.out.contains(expected), "{}", said.out);
    let said = retry(&["--rate", "6/h", "--dry-run", "--limit", "2"]);
    assert!(
        said.out.contains("2 of 5 jobs, by the limit.\n"),
        "{said:?}"
    );
    assert!(said.out.contains("within 20m;"), "{said:?}");
    let said = retry(&["--rate", "6/h", "--dry-run", "--limit", "2", "--json"]).json();
    assert_eq!(
        (&said["seconds"], &said["limit"]),
        (&1200.0.into(), &2.into())
    );
    assert_eq!(executions(&db, "failed"), 5);
    let said = retry(&["--rate", "6/h"]);
    assert!(
        said.out
            .starts_with("5 jobs were retried.\nThey become due"),
        "{}",
        said.out
    );
    assert_eq!(executions(&db, "scheduled"), 4);
    let said = retry(&["--rate", "6/h", "--json"]).json();
    assert_eq!(
        (&said["changed"], &said["stopped"]),
        (&0.into(), &false.into())
    );
    for rate in ["often", "0/s", "5/day", "5"] {
        let said = retry(&["--rate", rate]);
        assert_eq!(said.code, Some(2), "{said:?}");
    }
    assert!(
        retry(&["--rate", "5/day"])
            .err
            .contains("`5/day` is not a rate")
    );
}
