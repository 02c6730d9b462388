//! The options of a drain, and inline mode.

use crate::on_each_database;
use crate::support::TestDb;
use crate::support::jobs::{Log, Note};
use crate::with_own_connection;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;
use windlass::limits::LimitConflict;
use windlass::testing::{self, Drain, RunOutcome, TestDatabase};
use windlass::{
    AsConn, Concurrency, Context, Job, JobError, JobResult, NewJob, Policy, Registry, enqueue_all,
    queues,
};

on_each_database!(
    only_some_queues_or_classes_are_drained,
    former_names_of_a_class_are_drained_too,
    a_drain_ends_after_so_many_runs,
    scheduled_jobs_are_performed_before_their_time,
    retries_do_not_wait,
    limits_can_be_switched_off,
    an_own_connection_has_the_same_options,
    inline_mode_performs_at_once_what_is_enqueued,
    inline_mode_has_the_options_of_a_drain,
);

const HOUR: Duration = Duration::from_secs(3_600);

/// Fails twice, an hour before each next attempt.
#[derive(Serialize, Deserialize)]
struct Flaky;

impl Job for Flaky {
    const NAME: &'static str = "flaky";
    type State = Log;
    type Output = ();

    fn policy() -> Policy {
        Policy::new().max_attempts(3)
    }

    fn retry_in(_: u32, _: &JobError) -> Option<Duration> {
        Some(HOUR)
    }

    fn perform(self, cx: &Context<'_, Log>) -> JobResult {
        cx.add(format!("flaky {}", cx.attempt()));
        match cx.attempt() {
            3 => Ok(()),
            _ => Err("not yet".into()),
        }
    }
}

/// Asks for another hour each time.
#[derive(Serialize, Deserialize)]
struct Snoozing;

impl Job for Snoozing {
    const NAME: &'static str = "snoozing";
    type State = Log;
    type Output = ();

    fn perform(self, cx: &Context<'_, Log>) -> JobResult {
        cx.add("snoozing");
        Err(JobError::snooze(HOUR))
    }
}

/// One at a time; those that find no slot are blocked or discarded.
#[derive(Serialize, Deserialize)]
struct Limited {
    discards: bool,
}

impl Job for Limited {
    const NAME: &'static str = "limited";
    type State = Log;
    type Output = ();

    fn concurrency(&self) -> Option<Concurrency> {
        let one = Concurrency::new(format!("discards {}", self.discards));
        Some(match self.discards {
            true => one.on_conflict(LimitConflict::Discard),
            false => one,
        })
    }

    fn perform(self, cx: &Context<'_, Log>) -> JobResult {
        cx.add("limited");
        Ok(())
    }
}

/// Enqueues a note.
#[derive(Serialize, Deserialize)]
struct Noting(String);

impl Job for Noting {
    const NAME: &'static str = "noting";
    type State = Log;
    type Output = ();

    fn perform(self, cx: &Context<'_, Log>) -> JobResult {
        Note::new(format!("of {}", self.0)).enqueue(&mut cx.connection()?)?;
        cx.add(self.0);
        Ok(())
    }
}

fn open(db: &TestDb) -> TestDatabase {
    TestDatabase::open(&db.url).unwrap()
}

/// All types of this file, with one log.
fn registry() -> (Registry, Arc<Log>) {
    let log = Arc::new(Log::default());
    let registry = Registry::new()
        .register::<Note>(Arc::clone(&log))
        .register::<Flaky>(Arc::clone(&log))
        .register::<Snoozing>(Arc::clone(&log))
        .register::<Limited>(Arc::clone(&log))
        .register::<Noting>(Arc::clone(&log));
    (registry, log)
}

fn note(text: &str) -> NewJob {
    NewJob::new(&Note::new(text)).unwrap()
}

/// Had another name before.
#[derive(Serialize, Deserialize)]
struct Renamed;

impl Job for Renamed {
    const NAME: &'static str = "renamed";
    const ALIASES: &'static [&'static str] = &["former"];
    type State = ();
    type Output = ();

    fn perform(self, _cx: &Context<'_, ()>) -> JobResult {
        Ok(())
    }
}

