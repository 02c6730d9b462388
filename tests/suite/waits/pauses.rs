//! Pauses and memos of a job.

use super::{WEEK, bench, counted, steps, time_passes};
use crate::on_each_database;
use crate::policies::{call, executions, finished, stubborn};
use crate::support::TestDb;
use crate::support::jobs::Log;
use crate::support::wait::until;
use std::time::Duration;
use windlass::jobs::{self, Change, Jobs};
use windlass::{Batch, Delivery, Job, JobError, JobResult, NewJob, OnConflict, Policy};

on_each_database!(
    a_pause_gives_the_thread_back,
    a_pause_ends_by_itself,
    a_pause_is_neither_an_attempt_nor_a_crash,
    an_operator_ends_a_pause,
    a_memo_is_done_once,
    a_memo_that_fails_is_done_again,
    what_was_done_before_a_pause_stays_done,
    names_are_used_once,
    a_job_that_goes_on_fails,
    a_job_that_fails_instead_is_retried,
    a_pausing_job_is_cancelled,
    a_pausing_member_keeps_its_batch_open,
    an_at_most_once_job_pauses,
    the_timeout_starts_anew,
    a_slot_is_given_up,
    a_replaced_job_starts_anew,
    a_wait_around_the_job_is_refused,
);

fn paused(db: &TestDb) {
    until("the job pauses", || executions(db, "scheduled") == 1);
}

fn a_pause_gives_the_thread_back(db: &TestDb) {
    let bench = bench(db, |cx, log| {
        cx.pause_for("pause", WEEK)?;
        log.add("after");
        Ok(())
    });
    call(db, Policy::new());
    paused(db);
    assert_eq!(executions(db, "claimed"), 0);
    assert_eq!(steps(db), 1);
    let due = "SELECT count(*) AS n FROM solid_queue_scheduled_executions WHERE scheduled_at > created_at";
    assert_eq!(db.count(due), 1);
    until("the event comes", || bench.events.count("Parked") == 1);
    time_passes(db);
    until("it has finished", || finished(db) == 1);
    assert_eq!(bench.log.lines(), ["run 1", "waits", "run 1", "after"]);
    assert_eq!(steps(db), 0, "they go with the job");
}

fn a_pause_ends_by_itself(db: &TestDb) {
    let bench = bench(db, |cx, _| {
        cx.pause_for("none", Duration::ZERO)?;
        cx.pause_for("short", Duration::from_millis(30))
    });
    call(db, Policy::new());
    until("it has finished", || finished(db) == 1);
    assert_eq!(bench.log.count("run"), 3);
}

fn a_pause_is_neither_an_attempt_nor_a_crash(db: &TestDb) {
    let bench = bench(db, |cx, _| {
        cx.pause_for("a", Duration::ZERO)?;
        cx.pause_for("b", Duration::ZERO)?;
        if cx.attempt() == 1 {
            return Err("once more".into());
        }
        cx.pause_for("c", Duration::ZERO)
    });
    call(db, stubborn(2));
    until("it has finished", || finished(db) == 1);
    let runs = [
        "run 1", "waits", "run 1", "waits", "run 1", "error", "run 2", "waits", "run 2",
    ];
    assert_eq!(bench.log.lines(), runs);
    assert_eq!(counted(db), 1, "the failure");
}

fn an_operator_ends_a_pause(db: &TestDb) {
    let bench = bench(db, |cx, _| cx.pause_for("pause", WEEK));
    let job = call(db, Policy::new());
    paused(db);
    let now = Change::RunIn(Duration::ZERO);
    Jobs::waiting()
        .ids([job])
        .change(&mut db.connection(), now)
        .unwrap();
    until("it has finished", || finished(db) == 1);
    assert_eq!(bench.log.count("run"), 2);
}

fn a_memo_is_done_once(db: &TestDb) {
    let bench = bench(db, |cx, log| {
        let text = cx.memo("charge", || {
            log.add("charged");
            Ok(format!("at attempt {}", cx.attempt()))
        })?;
        assert_eq!(text, "at attempt 1");
        let long = cx.memo("long", || Ok("x".repeat(1_000)))?;
        assert_eq!(long.len(), 1_000);
        if cx.attempt() < 3 {
            return Err("once more".into());
        }
        Ok(())
    });
    call(db, stubborn(3));
    until("it has finished", || finished(db) == 1);
    assert_eq!(bench.log.count("charged"), 1);
    assert_eq!(bench.log.count("run"), 3);
}

