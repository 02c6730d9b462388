//! The column `traceparent`, which any program may write.

use crate::on_each_database;
use crate::support::TestDb;
use crate::support::jobs::Log;
use crate::support::program::windlass;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;
use windlass::jobs::{Change, Jobs};
use windlass::policies::JobFailed;
use windlass::testing::{drain, travel};
use windlass::{
    Context, Error, Function, Job, JobId, JobResult, NewJob, OnConflict, Policy, RecurringTask,
    Registry, enqueue_all,
};

on_each_database!(
    every_enqueue_stores_what_was_given,
    a_wrong_header_is_refused_before_the_enqueue,
    a_retry_keeps_it_and_a_follow_up_inherits_it,
    a_replaced_job_has_that_of_the_new_one,
    a_recurring_task_stores_none,
    the_program_passes_it_on,
    any_program_may_write_it,
    hostile_values_count_as_none,
    an_enqueue_of_an_older_program_has_none,
);

const GIVEN: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
const OTHER: &str = "00-11111111111111111111111111111111-2222222222222222-00";

const ACT: Function<String> = Function::new("act");

fn job() -> NewJob {
    ACT.job(&"a".to_owned()).unwrap()
}

fn stored(db: &TestDb) -> Vec<String> {
    db.texts("SELECT coalesce(traceparent, 'none') AS t FROM solid_queue_jobs ORDER BY id")
}

/// Performs what is ready, and returns what the jobs saw.
fn seen(db: &TestDb) -> Vec<String> {
    let seen = Arc::new(Log::default());
    let log = Arc::clone(&seen);
    let registry = Registry::new().function(ACT, move |_, cx| {
        log.add(cx.traceparent().unwrap_or_else(|| "none".to_owned()));
        Ok(())
    });
    let drained = drain(&mut db.connection(), &registry).unwrap();
    drained.assert_all_finished(seen.len());
    seen.lines()
}

fn every_enqueue_stores_what_was_given(db: &TestDb) {
    let mut conn = db.connect();
    let kinds: [fn(NewJob) -> NewJob; 8] = [
        |job| job,
        |job| job.after(Duration::from_secs(60)),
        |job| job.idempotency_key("key"),
        |job| job.unique_id("id"),
        |job| job.unique_id("later").after(Duration::from_secs(60)),
        |job| job.concurrency(windlass::Concurrency::new("limit")),
        |job| job.public_token(),
        |job| job.policy(Policy::new().expires_in(Duration::from_secs(3_600))),
    ];
    for kind in kinds {
        kind(job().traceparent(GIVEN)).enqueue(&mut conn).unwrap();
    }
    assert_eq!(stored(db), vec![GIVEN; kinds.len()]);
    travel(&mut conn, Duration::from_secs(120)).unwrap();
    assert_eq!(seen(db), vec![GIVEN; kinds.len()]);
    let batches: [fn(NewJob, usize) -> NewJob; 5] = [
        |job, _| job,
        |job, number| job.priority(number as i32),
        |job, number| job.unique_id(format!("batch {number}")),
        |job, number| job.idempotency_key(format!("batch {number}")),
        |job, _| job.concurrency(windlass::Concurrency::new("limit")),
    ];
    for kind in batches {
        db.execute("DELETE FROM solid_queue_jobs");
        // The second differs, so the jobs are not all alike.
        for headers in [[GIVEN; 3], [GIVEN, OTHER, GIVEN]] {
            let jobs = headers.iter().enumerate();
            let jobs = jobs.map(|(number, header)| kind(job(), number).traceparent(*header));
            enqueue_all(&mut conn, jobs.collect::<Vec<_>>()).unwrap();
            assert_eq!(stored(db), headers);
            assert_eq!(seen(db).len(), 3);
            db.execute("DELETE FROM solid_queue_jobs");
        }
    }
}

fn a_wrong_header_is_refused_before_the_enqueue(db: &TestDb) {
    for header in [
        "",
        "x",
        &GIVEN[1..],
        &GIVEN.to_uppercase(),
        &format!("{GIVEN}\0"),
    ] {
        let error = job().traceparent(header).enqueue(&mut db.connection());
        let error = error.unwrap_err();
        assert!(matches!(&error, Error::InvalidJob { class, .. } if class == "act"));
        let text = error.to_string();
        assert!(
            text.contains("is not one of W3C Trace Context; pass the header"),
            "{text}"
        );
    }
    assert_eq!(db.rows("jobs"), 0);
    let said = windlass(&db.url, &["enqueue", "act", "--traceparent", "00-0-0-0"]);
    assert_eq!((said.code, db.rows("jobs")), (Some(1), 0), "{said:?}");
    assert!(
        said.err.contains("its traceparent \"00-0-0-0\" is not one"),
        "{said:?}"
    );
}

#[derive(Serialize, Deserialize)]
struct Follow(JobFailed);

impl Job for Follow {
    const NAME: &'static str = "follow";
    type State = ();
    type Output = ();

    fn perform(self, _: &Context<'_, ()>) -> JobResult {
        Ok(())
    }
}

