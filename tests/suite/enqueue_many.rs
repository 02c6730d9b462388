//! Many jobs in one call.

use crate::support::TestDb;
use crate::support::jobs::Note;
use crate::{on_each_database, with_own_connection};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::time::Duration;
use windlass::{
    Backoff, Context, Delivery, Error, Job, JobId, JobResult, NewJob, Policy, enqueue_all,
};

#[derive(Debug, Serialize, Deserialize)]
struct Count(u32);

impl Job for Count {
    const NAME: &'static str = "count";
    const QUEUE: &'static str = "counting";
    const PRIORITY: i32 = 3;
    type State = ();
    type Output = ();

    fn perform(self, _cx: &Context<'_, ()>) -> JobResult {
        Ok(())
    }
}

fn note(text: &str) -> NewJob {
    NewJob::new(&Note::new(text)).unwrap()
}

fn past() -> DateTime<Utc> {
    "2026-01-01T00:00:00Z".parse().unwrap()
}

/// The n-th of a mixed lot, and what is to become of it.
fn nth(n: u32) -> (NewJob, &'static str, &'static str) {
    let (job, class) = if n.is_multiple_of(3) {
        (NewJob::new(&Count(n)).unwrap(), "count")
    } else {
        (note(&n.to_string()), "note")
    };
    match n % 7 {
        1 => (job.after(Duration::from_secs(3600)), class, "scheduled"),
        2 => (
            job.at("2999-01-01T00:00:00Z".parse().unwrap()),
            class,
            "scheduled",
        ),
        3 => (job.at(past()), class, "ready"),
        4 => (job.idempotency_key(format!("key {n}")), class, "ready"),
        _ => (job, class, "ready"),
    }
}

