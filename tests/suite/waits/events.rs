//! Events, and jobs that wait for them.

use super::{WEEK, bench, counted, steps, time_passes, waits};
use crate::on_each_database;
use crate::policies::{call, executions, finished, stubborn};
use crate::support::TestDb;
use crate::support::wait::until;
use serde_json::json;
use std::time::Duration;
use windlass::events::emit;
use windlass::jobs::{self, Change, Jobs, Reason};
use windlass::{Error, Policy, limits};
use windlass_console::doctor;

on_each_database!(
    an_event_wakes_a_job,
    an_event_before_the_wait_counts,
    an_event_of_a_transaction_comes_with_its_commit,
    a_wait_times_out,
    an_event_stays_as_it_is,
    invalid_events_are_refused,
    invalid_waits_are_refused,
    many_jobs_wait_for_one_event,
    a_job_waits_several_times,
    a_job_that_is_replaced_by_sql_waits_no_longer,
    a_payload_of_another_type_is_an_error,
    a_waiting_job_is_explained,
    a_waiting_job_is_cancelled_or_discarded,
    a_waiting_job_is_moved_and_edited,
    a_waiting_job_has_no_slot,
    old_events_are_cleared,
);

fn waiting(db: &TestDb) {
    until("the job waits", || {
        executions(db, "blocked") == 1 && waits(db) == 1
    });
}

