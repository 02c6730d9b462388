//! Functions around every job of a registry.

use crate::on_each_database;
use crate::support::TestDb;
use crate::support::jobs::Log;
use crate::support::wait::{DEADLINE, until};
use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;
use windlass::hooks::JobEnd;
use windlass::testing::{RunOutcome, drain};
use windlass::{Function, Interrupted, JobError, JobResult, Policy, Registry, Worker};

on_each_database!(
    the_first_is_outermost_and_sees_each_outcome,
    what_is_set_around_is_there_inside,
    a_panic_around_is_a_failed_attempt,
    only_the_job_finishes_itself,
    an_interrupted_job_is_released,
    a_job_of_an_unknown_class_is_not_surrounded,
);

const ACT: Function<String> = Function::new("act");

fn act(name: &str) -> JobResult<Option<u8>> {
    match name {
        "fail" => Err("no".into()),
        "panic" => panic!("oh"),
        "discard" => Err(JobError::from("gone").discard()),
        "snooze" => Err(JobError::snooze(Duration::from_secs(60))),
        "stop" => Err(Interrupted::Stopping.into()),
        "seven" => Ok(Some(7)),
        _ => Ok(None),
    }
}

fn in_words(end: JobEnd<'_>) -> String {
    match end {
        JobEnd::Finished(result) => format!("finished {result:?}"),
        JobEnd::Failed(error) => format!("failed {}", error.message()),
        JobEnd::Panicked(error) => format!("panicked {}", error.message()),
        JobEnd::Discarded(error) => format!("discarded {}", error.message()),
        JobEnd::Snoozed(delay) => format!("snoozed {delay:?}"),
        JobEnd::Interrupted(reason) => format!("interrupted {reason:?}"),
        _ => unreachable!(),
    }
}

/// Notes its name before each job, and the outcome after it.
fn surrounded(registry: Registry, name: &'static str, log: &Arc<Log>) -> Registry {
    let log = Arc::clone(log);
    registry.around(move |cx, next| {
        log.add(format!("{name} {} {}", cx.class_name(), cx.attempt()));
        let ran = next.run();
        log.add(format!("{name} {}", in_words(ran.outcome())));
        ran
    })
}

fn the_first_is_outermost_and_sees_each_outcome(db: &TestDb) {
    let log = Arc::new(Log::default());
    let registry = Registry::new().function(ACT, |name: String, _| act(&name));
    let registry = surrounded(surrounded(registry, "outer", &log), "inner", &log);
    let mut conn = db.connect();
    for (name, seen) in [
        ("fine", "finished None"),
        ("seven", "finished Some(\"7\")"),
        ("fail", "failed no"),
        ("panic", "panicked oh"),
        ("discard", "discarded gone"),
        ("snooze", "snoozed 60s"),
        // Nothing stops here, so it is an error like any other.
        (
            "stop",
            "failed the job returned an interruption that was not raised for it: \
             the job was interrupted by the stop of its process",
        ),
    ] {
        ACT.enqueue(&mut conn, &name.to_owned()).unwrap();
        let before = log.len();
        let drained = drain(&mut conn, &registry).unwrap();
        assert_eq!(drained.runs.len(), 1, "{name}");
        assert_eq!(
            log.lines()[before..],
            [
                "outer act 1".to_owned(),
                "inner act 1".to_owned(),
                format!("inner {seen}"),
                format!("outer {seen}"),
            ]
        );
    }
}

thread_local! {
    static SPAN: RefCell<Option<String>> = const { RefCell::new(None) };
}

fn what_is_set_around_is_there_inside(db: &TestDb) {
    let registry = Registry::new()
        .function(ACT, |name: String, _| {
            let seen = SPAN.with_borrow(Clone::clone);
            assert_eq!(seen, Some(format!("act {name}")));
            Ok(())
        })
        .around(|cx, next| {
            SPAN.set(Some(format!("{} a", cx.class_name())));
            let ran = next.run();
            SPAN.set(None);
            ran
        });
    let mut conn = db.connect();
    ACT.enqueue(&mut conn, &"a".to_owned()).unwrap();
    drain(&mut conn, &registry).unwrap().assert_all_finished(1);
    assert_eq!(SPAN.take(), None);
    windlass::testing::perform_by(&registry, &ACT.job(&"a".to_owned()).unwrap()).unwrap();
    assert_eq!(SPAN.take(), None);
}