fn a_retry_keeps_it_and_a_follow_up_inherits_it(db: &TestDb) {
    let mut conn = db.connect();
    let policy = Policy::new().max_attempts(2).on_failure::<Follow>();
    let failing = job().traceparent(GIVEN).policy(policy);
    let id = failing.enqueue(&mut conn).unwrap().id;
    let registry = Registry::new().function(ACT, |_, cx| {
        assert_eq!(cx.traceparent().as_deref(), Some(GIVEN));
        Err::<(), _>("no".into())
    });
    for _ in 0..2 {
        let _ = drain(&mut conn, &registry).unwrap();
        travel(&mut conn, Duration::from_secs(3_600)).unwrap();
    }
    assert_eq!(db.rows("failed_executions"), 1);
    assert_eq!(stored(db), [GIVEN, GIVEN], "the job that follows has it");
    let failed = Jobs::failed().ids([id]);
    let retry = Change::Retry {
        even_at_most_once: false,
    };
    failed.change(&mut conn, retry).unwrap();
    assert_eq!(seen(db), [GIVEN]);
}

fn a_replaced_job_has_that_of_the_new_one(db: &TestDb) {
    let mut conn = db.connect();
    let replace = |header: Option<&str>| {
        let policy = Policy::new().on_conflict(OnConflict::Replace);
        let job = job().unique_id("a").policy(policy);
        header.map_or(job.clone(), |header| job.traceparent(header))
    };
    for (header, expected) in [(Some(GIVEN), GIVEN), (Some(OTHER), OTHER), (None, "none")] {
        replace(header).enqueue(&mut conn).unwrap();
        assert_eq!(stored(db), [expected]);
    }
}

fn a_recurring_task_stores_none(db: &TestDb) {
    let task = RecurringTask::of_class("sweep", "every 1m", "act", "\"a\"").unwrap();
    windlass::recurring::schedule(&mut db.connection(), &task).unwrap();
    windlass::recurring::run_now(&mut db.connection(), "sweep").unwrap();
    assert_eq!(stored(db), ["none"]);
    assert_eq!(seen(db), ["none"]);
}

fn the_program_passes_it_on(db: &TestDb) {
    let said = windlass(
        &db.url,
        &["enqueue", "act", "\"a\"", "--traceparent", GIVEN],
    );
    assert_eq!(said.code, Some(0), "{said:?}");
    assert_eq!(seen(db), [GIVEN]);
}

fn set(db: &TestDb, id: JobId, value: &str) {
    db.execute(&format!(
        "UPDATE solid_queue_jobs SET traceparent = {value} WHERE id = {id}"
    ));
}

fn any_program_may_write_it(db: &TestDb) {
    let id = job().enqueue(&mut db.connection()).unwrap().id;
    set(db, id, &format!("'{GIVEN}'"));
    assert_eq!(seen(db), [GIVEN]);
}

fn hostile_values_count_as_none(db: &TestDb) {
    let mut values: Vec<String> = [
        "''",
        "' '",
        "'00'",
        "'null'",
        "'--------'",
        "'00-0-0-0'",
        "'00-00000000000000000000000000000000-b7ad6b7169203331-01'",
        "'00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01'",
        "'ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01'",
        "'00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01'",
        "'00-ääääääääääääääää-b7ad6b7169203331-01-ääääääääääääääää'",
        "'🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀'",
        "'\u{1b}[2J00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01'",
    ]
    .map(str::to_owned)
    .to_vec();
    values.push(format!("'{}'", "0".repeat(1_000_000)));
    values.push(format!("'{GIVEN}{}'", "x".repeat(1_000_000)));
    if !db.is_postgres() {
        values.extend(["7", "1.5", "x'00ff00ff'", "zeroblob(60)"].map(str::to_owned));
        values.push("CAST(x'ff303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030' AS text)".to_owned());
    }
    for value in values {
        let id = job().enqueue(&mut db.connection()).unwrap().id;
        set(db, id, &value);
        assert_eq!(seen(db), ["none"], "{value}");
        let policy = Policy::new().on_failure::<Follow>();
        let id = job()
            .policy(policy)
            .enqueue(&mut db.connection())
            .unwrap()
            .id;
        set(db, id, &value);
        let registry = Registry::new().function(ACT, |_, _| Err::<(), _>("no".into()));
        let _ = drain(&mut db.connection(), &registry).unwrap();
        let inherited = "SELECT count(*) AS n FROM solid_queue_jobs WHERE class_name = 'follow' AND traceparent IS NOT NULL";
        assert_eq!((db.count(inherited), follows(db)), (0, 1), "{value}");
        db.execute("DELETE FROM solid_queue_jobs");
        db.execute("DELETE FROM solid_queue_ready_executions");
    }
}

fn follows(db: &TestDb) -> i64 {
    db.count("SELECT count(*) AS n FROM solid_queue_jobs WHERE class_name = 'follow'")
}

/// Its statements do not name the column.
fn an_enqueue_of_an_older_program_has_none(db: &TestDb) {
    let now = if db.is_postgres() {
        "now()"
    } else {
        "'2026-11-24 00:00:00'"
    };
    db.execute(&format!(
        "INSERT INTO solid_queue_jobs (queue_name, class_name, arguments, priority, created_at, updated_at) \
         VALUES ('default', 'act', '\"a\"', 0, {now}, {now})"
    ));
    db.execute(&format!(
        "INSERT INTO solid_queue_ready_executions (job_id, queue_name, priority, created_at) \
         SELECT id, queue_name, priority, {now} FROM solid_queue_jobs"
    ));
    assert_eq!(stored(db), ["none"]);
    assert_eq!(seen(db), ["none"]);
}