/// Enough for three statements, and for keys to cut them up.
fn a_mixed_lot_keeps_its_order(db: &TestDb) {
    let jobs: Vec<_> = (0..2_500).map(nth).collect();
    let enqueued = enqueue_all(&mut db.connection(), jobs.iter().map(|job| job.0.clone())).unwrap();
    assert!(enqueued.iter().all(|enqueued| enqueued.is_new));
    assert!(enqueued.is_sorted_by(|a, b| a.id < b.id));
    let rows = db.texts(
        "SELECT j.id || ' ' || j.class_name || ' ' || j.queue_name || ' ' || j.priority || ' ' || \
         CASE WHEN r.id IS NOT NULL AND s.id IS NULL THEN 'ready' \
           WHEN s.id IS NOT NULL AND r.id IS NULL THEN 'scheduled' ELSE 'lost' END \
         || ' ' || j.arguments AS t FROM solid_queue_jobs j \
         LEFT JOIN solid_queue_ready_executions r ON r.job_id = j.id AND r.queue_name = j.queue_name \
           AND r.priority = j.priority AND r.class_name = j.class_name \
         LEFT JOIN solid_queue_scheduled_executions s ON s.job_id = j.id AND s.queue_name = j.queue_name \
           AND s.priority = j.priority AND s.scheduled_at = j.scheduled_at ORDER BY j.id",
    );
    assert_eq!(rows.len(), 2_500);
    for (n, (row, (_, class, place))) in rows.iter().zip(&jobs).enumerate() {
        let id = enqueued[n].id;
        let expected = if *class == "count" {
            format!("{id} count counting 3 {place} {n}")
        } else {
            format!(r#"{id} note default 0 {place} {{"text":"{n}"}}"#)
        };
        assert_eq!(*row, expected);
    }
}

fn a_large_plain_lot_keeps_its_order(db: &TestDb) {
    let jobs = (0..2_500).map(|n| NewJob::new(&Count(n)).unwrap());
    let enqueued = enqueue_all(&mut db.connection(), jobs).unwrap();
    let arguments: HashMap<i64, String> = db
        .texts("SELECT id || ' ' || arguments AS t FROM solid_queue_jobs")
        .iter()
        .map(|row| {
            let (id, arguments) = row.split_once(' ').unwrap();
            (id.parse().unwrap(), arguments.to_owned())
        })
        .collect();
    for (n, enqueued) in enqueued.iter().enumerate() {
        assert_eq!(arguments[&enqueued.id.0], n.to_string());
    }
    assert_eq!(db.rows("ready_executions"), 2_500);
}

/// All that is kept of a job but for its id and its times.
fn kept(db: &TestDb, id: JobId) -> String {
    let text = format!(
        "SELECT coalesce(j.queue_name, '?') || '|' || j.class_name || '|' || j.arguments || '|' || j.priority || '|' \
           || coalesce(CAST(j.max_attempts AS text), '-') || '|' || coalesce(CAST(j.max_crashes AS text), '-') || '|' \
           || CASE WHEN j.at_most_once THEN 'once' ELSE '-' END || '|' || coalesce(j.policy, '-') || '|' \
           || CASE WHEN j.scheduled_at IS NULL THEN 'now' ELSE 'then' END || '|' \
           || coalesce(r.queue_name || '|' || r.priority || '|' || r.class_name || '|' \
             || CASE WHEN r.cautious THEN 'cautious' ELSE 'plain' END, 'not ready') AS t \
         FROM solid_queue_jobs j LEFT JOIN solid_queue_ready_executions r ON r.job_id = j.id WHERE j.id = {id}"
    );
    let [row] = <[String; 1]>::try_from(db.texts(&text)).unwrap();
    row
}

/// Jobs that are all alike, and those that differ in one thing from the
/// others of their lot, are kept as if each was enqueued by itself.
fn a_lot_is_as_its_jobs_one_by_one(db: &TestDb) {
    let mut conn = db.connect();
    let plain = || note("x");
    let backoff = Backoff::Fixed(Duration::from_secs(7));
    let special = [
        plain(),
        note("y"),
        plain().queue("mail"),
        plain().priority(-3),
        plain().after(Duration::from_secs(3600)),
        plain().at(past()),
        plain().policy(Policy::new().max_attempts(4)),
        plain().policy(Policy::new().max_crashes(0)),
        plain().policy(Policy::new().max_crashes(9)),
        plain().policy(Policy::new().delivery(Delivery::AtMostOnce)),
        plain().policy(Policy::new().backoff(backoff)),
        NewJob::new(&Count(1)).unwrap(),
    ];
    let alone = kept(db, plain().enqueue(&mut conn).unwrap().id);
    for job in special {
        let expected = kept(db, job.clone().enqueue(&mut conn).unwrap().id);
        let alike = enqueue_all(&mut conn, [job.clone(), job.clone()]).unwrap();
        let mixed = enqueue_all(&mut conn, [plain(), job]).unwrap();
        for (id, expected) in [
            (alike[0].id, &expected),
            (alike[1].id, &expected),
            (mixed[0].id, &alone),
            (mixed[1].id, &expected),
        ] {
            assert_eq!(kept(db, id), *expected);
        }
    }
}

/// The caller's transaction goes on after a lot that failed, of one statement
/// too.
fn a_lot_that_fails_leaves_the_callers_transaction_alive(db: &TestDb) {
    db.execute("DROP TABLE solid_queue_ready_executions");
    with_own_connection!(db, |conn| {
        let done = conn.transaction(|conn| {
            assert!(enqueue_all(conn, [note("a"), note("b")]).is_err());
            let text = "INSERT INTO solid_queue_pauses (queue_name, created_at) \
                        VALUES ('after', '2026-01-01 00:00:00')";
            crate::support::db::execute(conn, text);
            Ok::<(), diesel::result::Error>(())
        });
        assert_eq!(done, Ok(()));
    });
    assert_eq!(db.rows("jobs"), 0);
    assert_eq!(db.rows("pauses"), 1);
}

fn nothing_is_enqueued_as_nothing(db: &TestDb) {
    assert!(enqueue_all(&mut db.connection(), []).unwrap().is_empty());
    assert_eq!(db.rows("jobs"), 0);
}

fn keys_of_one_call_find_each_other(db: &TestDb) {
    let mut conn = db.connect();
    let known = note("known")
        .idempotency_key("known")
        .enqueue(&mut conn)
        .unwrap();
    let enqueued = enqueue_all(
        &mut conn,
        [
            note("a").idempotency_key("same"),
            note("plain"),
            note("b").idempotency_key("same"),
            note("c").idempotency_key("known"),
            note("other")
                .idempotency_key("other")
                .after(Duration::from_secs(60)),
            note("last"),
        ],
    )
    .unwrap();
    let is_new: Vec<bool> = enqueued.iter().map(|enqueued| enqueued.is_new).collect();
    assert_eq!(is_new, [true, true, false, false, true, true]);
    assert_eq!(enqueued[2].id, enqueued[0].id);
    assert_eq!(enqueued[3].id, known.id);
    assert_eq!(db.rows("jobs"), 5);
    assert_eq!(db.rows("ready_executions"), 4);
    assert_eq!(db.rows("scheduled_executions"), 1);
    let kept =
        db.texts("SELECT arguments AS t FROM solid_queue_jobs WHERE idempotency_key = 'same'");
    assert_eq!(kept, [r#"{"text":"a"}"#]);
}

fn one_that_is_refused_refuses_all(db: &TestDb) {
    let mut jobs: Vec<NewJob> = (0..1_500).map(|n| note(&n.to_string())).collect();
    jobs.push(note("x").queue("not a name"));
    let error = enqueue_all(&mut db.connection(), jobs).unwrap_err();
    assert!(matches!(error, Error::InvalidName { .. }), "{error:?}");
    assert_eq!(db.rows("jobs"), 0);
}

/// The last of three statements fails: there is no table for what is not due.
fn a_statement_that_fails_takes_the_others_along(db: &TestDb) {
    db.execute("DROP TABLE solid_queue_scheduled_executions");
    let mut jobs: Vec<NewJob> = (0..2_100).map(|n| note(&n.to_string())).collect();
    jobs.push(note("later").after(Duration::from_secs(60)));
    with_own_connection!(db, |conn| {
        let result = enqueue_all(&mut conn, jobs);
        assert!(matches!(result, Err(Error::Query { .. })), "{result:?}");
        assert_eq!(db.rows("jobs"), 0);
        assert_eq!(db.rows("ready_executions"), 0);
        crate::support::db::execute(&mut conn, "SELECT 1");
    });
}

fn ids_do_not_depend_on_the_order_of_the_outcomes(db: &TestDb) {
    let jobs = (0..10).map(|n| {
        if n % 2 == 0 {
            note("x")
        } else {
            note("x").after(Duration::from_secs(9))
        }
    });
    let enqueued = enqueue_all(&mut db.connection(), jobs).unwrap();
    let scheduled: Vec<JobId> = enqueued
        .iter()
        .skip(1)
        .step_by(2)
        .map(|job| job.id)
        .collect();
    let rows = db.texts(
        "SELECT CAST(job_id AS text) AS t FROM solid_queue_scheduled_executions ORDER BY job_id",
    );
    assert_eq!(
        rows,
        scheduled
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
    );
}

on_each_database!(
    a_mixed_lot_keeps_its_order,
    a_large_plain_lot_keeps_its_order,
    a_lot_is_as_its_jobs_one_by_one,
    a_lot_that_fails_leaves_the_callers_transaction_alive,
    nothing_is_enqueued_as_nothing,
    keys_of_one_call_find_each_other,
    one_that_is_refused_refuses_all,
    a_statement_that_fails_takes_the_others_along,
    ids_do_not_depend_on_the_order_of_the_outcomes,
);

crate::through_a_pooler_in_all!(
    a_mixed_lot_keeps_its_order,
    a_large_plain_lot_keeps_its_order,
    a_lot_is_as_its_jobs_one_by_one,
    a_lot_that_fails_leaves_the_callers_transaction_alive,
    nothing_is_enqueued_as_nothing,
    keys_of_one_call_find_each_other,
    one_that_is_refused_refuses_all,
    a_statement_that_fails_takes_the_others_along,
    ids_do_not_depend_on_the_order_of_the_outcomes,
);