fn a_memo_that_fails_is_done_again(db: &TestDb) {
    let bench = bench(db, |cx, log| {
        let refused = cx.memo("a", || JobResult::<()>::Err("no".into()));
        assert_eq!(refused.unwrap_err().message(), "no");
        let large = cx.memo("a", || Ok("x".repeat(70_000)));
        assert_eq!(large.unwrap_err().kind(), "step_too_large");
        cx.memo("a", || {
            log.add("done");
            Ok(())
        })
    });
    call(db, Policy::new());
    until("it has finished", || finished(db) == 1);
    assert_eq!(bench.log.count("done"), 1);
}

fn what_was_done_before_a_pause_stays_done(db: &TestDb) {
    let bench = bench(db, |cx, log| {
        let mut conn = cx.connection()?;
        let first: String = cx.step(&mut conn, "first", |_| {
            log.add("first");
            Ok("a".repeat(500))
        })?;
        drop(conn);
        cx.pause_for("pause", Duration::ZERO)?;
        let mut conn = cx.connection()?;
        cx.step(&mut conn, "second", |_| {
            log.add("second");
            Ok(first.len())
        })
        .map(|length| assert_eq!(length, 500))
    });
    call(db, Policy::new());
    until("it has finished", || finished(db) == 1);
    assert_eq!(
        (bench.log.count("first"), bench.log.count("second")),
        (1, 1)
    );
}

fn names_are_used_once(db: &TestDb) {
    let bench = bench(db, |cx, log| {
        cx.memo("a", || Ok(()))?;
        let kinds = [
            cx.memo("a", || Ok(())),
            cx.pause_for("a", WEEK),
            cx.wait_event::<()>("a", "event", WEEK).map(drop),
            cx.step(&mut cx.connection()?, "a", |_| Ok(())),
            cx.pause_for("", WEEK),
            cx.pause_for(&"x".repeat(256), WEEK),
        ]
        .map(|result| result.unwrap_err().kind().to_owned());
        log.add(kinds.join(" "));
        cx.pause_for("b", Duration::ZERO)?;
        log.add(cx.pause_for("b", WEEK).unwrap_err().kind());
        Ok(())
    });
    call(db, Policy::new());
    until("it has finished", || finished(db) == 1);
    let twice = "duplicate_step";
    let kinds = format!("{twice} {twice} {twice} {twice} step_name step_name");
    assert!(
        bench.log.lines().contains(&kinds),
        "{:?}",
        bench.log.lines()
    );
    assert_eq!(bench.log.lines().last().unwrap(), twice);
}

/// It has asked to wait, and nothing of that is written.
fn a_job_that_goes_on_fails(db: &TestDb) {
    let bench = bench(db, |cx, log| {
        let waits = cx.pause_for("a", WEEK).unwrap_err();
        let kinds = [
            cx.pause_for("b", WEEK),
            cx.memo("c", || Ok(())),
            cx.step(&mut cx.connection()?, "d", |_| Ok(())),
        ]
        .map(|result| result.unwrap_err().kind().to_owned());
        log.add(format!("{} {}", waits.kind(), kinds.join(" ")));
        Ok(())
    });
    call(db, stubborn(5));
    until("it has failed", || executions(db, "failed") == 1);
    let ignored = "wait_ignored";
    let kinds = format!("waits {ignored} {ignored} {ignored}");
    assert_eq!(bench.log.lines(), ["run 1", kinds.as_str()]);
    let failure = db
        .texts("SELECT error AS t FROM solid_queue_failed_executions")
        .join("");
    assert!(
        failure.contains("return the error of the wait with `?`"),
        "{failure}"
    );
    assert_eq!(steps(db), 0);
}

fn a_job_that_fails_instead_is_retried(db: &TestDb) {
    let bench = bench(db, |cx, _| match cx.pause_for("a", Duration::ZERO) {
        Err(_) if cx.attempt() == 1 => Err("something else".into()),
        other => other,
    });
    call(db, stubborn(2));
    until("it has finished", || finished(db) == 1);
    let runs = ["run 1", "error", "run 2", "waits", "run 2"];
    assert_eq!(bench.log.lines(), runs);
}

fn a_pausing_job_is_cancelled(db: &TestDb) {
    let bench = bench(db, |cx, _| cx.pause_for("pause", WEEK));
    let job = call(db, Policy::new());
    paused(db);
    jobs::cancel(&mut db.connection(), job).unwrap();
    assert_eq!((finished(db), steps(db)), (1, 0));
    assert_eq!(bench.log.count("run"), 1);
}

