//! The functions of `windlass::testing` for the tests of applications.

use crate::on_each_database;
use crate::support::TestDb;
use crate::support::jobs::{Log, Note};
use crate::with_own_connection;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;
use windlass::testing::{self, RunOutcome, TestDatabase};
use windlass::{Context, Job, JobError, JobResult, NewJob, Policy, Registry, enqueue_all, queues};

on_each_database!(
    what_was_enqueued_is_told,
    draining_performs_what_is_ready_and_what_that_enqueues,
    a_failure_is_told_and_the_connection_survives_it,
    time_passes_as_far_as_the_tables_go,
    nothing_stays_of_a_test,
    the_applications_own_transaction_does,
    paused_queues_and_strange_classes_are_left_alone,
);

const HOUR: Duration = Duration::from_secs(3_600);

/// Enqueues the next smaller one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Chain(u32);

impl Job for Chain {
    const NAME: &'static str = "chain";
    const QUEUE: &'static str = "chains";
    type State = Log;
    type Output = u32;

    fn perform(self, cx: &Context<'_, Log>) -> JobResult<u32> {
        cx.add(format!("{} {}", self.0, cx.attempt()));
        if self.0 > 0 {
            Chain(self.0 - 1).enqueue(&mut cx.connection()?)?;
        }
        Ok(self.0)
    }
}

/// Fails or panics, with the connection in its hands.
#[derive(Serialize, Deserialize)]
struct Fail {
    panics: bool,
}

impl Job for Fail {
    const NAME: &'static str = "fail";
    type State = ();
    type Output = ();

    fn policy() -> Policy {
        Policy::new().max_attempts(2)
    }

    fn retry_in(_: u32, _: &JobError) -> Option<Duration> {
        Some(HOUR)
    }

    fn perform(self, cx: &Context<'_, ()>) -> JobResult {
        let _held = cx.connection()?;
        assert!(!self.panics, "out of luck");
        Err("no luck".into())
    }
}

/// A database of the kind that the test runs on.
fn bench(db: &TestDb) -> TestDatabase {
    TestDatabase::open(&db.url).unwrap()
}

fn what_was_enqueued_is_told(db: &TestDb) {
    let db = &mut bench(db);
    testing::assert_not_enqueued::<Chain>(db);
    Chain(3).enqueue(db).unwrap();
    let job = testing::assert_enqueued::<Chain>(db);
    assert_eq!(
        (job.arguments, &*job.queue_name, job.wait),
        (Chain(3), "chains", Duration::ZERO)
    );
    assert_eq!((job.scheduled_at, job.priority, job.attempts), (None, 0, 0));
    let note = NewJob::new(&Note::new("later")).unwrap();
    let at = chrono::DateTime::from_timestamp(4_000_000_000, 0).unwrap();
    note.clone()
        .at(at)
        .priority(3)
        .idempotency_key("k")
        .enqueue(db)
        .unwrap();
    note.after(HOUR).enqueue(db).unwrap();
    let notes = testing::enqueued::<Note>(db).unwrap();
    assert_eq!(notes[0].scheduled_at, Some(at));
    assert_eq!(
        (notes[0].priority, notes[0].idempotency_key.as_deref()),
        (3, Some("k"))
    );
    assert!(
        (3_500..=3_600).contains(&notes[1].wait.as_secs()),
        "{notes:?}"
    );
    let any = testing::enqueued_any(db).unwrap();
    assert_eq!(any.len(), 3);
    assert_eq!(any[1].arguments, serde_json::json!({"text": "later"}));
    for (wrong, says) in [
        (
            caught(|| drop(testing::assert_enqueued::<Note>(db))),
            "2 jobs `note` are enqueued, not one",
        ),
        (
            caught(|| testing::assert_not_enqueued::<Chain>(db)),
            "1 jobs `chain` are enqueued, not none",
        ),
        (
            caught(|| drop(testing::assert_enqueued::<Fail>(db))),
            "`chain` on chains",
        ),
    ] {
        assert!(wrong.contains(says), "{wrong}");
        assert!(!wrong.contains("later"), "{wrong}");
    }
}

fn caught(work: impl FnOnce()) -> String {
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
    *result.unwrap_err().downcast::<String>().unwrap()
}

fn draining_performs_what_is_ready_and_what_that_enqueues(db: &TestDb) {
    let db = &mut bench(db);
    let log = Arc::new(Log::default());
    let registry = Registry::new().register::<Chain>(Arc::clone(&log));
    Chain(2).enqueue(db).unwrap();
    let later = NewJob::new(&Chain(0)).unwrap();
    later.after(HOUR).enqueue(db).unwrap();
    let drained = db.drain(&registry).unwrap();
    drained.assert_all_finished(3);
    assert_eq!(log.lines(), ["2 1", "1 1", "0 1"]);
    assert_eq!(testing::assert_enqueued::<Chain>(db).arguments, Chain(0));
    db.drain(&registry).unwrap().assert_all_finished(0);
    assert_eq!(windlass::processes::list(db).unwrap(), []);
}