fn an_event_wakes_a_job(db: &TestDb) {
    let bench = bench(db, |cx, log| {
        let paid: Option<String> = cx.wait_event("paid", "paid/7", WEEK)?;
        log.add(format!("{paid:?}"));
        Ok(())
    });
    call(db, Policy::new());
    waiting(db);
    assert_eq!(executions(db, "claimed"), 0);
    emit(&mut db.connection(), "paid/8", "another").unwrap();
    emit(&mut db.connection(), "paid/7", "by card").unwrap();
    until("it has finished", || finished(db) == 1);
    let lines = ["run 1", "waits", "run 1", r#"Some("by card")"#];
    assert_eq!(bench.log.lines(), lines);
    assert_eq!((waits(db), steps(db), counted(db)), (0, 0, 0));
}

fn an_event_before_the_wait_counts(db: &TestDb) {
    emit(&mut db.connection(), "paid/7", &()).unwrap();
    let bench = bench(db, |cx, log| {
        let paid: Option<()> = cx.wait_event("paid", "paid/7", Duration::ZERO)?;
        log.add(format!("{paid:?}"));
        Ok(())
    });
    call(db, Policy::new());
    until("it has finished", || finished(db) == 1);
    assert_eq!(bench.log.lines(), ["run 1", "waits", "run 1", "Some(())"]);
}

fn an_event_of_a_transaction_comes_with_its_commit(db: &TestDb) {
    let bench = bench(db, |cx, log| {
        let paid: Option<i64> = cx.wait_event("paid", "paid/7", WEEK)?;
        log.add(format!("{paid:?}"));
        Ok(())
    });
    call(db, Policy::new());
    waiting(db);
    let mut conn = db.connect();
    let undone = conn.transaction(|conn| -> Result<(), Error> {
        emit(conn, "paid/7", &1)?;
        Err(diesel::result::Error::RollbackTransaction.into())
    });
    assert!(undone.is_err());
    conn.transaction(|conn| emit(conn, "paid/7", &2)).unwrap();
    until("it has finished", || finished(db) == 1);
    assert_eq!(bench.log.lines().last().unwrap(), "Some(2)");
}

fn a_wait_times_out(db: &TestDb) {
    let bench = bench(db, |cx, log| {
        let short: Option<i64> = cx.wait_event("short", "paid/7", Duration::from_millis(30))?;
        let long: Option<i64> = cx.wait_event("long", "paid/8", WEEK)?;
        log.add(format!("{short:?} {long:?}"));
        Ok(())
    });
    call(db, Policy::new());
    until("it waits for the second", || {
        db.count("SELECT count(*) AS n FROM windlass_waits WHERE step = 'long'") == 1
    });
    time_passes(db);
    until("it has finished", || finished(db) == 1);
    assert_eq!(bench.log.lines().last().unwrap(), "None None");
    assert_eq!(counted(db), 0);
}

fn an_event_stays_as_it_is(db: &TestDb) {
    let mut conn = db.connect();
    emit(&mut conn, "a", &json!({"x": 1, "y": [null]})).unwrap();
    emit(&mut conn, "a", &json!({"y": [null], "x": 1})).unwrap();
    let other = emit(&mut conn, "a", &json!({"x": 2})).unwrap_err();
    assert!(
        matches!(&other, Error::EventTaken { event } if event == "a"),
        "{other}"
    );
    // Two large numbers that are the same as floating-point numbers.
    let large = |last: u32| {
        serde_json::from_str::<Box<serde_json::value::RawValue>>(&format!(
            "1000000000000000000{last}"
        ))
    };
    emit(&mut conn, "large", &large(1).unwrap()).unwrap();
    emit(&mut conn, "large", &large(1).unwrap()).unwrap();
    let other = emit(&mut conn, "large", &large(2).unwrap());
    assert!(matches!(other, Err(Error::EventTaken { .. })), "{other:?}");
    db.execute("DELETE FROM windlass_events WHERE name = 'large'");
    // The transaction of the caller goes on.
    conn.transaction(|conn| {
        assert!(matches!(emit(conn, "a", &1), Err(Error::EventTaken { .. })));
        emit(conn, "b", &1)
    })
    .unwrap();
    let payloads = db.texts("SELECT payload AS t FROM windlass_events ORDER BY name");
    assert_eq!(payloads, [r#"{"x":1,"y":[null]}"#, "1"]);
}

fn invalid_events_are_refused(db: &TestDb) {
    let mut conn = db.connect();
    let deep = (0..300).fold(json!(1), |inner, _| json!([inner]));
    let error = emit(&mut conn, "deep", &deep).unwrap_err();
    assert!(matches!(error, Error::InvalidEvent { .. }), "{error}");
    assert!(
        error.to_string().contains("nested deeper than 120"),
        "{error}"
    );
    for (name, payload) in [
        ("", String::new()),
        ("a\0b", String::new()),
        (&*"x".repeat(256), String::new()),
        ("a", "x".repeat(65_536)),
    ] {
        let refused = emit(&mut conn, name, &payload).unwrap_err();
        assert!(matches!(refused, Error::InvalidEvent { .. }), "{refused}");
    }
    emit(&mut conn, &"ä".repeat(127), &"x".repeat(65_534)).unwrap();
}

fn invalid_waits_are_refused(db: &TestDb) {
    let bench = bench(db, |cx, log| {
        let empty = cx.wait_event::<()>("a", "", WEEK).unwrap_err();
        let long = cx.wait_event::<()>("b", "e", 5 * WEEK).unwrap_err();
        log.add(format!("{} {}", empty.kind(), long.kind()));
        Err(long)
    });
    call(db, stubborn(9));
    until("it has failed", || executions(db, "failed") == 1);
    let lines = ["run 1", "event_name wait_too_long", "wait_too_long"];
    assert_eq!(bench.log.lines(), lines);
    let error = db
        .texts("SELECT error AS t FROM solid_queue_failed_executions")
        .join("");
    assert!(
        error.contains("is 3024000 s, but events are kept for 2592000 s"),
        "{error}"
    );
}

fn many_jobs_wait_for_one_event(db: &TestDb) {
    const JOBS: i64 = 1_203;
    let bench = bench(db, |cx, log| {
        let payload: Option<i64> = cx.wait_event("wait", "go", WEEK)?;
        log.add(format!("got {payload:?}"));
        Ok(())
    });
    let jobs = (0..JOBS).map(|_| windlass::NewJob::new(&crate::policies::Call).unwrap());
    windlass::enqueue_all(&mut db.connection(), jobs).unwrap();
    until("all wait", || waits(db) == JOBS);
    emit(&mut db.connection(), "go", &7).unwrap();
    until("all have finished", || finished(db) == JOBS);
    assert_eq!(bench.log.count("got") as i64, JOBS);
    assert_eq!((waits(db), executions(db, "blocked")), (0, 0));
}

fn a_job_waits_several_times(db: &TestDb) {
    let bench = bench(db, |cx, log| {
        for number in 0..3 {
            let event = format!("event/{number}");
            let got: Option<String> = cx.wait_event(&format!("step {number}"), &event, WEEK)?;
            log.add(got.unwrap());
            if number == 1 && cx.attempt() == 1 {
                return Err("once more".into());
            }
        }
        Ok(())
    });
    call(db, stubborn(2));
    for number in [2, 0, 1] {
        let (event, payload) = (format!("event/{number}"), "x".repeat(1_000 + number));
        emit(&mut db.connection(), &event, &payload).unwrap();
    }
    until("it has finished", || finished(db) == 1);
    assert_eq!(bench.log.count("waits"), 3);
    assert_eq!(bench.log.lines().last().unwrap().len(), 1_002);
}

fn a_job_that_is_replaced_by_sql_waits_no_longer(db: &TestDb) {
    let bench = bench(db, |cx, _| {
        cx.wait_event::<()>("paid", "paid/7", WEEK)?;
        Ok(())
    });
    for runs in 1..=2 {
        db.execute(super::REPLACE);
        until("it waits", || bench.log.count("waits") == runs);
        waiting(db);
    }
    db.execute(&super::REPLACE.replace("'call'", "'other'"));
    assert_eq!(
        (
            executions(db, "ready"),
            executions(db, "blocked"),
            waits(db)
        ),
        (1, 0, 0)
    );
}

fn a_payload_of_another_type_is_an_error(db: &TestDb) {
    emit(&mut db.connection(), "a", "text").unwrap();
    let bench = bench(db, |cx, _| cx.wait_event::<i64>("a", "a", WEEK).map(drop));
    call(db, Policy::new());
    until("it has failed", || executions(db, "failed") == 1);
    let lines = ["run 1", "waits", "run 1", "unreadable_event"];
    assert_eq!(bench.log.lines(), lines);
}

fn a_waiting_job_is_explained(db: &TestDb) {
    let _bench = bench(db, |cx, _| {
        cx.wait_event::<()>("paid", "paid/7", WEEK).map(drop)
    });
    let job = call(db, Policy::new());
    waiting(db);
    let said = jobs::explain(&mut db.connection(), job).unwrap().unwrap();
    assert!(
        matches!(&said.reason, Reason::Event { name, step, until: Some(_) } if name == "paid/7" && step == "paid"),
        "{said:?}"
    );
    assert!(said.is_on_its_way());
    let wrong = doctor(&mut db.connection()).unwrap();
    assert!(
        wrong
            .iter()
            .all(|finding| finding.verdict != windlass_console::Verdict::Problem),
        "{wrong:?}"
    );
}

fn a_waiting_job_is_cancelled_or_discarded(db: &TestDb) {
    let bench = bench(db, |cx, _| {
        cx.wait_event::<()>("paid", "paid/7", WEEK).map(drop)
    });
    let job = call(db, Policy::new());
    waiting(db);
    jobs::cancel(&mut db.connection(), job).unwrap();
    assert_eq!((finished(db), waits(db), steps(db)), (1, 0, 0));
    let job = call(db, Policy::new());
    waiting(db);
    Jobs::waiting()
        .ids([job])
        .change(&mut db.connection(), Change::Discard)
        .unwrap();
    emit(&mut db.connection(), "paid/7", &()).unwrap();
    time_passes(db);
    until("what is left is cleared", || waits(db) == 0);
    assert_eq!(bench.log.count("run"), 2);
}

fn a_waiting_job_is_moved_and_edited(db: &TestDb) {
    let bench = bench(db, |cx, log| {
        log.add(cx.queue_name());
        cx.wait_event::<()>("paid", "paid/7", WEEK).map(drop)
    });
    let job = call(db, Policy::new());
    waiting(db);
    let mut conn = db.connect();
    let other = Change::Queue("other".to_owned());
    Jobs::waiting().ids([job]).change(&mut conn, other).unwrap();
    Jobs::waiting()
        .ids([job])
        .change(&mut conn, Change::Priority(3))
        .unwrap();
    jobs::edit_arguments(&mut conn, job, "null", None).unwrap();
    waiting(db);
    emit(&mut conn, "paid/7", &()).unwrap();
    until("it has finished", || finished(db) == 1);
    assert_eq!(bench.log.lines().last().unwrap(), "other");
}

/// Another job of its key runs while it waits, and it gets its slot again before it goes on.
fn a_waiting_job_has_no_slot(db: &TestDb) {
    let bench = bench(db, |cx, log| {
        cx.wait_event::<()>("paid", &format!("paid/{}", cx.job_id()), WEEK)?;
        log.add("paid");
        Ok(())
    });
    let limited = || {
        let job = windlass::NewJob::new(&crate::policies::Call).unwrap();
        let job = job.concurrency(windlass::Concurrency::new("k").group("g"));
        job.enqueue(&mut db.connection()).unwrap().id
    };
    let jobs = [limited(), limited(), limited()];
    until("all wait", || waits(db) == 3);
    for job in jobs {
        emit(&mut db.connection(), &format!("paid/{job}"), &()).unwrap();
    }
    until("all have finished", || finished(db) == 3);
    assert_eq!(bench.log.count("paid"), 3);
    assert_eq!(
        limits::check_semaphores(&mut db.connection()).unwrap(),
        [""; 0]
    );
}

/// Except one that a job waits for.
fn old_events_are_cleared(db: &TestDb) {
    let mut conn = db.connect();
    for event in ["old", "awaited", "new"] {
        emit(&mut conn, event, &()).unwrap();
    }
    db.execute(
        "UPDATE windlass_events SET created_at = '2020-01-01 00:00:00.000000' WHERE name <> 'new'",
    );
    db.execute(
        "INSERT INTO windlass_waits (job_id, claim_id, step, event_name, timeout_at, created_at) \
         VALUES (7, 1, 'a', 'awaited', '2030-01-01 00:00:00.000000', '2026-01-01 00:00:00.000000')",
    );
    let supervisor = windlass::Supervisor::new(&db.database)
        .dispatcher(windlass::Dispatcher::new(&db.database))
        .retention(windlass::processes::Retention::new().every(Duration::from_millis(20)))
        .start()
        .unwrap();
    let events = || {
        db.texts("SELECT name AS t FROM windlass_events ORDER BY name")
            .join(" ")
    };
    // The job of the wait does not exist, so that the wait is cleared as well.
    until("both are cleared", || events() == "new");
    supervisor.stop();
    assert_eq!(waits(db), 0);
}