fn a_pausing_member_keeps_its_batch_open(db: &TestDb) {
    let _bench = bench(db, |cx, _| cx.pause_for("pause", WEEK));
    let batch = Batch::new("test").add([&crate::policies::Call]);
    let batch = batch.enqueue(&mut db.connection()).unwrap().id;
    paused(db);
    assert_eq!(batch.status(&mut db.connection()).unwrap().open, 1);
    time_passes(db);
    until("the batch is over", || {
        batch.status(&mut db.connection()).unwrap().is_over()
    });
}

fn an_at_most_once_job_pauses(db: &TestDb) {
    let bench = bench(db, |cx, _| cx.pause_for("pause", Duration::ZERO));
    call(db, Policy::new().delivery(Delivery::AtMostOnce));
    until("it has finished", || finished(db) == 1);
    assert_eq!(bench.log.lines(), ["run 1", "waits", "run 1"]);
}

fn the_timeout_starts_anew(db: &TestDb) {
    let bench = bench(db, |cx, log| {
        let hour = Duration::from_secs(3600);
        let remaining = cx.remaining().unwrap();
        log.add(format!("fresh {}", hour - remaining < hour / 2));
        cx.pause_for("pause", 2 * hour)
    });
    call(db, Policy::new().timeout(Duration::from_secs(3600)));
    paused(db);
    time_passes(db);
    until("it has finished", || finished(db) == 1);
    let runs = ["run 1", "fresh true", "waits", "run 1", "fresh true"];
    assert_eq!(bench.log.lines(), runs);
}

/// While a job pauses, another of its key runs, also where the key is ordered.
fn a_slot_is_given_up(db: &TestDb) {
    use crate::support::jobs::Note;
    for ordered in [false, true] {
        let log = std::sync::Arc::new(Log::default());
        let limit = |job: NewJob| match ordered {
            false => job.concurrency(windlass::Concurrency::new("k").group("g")),
            true => job.concurrency(windlass::Concurrency::new("k").group("h").ordered()),
        };
        let bench = {
            let log = std::sync::Arc::clone(&log);
            crate::policies::Bench::with(db, |registry, _| {
                let registry = registry.register::<Note>(std::sync::Arc::clone(&log));
                registry.register::<crate::policies::Call>(crate::policies::Doing::new(move |cx| {
                    log.add("run");
                    cx.pause_for("pause", WEEK)?;
                    log.add("after");
                    Ok(())
                }))
            })
        };
        let first = limit(NewJob::new(&crate::policies::Call).unwrap());
        first.enqueue(&mut db.connection()).unwrap();
        paused(db);
        let second = limit(NewJob::new(&Note::new("second")).unwrap());
        second.enqueue(&mut db.connection()).unwrap();
        until("the second runs", || log.count("second") == 1);
        time_passes(db);
        until("the first goes on", || log.count("after") == 1);
        until("both have ended", || executions(db, "claimed") == 0);
        assert_eq!(
            windlass::limits::check_semaphores(&mut db.connection()).unwrap(),
            [""; 0]
        );
        drop(bench);
    }
}

/// The steps of the replaced job count only for that one.
fn a_replaced_job_starts_anew(db: &TestDb) {
    let bench = bench(db, |cx, _| {
        cx.pause_for("pause", WEEK)?;
        Ok(())
    });
    let replace = || {
        let job = NewJob::new(&crate::policies::Call).unwrap().unique_id("u");
        let job = job.policy(Policy::new().on_conflict(OnConflict::Replace));
        job.enqueue(&mut db.connection()).unwrap();
    };
    replace();
    paused(db);
    replace();
    until("the new one pauses", || bench.log.count("waits") == 2);
    paused(db);
    assert_eq!(steps(db), 1);
    db.execute(super::REPLACE);
    until("the one by SQL pauses", || bench.log.count("waits") == 3);
    paused(db);
    assert_eq!(steps(db), 1);
}

fn a_wait_around_the_job_is_refused(db: &TestDb) {
    let log = std::sync::Arc::new(Log::default());
    let _bench = {
        let log = std::sync::Arc::clone(&log);
        crate::policies::Bench::with(db, |registry, _| {
            let registry =
                registry.register::<crate::policies::Call>(crate::policies::Doing::new(|_| {
                    JobResult::<()>::Ok(())
                }));
            registry.around(move |cx, next| {
                let refused: JobError = cx.pause_for("a", WEEK).unwrap_err();
                log.add(refused.kind());
                next.run()
            })
        })
    };
    crate::policies::Call.enqueue(&mut db.connection()).unwrap();
    until("it has finished", || finished(db) == 1);
    assert_eq!(log.lines(), ["not_the_job"]);
}