fn former_names_of_a_class_are_drained_too(db: &TestDb) {
    let db = &mut open(db);
    let log = Arc::new(Log::default());
    let registry = Registry::new()
        .register::<Renamed>(())
        .register::<Note>(log);
    NewJob::of_class("former", "null").enqueue(db).unwrap();
    note("other").enqueue(db).unwrap();
    let drain = Drain::new(&registry).class::<Renamed>();
    drain.run(db).unwrap().assert_all_finished(1);
}

fn only_some_queues_or_classes_are_drained(db: &TestDb) {
    let (db, (registry, log)) = (&mut open(db), registry());
    for queue in ["slow", "fast", "other"] {
        note(queue).queue(queue).enqueue(db).unwrap();
    }
    Noting("a".to_owned()).enqueue(db).unwrap();
    let drain = Drain::new(&registry).queue("fast").queue("slow");
    drain.run(db).unwrap().assert_all_finished(2);
    assert_eq!(log.lines(), ["fast", "slow"]);
    let drain = Drain::new(&registry).class::<Noting>();
    drain.run(db).unwrap().assert_all_finished(1);
    // The job that it enqueued is of another class.
    assert_eq!(log.lines()[2..], ["a"]);
    assert_eq!(testing::enqueued::<Note>(db).unwrap().len(), 2);
    db.drain(&registry).unwrap().assert_all_finished(2);
    assert_eq!(windlass::processes::list(db).unwrap(), []);
}

fn a_drain_ends_after_so_many_runs(db: &TestDb) {
    let (db, (registry, log)) = (&mut open(db), registry());
    enqueue_all(db, ["a", "b", "c"].map(note)).unwrap();
    let drain = Drain::new(&registry).at_most(2);
    drain.run(db).unwrap().assert_all_finished(2);
    assert_eq!(log.lines(), ["a", "b"]);
    drain.run(db).unwrap().assert_all_finished(1);
    Drain::new(&registry)
        .at_most(0)
        .run(db)
        .unwrap()
        .assert_all_finished(0);
    assert_eq!(windlass::processes::list(db).unwrap(), []);
}

fn scheduled_jobs_are_performed_before_their_time(db: &TestDb) {
    let (db, (registry, log)) = (&mut open(db), registry());
    for (text, hours) in [("third", 3), ("first", 0), ("second", 1)] {
        note(text).after(hours * HOUR).enqueue(db).unwrap();
    }
    note("paused").after(HOUR).queue("p").enqueue(db).unwrap();
    queues::pause(db, "p", "ada", "").unwrap();
    let unknown = NewJob::of_class("unknown", "{}").after(HOUR);
    unknown.enqueue(db).unwrap();
    Flaky.enqueue(db).unwrap();
    Snoozing.enqueue(db).unwrap();
    Drain::new(&registry)
        .scheduled()
        .class::<Note>()
        .at_most(2)
        .run(db)
        .unwrap()
        .assert_all_finished(2);
    assert_eq!(log.lines(), ["first", "second"]);
    // Neither retries nor what snoozes, nor what is paused or unknown.
    let drained = Drain::new(&registry).scheduled().run(db).unwrap();
    assert_eq!(log.lines()[2..], ["flaky 1", "snoozing", "third"]);
    assert_eq!((drained.runs.len(), drained.finished()), (3, 1));
    let waiting = testing::enqueued_any(db).unwrap();
    assert_eq!(waiting.len(), 4);
    assert!(waiting.iter().all(|job| job.scheduled_at.is_some()));
}