fn a_failure_is_told_and_the_connection_survives_it(db: &TestDb) {
    let db = &mut bench(db);
    let registry = Registry::new().register::<Fail>(());
    Fail { panics: true }.enqueue(db).unwrap();
    Fail { panics: false }.enqueue(db).unwrap();
    let drained = db.drain(&registry).unwrap();
    assert_eq!((drained.runs.len(), drained.finished()), (2, 0));
    let retried =
        |kind: &str, text: &str| RunOutcome::Retried(kind.to_owned(), text.to_owned(), HOUR);
    assert_eq!(drained.runs[0].outcome, retried("panic", "out of luck"));
    assert!(
        matches!(&drained.runs[1].outcome, RunOutcome::Retried(_, text, HOUR) if text == "no luck")
    );
    let wrong = caught(|| drained.assert_all_finished(2));
    assert!(wrong.contains("no luck"), "{wrong}");
    // Their second attempt, an hour later.
    testing::travel(db, HOUR).unwrap();
    let drained = db.drain(&registry).unwrap();
    let failed = |run: &testing::Performed| matches!(run.outcome, RunOutcome::Failed(..));
    assert!(
        drained.runs.len() == 2 && drained.runs.iter().all(failed),
        "{drained:?}"
    );
    testing::assert_not_enqueued::<Fail>(db);
}

fn time_passes_as_far_as_the_tables_go(db: &TestDb) {
    let db = &mut bench(db);
    Note::new("ready").enqueue(db).unwrap();
    let later = NewJob::new(&Note::new("later")).unwrap().queue("other");
    later.after(2 * HOUR).enqueue(db).unwrap();
    testing::travel(db, HOUR).unwrap();
    let latency = queues::latency(db, "default").unwrap().unwrap();
    assert!((3_600..3_700).contains(&latency.as_secs()), "{latency:?}");
    let notes = testing::enqueued::<Note>(db).unwrap();
    assert!(
        (3_500..=3_600).contains(&notes[1].wait.as_secs()),
        "{notes:?}"
    );
    testing::travel(db, HOUR).unwrap();
    let log = Arc::new(Log::default());
    let registry = Registry::new().register::<Note>(Arc::clone(&log));
    db.drain(&registry).unwrap().assert_all_finished(2);
    // Jobs that had finished long ago are cleared, for example.
    testing::travel(db, 48 * HOUR).unwrap();
    assert_eq!(queues::list(db).unwrap(), []);
}

fn nothing_stays_of_a_test(db: &TestDb) {
    let mut one = bench(db);
    Chain(1).enqueue(&mut one).unwrap();
    queues::pause(&mut one, "mail", "ada", "").unwrap();
    drop(one);
    assert_eq!(db.rows("jobs") + db.rows("pauses"), 0);
}

fn the_applications_own_transaction_does(db: &TestDb) {
    let log = Arc::new(Log::default());
    let registry = Registry::new()
        .register::<Note>(Arc::clone(&log))
        .register::<Fail>(());
    with_own_connection!(db, |conn| {
        conn.test_transaction::<_, windlass::Error, _>(|conn| {
            enqueue_all(
                conn,
                ["a", "b"].map(|text| NewJob::new(&Note::new(text)).unwrap()),
            )?;
            testing::drain(conn, &registry)?.assert_all_finished(2);
            // It would need a connection, and is told how to get one.
            Fail { panics: true }.enqueue(conn)?;
            let drained = testing::drain(conn, &registry)?;
            assert!(
                format!("{drained:?}").contains("TestDatabase"),
                "{drained:?}"
            );
            Ok(())
        });
    });
    assert_eq!(log.lines(), ["a", "b"]);
    assert_eq!(db.rows("jobs") + db.rows("processes"), 0);
}

fn paused_queues_and_strange_classes_are_left_alone(db: &TestDb) {
    let db = &mut bench(db);
    let log = Arc::new(Log::default());
    let registry = Registry::new().register::<Note>(Arc::clone(&log));
    queues::pause(db, "held", "ada", "").unwrap();
    let held = NewJob::new(&Note::new("held")).unwrap().queue("held");
    held.enqueue(db).unwrap();
    NewJob::of_class("strange", "{}").enqueue(db).unwrap();
    db.drain(&registry).unwrap().assert_all_finished(0);
    assert_eq!(testing::enqueued_any(db).unwrap().len(), 2);
}

#[test]
fn memory_is_enough() {
    let mut db = TestDatabase::in_memory().unwrap();
    let log = Arc::new(Log::default());
    let registry = Registry::new().register::<Chain>(Arc::clone(&log));
    Chain(1).enqueue(&mut db).unwrap();
    db.drain(&registry).unwrap().assert_all_finished(2);
    let mut other = TestDatabase::in_memory().unwrap();
    testing::assert_not_enqueued::<Chain>(&mut other);
}

#[test]
fn a_job_can_be_performed_alone() {
    let log = Log::default();
    assert_eq!(testing::perform(Chain(0), &log).unwrap(), 0);
    assert_eq!(log.lines(), ["0 1"]);
    let error = testing::perform(Chain(1), &log).unwrap_err();
    assert!(error.to_string().contains("TestDatabase"), "{error}");
}

/// Enqueues itself.
#[derive(Serialize, Deserialize)]
struct Forever;

impl Job for Forever {
    const NAME: &'static str = "forever";
    type State = ();
    type Output = ();

    fn perform(self, cx: &Context<'_, ()>) -> JobResult {
        Forever.enqueue(&mut cx.connection()?)?;
        Ok(())
    }
}

#[test]
fn a_drain_does_not_last_for_ever() {
    let mut db = TestDatabase::in_memory().unwrap();
    Forever.enqueue(&mut db).unwrap();
    let registry = Registry::new().register::<Forever>(());
    let wrong = caught(|| drop(db.drain(&registry)));
    assert!(wrong.contains("does `forever` enqueue itself"), "{wrong}");
}