fn a_panic_around_is_a_failed_attempt(db: &TestDb) {
    let log = Arc::new(Log::default());
    let seen = Arc::clone(&log);
    let registry = Registry::new().function(ACT.policy(|| Policy::new().max_attempts(2)), {
        move |name: String, _| {
            seen.add("ran");
            act(&name)
        }
    });
    let registry = surrounded(registry, "outer", &log).around(|cx, next| {
        assert!(cx.attempt() > 1, "before the job");
        let _ran = next.run();
        panic!("after the job");
    });
    let mut conn = db.connect();
    ACT.enqueue(&mut conn, &"fine".to_owned()).unwrap();
    let first = drain(&mut conn, &registry).unwrap();
    let [first] = &first.runs[..] else {
        panic!("{first:?}")
    };
    assert!(
        matches!(&first.outcome, RunOutcome::Retried(kind, text, _) if kind == "panic" && text == "before the job"),
        "{first:?}"
    );
    windlass::testing::travel(&mut conn, Duration::from_secs(3600)).unwrap();
    let second = drain(&mut conn, &registry).unwrap();
    let failed = RunOutcome::Failed("panic".to_owned(), "after the job".to_owned());
    assert_eq!(second.runs[0].outcome, failed);
    assert_eq!(
        log.lines(),
        [
            "outer act 1",
            "outer panicked before the job",
            "outer act 2",
            "ran",
            "outer panicked after the job"
        ]
    );
    assert_eq!(db.rows("failed_executions"), 1);
}

fn only_the_job_finishes_itself(db: &TestDb) {
    let log = Arc::new(Log::default());
    let seen = Arc::clone(&log);
    let registry = Registry::new()
        .function(ACT, |_, cx| {
            let mut conn = cx.connection()?;
            conn.transaction(|conn| cx.finish_in(conn))?;
            Ok(())
        })
        .around(move |cx, next| {
            let mut conn = cx.connection().unwrap();
            let mut finish = || conn.transaction(|conn| cx.finish_in(conn)).unwrap_err();
            let before = finish();
            seen.add(before.kind());
            drop(conn);
            let _ran = next.run();
            let mut conn = cx.connection().unwrap();
            let mut finish = || conn.transaction(|conn| cx.finish_in(conn)).unwrap_err();
            let after = finish();
            seen.add(after.kind());
            panic!("the job has finished all the same");
        });
    ACT.enqueue(&mut db.connection(), &"fine".to_owned())
        .unwrap();
    let _worker = Worker::new(&db.database, registry)
        .threads(1)
        .start()
        .unwrap();
    until("the job has been performed", || log.len() == 2);
    assert_eq!(log.lines(), ["not_the_job", "not_the_job"]);
    until("no claim is left", || db.rows("claimed_executions") == 0);
    let finished = "SELECT count(*) AS n FROM solid_queue_jobs WHERE finished_at IS NOT NULL";
    assert_eq!(db.count(finished), 1);
    assert_eq!(db.rows("failed_executions"), 0);
}

fn an_interrupted_job_is_released(db: &TestDb) {
    let log = Arc::new(Log::default());
    let begun = Arc::clone(&log);
    let registry = Registry::new().function(ACT, move |_, cx| {
        begun.add("begun");
        while !cx.is_stopping() {
            cx.sleep(Duration::from_millis(5))?;
        }
        Err::<(), _>(Interrupted::Stopping.into())
    });
    let registry = surrounded(registry, "outer", &log);
    ACT.enqueue(&mut db.connection(), &"fine".to_owned())
        .unwrap();
    let mut worker = Worker::new(&db.database, registry)
        .threads(1)
        .start()
        .unwrap();
    until("the job runs", || log.count("begun") == 1);
    worker.stop();
    worker.join(DEADLINE).expect("it ends");
    assert_eq!(
        log.lines(),
        ["outer act 1", "begun", "outer interrupted Stopping"]
    );
    assert_eq!(db.rows("ready_executions"), 1);
    assert_eq!(db.rows("failed_executions"), 0);
    let counted = "SELECT count(*) AS n FROM solid_queue_jobs WHERE attempts > 0";
    assert_eq!(db.count(counted), 0);
}

fn a_job_of_an_unknown_class_is_not_surrounded(db: &TestDb) {
    let log = Arc::new(Log::default());
    let registry = surrounded(Registry::new(), "outer", &log);
    let mut conn = db.connect();
    ACT.enqueue(&mut conn, &"fine".to_owned()).unwrap();
    let drained = drain(&mut conn, &registry).unwrap();
    assert!(drained.runs.is_empty(), "{drained:?}");
    assert_eq!(log.len(), 0);
}