fn retries_do_not_wait(db: &TestDb) {
    let (db, (registry, log)) = (&mut open(db), registry());
    Flaky.enqueue(db).unwrap();
    note("later").after(HOUR).enqueue(db).unwrap();
    let drained = Drain::new(&registry).retries().run(db).unwrap();
    assert_eq!(log.lines(), ["flaky 1", "flaky 2", "flaky 3"]);
    assert!(
        matches!(drained.runs[1].outcome, RunOutcome::Retried(_, _, HOUR)),
        "{drained:?}"
    );
    drained.assert_all_finished_in_the_end(1);
    testing::assert_not_enqueued::<Flaky>(db);
    assert_eq!(testing::enqueued::<Note>(db).unwrap().len(), 1);
}

fn limits_can_be_switched_off(db: &TestDb) {
    let (db, (registry, log)) = (&mut open(db), registry());
    let jobs = || [true, true, false, false].map(|discards| Limited { discards });
    for job in jobs() {
        job.enqueue(db).unwrap();
    }
    // One of those that do not wait finds no slot.
    db.drain(&registry).unwrap().assert_all_finished(3);
    for job in jobs() {
        job.enqueue(db).unwrap();
    }
    let unlimited = Drain::new(&registry).without_limits();
    unlimited.run(db).unwrap().assert_all_finished(4);
    assert_eq!(log.lines().len(), 7);
    // Nothing is left that would count for a later limit.
    for job in jobs() {
        job.enqueue(db).unwrap();
    }
    db.drain(&registry).unwrap().assert_all_finished(3);
    assert_eq!(windlass::limits::check_semaphores(db).unwrap(), [""; 0]);
}

fn an_own_connection_has_the_same_options(db: &TestDb) {
    let (registry, log) = registry();
    with_own_connection!(db, |conn| {
        conn.test_transaction::<_, windlass::Error, _>(|conn| {
            Flaky.enqueue(conn)?;
            note("later").after(HOUR).enqueue(conn)?;
            let drain = Drain::new(&registry).retries().scheduled();
            drain.run_on(conn)?.assert_all_finished_in_the_end(2);
            Ok(())
        });
    });
    assert_eq!(log.lines(), ["flaky 1", "later", "flaky 2", "flaky 3"]);
}

/// An application's own function.
fn sign_up(conn: &mut impl AsConn, name: &str) -> windlass::Result<()> {
    Noting(name.to_owned()).enqueue(conn)?;
    note("for later").after(HOUR).enqueue(conn)?;
    Ok(())
}

fn inline_mode_performs_at_once_what_is_enqueued(db: &TestDb) {
    let (db, (registry, log)) = (&mut open(db), registry());
    let mut inline = db.inline(&registry);
    sign_up(&mut inline, "ada").unwrap();
    assert_eq!(log.lines(), ["ada", "of ada"]);
    enqueue_all(&mut inline, ["a", "b"].map(note)).unwrap();
    assert_eq!(log.lines()[2..], ["a", "b"]);
    inline.drained().assert_all_finished(4);
    // A failure is no error of the enqueue.
    Flaky.enqueue(&mut inline).unwrap();
    let outcome = &inline.drained().runs[4].outcome;
    assert!(matches!(outcome, RunOutcome::Retried(..)), "{outcome:?}");
    // Not on this value, so with the next one.
    note("direct").enqueue(&mut inline.as_conn()).unwrap();
    assert_eq!(log.lines().len(), 5);
    inline.drain().unwrap();
    assert_eq!(log.lines()[5..], ["direct"]);
    drop(inline);
    note("after it").enqueue(db).unwrap();
    assert_eq!(log.lines().len(), 6);
    assert_eq!(testing::enqueued::<Note>(db).unwrap().len(), 2);
}

fn inline_mode_has_the_options_of_a_drain(db: &TestDb) {
    let (db, (registry, log)) = (&mut open(db), registry());
    let drain = Drain::new(&registry).retries().class::<Flaky>();
    let mut inline = drain.inline(db);
    note("left").enqueue(&mut inline).unwrap();
    Flaky.enqueue(&mut inline).unwrap();
    inline.drained().assert_all_finished_in_the_end(1);
    drop(inline);
    assert_eq!(log.lines(), ["flaky 1", "flaky 2", "flaky 3"]);
    testing::assert_enqueued::<Note>(db);
}
