//! Concurrency limits: never more than may be, never fewer than could be.

use crate::on_each_database;
use crate::support::TestDb;
use crate::support::db::{count, execute};
use crate::support::events::Events;
use crate::support::jobs::{Gate, Log, Note, Wait};
use crate::support::process::{Do, Scene, Work, signal};
use crate::support::wait::{DEADLINE, until};
use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use windlass::jobs::{Change, JobState, Jobs};
use windlass::limits::{self, LimitConflict};
use windlass::{
    Concurrency, Context, Dispatcher, Handle, Job, JobError, JobId, JobResult, NewJob, Registry,
    Worker, enqueue_all,
};

on_each_database!(
    no_more_than_may_run_at_once_and_none_is_left_over,
    killed_workers_lose_no_slot,
    blocked_jobs_go_by_priority_and_then_by_age,
    a_job_that_does_not_wait_is_discarded,
    a_locked_job_that_does_not_wait_holds_up_no_other,
    one_that_has_begun_waits_all_the_same,
    however_a_run_ends_its_slot_is_free,
    however_a_ready_job_leaves_its_slot_is_free,
    a_worker_that_is_never_idle_promotes_too,
    a_dispatcher_with_a_full_batch_promotes_too,
    ten_thousand_of_three_keys_come_in_few_statements,
    due_jobs_get_no_more_slots_than_there_are,
    the_limit_of_the_youngest_job_counts,
    a_slot_that_somebody_freed_by_hand_is_found,
    jobs_of_rails_are_left_to_rails,
    a_failed_job_that_is_retried_waits_for_a_slot,
);

crate::through_a_pooler_in_all!(
    no_more_than_may_run_at_once_and_none_is_left_over,
    killed_workers_lose_no_slot,
    blocked_jobs_go_by_priority_and_then_by_age,
    a_job_that_does_not_wait_is_discarded,
    a_locked_job_that_does_not_wait_holds_up_no_other,
    one_that_has_begun_waits_all_the_same,
    however_a_run_ends_its_slot_is_free,
    however_a_ready_job_leaves_its_slot_is_free,
    a_worker_that_is_never_idle_promotes_too,
    a_dispatcher_with_a_full_batch_promotes_too,
    ten_thousand_of_three_keys_come_in_few_statements,
    due_jobs_get_no_more_slots_than_there_are,
    the_limit_of_the_youngest_job_counts,
    a_slot_that_somebody_freed_by_hand_is_found,
    jobs_of_rails_are_left_to_rails,
    a_failed_job_that_is_retried_waits_for_a_slot,
);

const HOUR: Duration = Duration::from_secs(3600);

/// On a key that jobs of all types share.
fn on_key(job: NewJob, limit: u32) -> NewJob {
    job.concurrency(Concurrency::new("k").group("g").limit(limit))
}

fn note(text: &str) -> NewJob {
    on_key(NewJob::new(&Note::new(text)).unwrap(), 1)
}

fn dispatcher(db: &TestDb, events: &Events) -> Handle {
    Dispatcher::new(&db.database)
        .polling_interval(Duration::from_millis(20))
        .subscriber(events.subscriber())
        .start()
        .unwrap()
}

/// Checks the invariants of the slots. Returns the number of jobs that are
/// ready, claimed or blocked.
fn look(db: &TestDb) -> i64 {
    let all = limits::semaphores(&mut db.connection()).unwrap();
    for semaphore in &all {
        let held = semaphore.ready + semaphore.claimed;
        assert!(held <= semaphore.limit, "{semaphore:?}");
    }
    let wrong = limits::check_semaphores(&mut db.connection()).unwrap();
    assert!(wrong.is_empty(), "{wrong:?}");
    all.iter()
        .map(|one| one.ready + one.claimed + one.blocked)
        .sum()
}

/// Counts how many run at once of each key.
#[derive(Debug, Default)]
struct Meter(Mutex<HashMap<String, (u32, u32, u32)>>);

impl Meter {
    fn change(&self, key: &str, work: impl FnOnce(&mut (u32, u32, u32))) {
        work(self.0.lock().unwrap().entry(key.to_owned()).or_default());
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct Metered {
    key: String,
    limit: u32,
}

impl Job for Metered {
    const NAME: &'static str = "metered";
    type State = Meter;
    type Output = ();

    fn concurrency(&self) -> Option<Concurrency> {
        Some(Concurrency::new(&self.key).limit(self.limit))
    }

    fn perform(self, cx: &Context<'_, Meter>) -> JobResult {
        cx.change(&self.key, |(now, most, _)| {
            *now += 1;
            *most = (*most).max(*now);
        });
        std::thread::sleep(Duration::from_millis(2));
        cx.change(&self.key, |(now, _, done)| {
            *now -= 1;
            *done += 1;
        });
        Ok(())
    }
}

fn no_more_than_may_run_at_once_and_none_is_left_over(db: &TestDb) {
    let meter = Arc::new(Meter::default());
    let events = Events::default();
    let _dispatcher = dispatcher(db, &events);
    let workers: Vec<_> = (0..3)
        .map(|_| {
            let registry = Registry::new().register::<Metered>(Arc::clone(&meter));
            let worker = Worker::new(&db.database, registry).threads(4);
            worker.subscriber(events.subscriber()).start().unwrap()
        })
        .collect();
    let metered = |key: &str, limit| {
        let key = key.to_owned();
        NewJob::new(&Metered { key, limit }).unwrap()
    };
    let mut conn = db.connect();
    let lot = (0..40).flat_map(|_| [metered("a", 1), metered("b", 3)]);
    enqueue_all(&mut conn, lot).unwrap();
    for _ in 0..10 {
        metered("a", 1).enqueue(&mut conn).unwrap();
        metered("b", 3).enqueue(&mut conn).unwrap();
    }
    until("all are done", || {
        look(db) == 0 && events.count("Finished") == 100
    });
    drop(workers);
    let meter = meter.0.lock().unwrap();
    assert_eq!(meter["a"], (0, 1, 50));
    let (now, most, done) = meter["b"];
    assert!(now == 0 && most <= 3 && done == 50, "{:?}", meter["b"]);
    let troubles = [events.of("Unreachable"), events.of("Overlooked")].concat();
    assert!(troubles.is_empty(), "{troubles:?}");
    // A key that another promotion has left is looked at once more.
    until("no key is wanted", || {
        db.count("SELECT count(*) AS n FROM windlass_wanted_keys") == 0
    });
}

fn killed_workers_lose_no_slot(db: &TestDb) {
    let scene = Scene::new(db);
    let _supervisor = scene.supervisor(2);
    let jobs = (0..12).map(|n| {
        let job = NewJob::new(&Work::new(&format!("w{n}"), Do::Sleep(30))).unwrap();
        on_key(job, 1)
    });
    enqueue_all(&mut db.connection(), jobs).unwrap();
    let mut killed = Vec::new();
    for n in [2, 5] {
        until("some have begun", || {
            look(db);
            scene.effects().len() > 2 * n
        });
        let pid = scene.effects().last().unwrap().pid;
        if !killed.contains(&pid) {
            signal(pid, Signal::KILL);
            killed.push(pid);
        }
    }
    until("all are done", || look(db) == 0);
    scene.drained();
    // While one runs, no other does, unless the first one's process is dead.
    let mut running: Option<(String, i32)> = None;
    for effect in scene.effects() {
        if effect.what == "start" {
            let beside = running.replace((effect.name.clone(), effect.pid));
            assert!(
                beside.as_ref().is_none_or(|(_, pid)| killed.contains(pid)),
                "{effect:?} beside {beside:?}"
            );
        } else {
            running = None;
        }
    }
}

fn blocked_jobs_go_by_priority_and_then_by_age(db: &TestDb) {
    let (gate, log) = (Arc::new(Gate::default()), Arc::new(Log::default()));
    let registry = Registry::new()
        .register::<Wait>(Arc::clone(&gate))
        .register::<Note>(Arc::clone(&log));
    let _worker = Worker::new(&db.database, registry)
        .threads(4)
        .start()
        .unwrap();
    let mut conn = db.connect();
    on_key(NewJob::new(&Wait).unwrap(), 1)
        .enqueue(&mut conn)
        .unwrap();
    until("the first one runs", || gate.begun() == 1);
    for (text, priority) in [("d", 5), ("b", 0), ("c", 0), ("a", -1)] {
        note(text).priority(priority).enqueue(&mut conn).unwrap();
    }
    // Another key, and no key at all, are not held up.
    NewJob::new(&Note::new("other"))
        .unwrap()
        .concurrency(Concurrency::new("k"))
        .enqueue(&mut conn)
        .unwrap();
    Note::new("free").enqueue(&mut conn).unwrap();
    until("those that may have run", || log.len() == 2);
    let oldest = "SELECT min(job_id) AS n FROM solid_queue_blocked_executions";
    let explained = windlass::jobs::explain(&mut conn, JobId(db.count(oldest))).unwrap();
    let explained = format!("{explained:?}");
    assert!(
        explained.contains(r#"Limited { key: "g/k", by: Some("#),
        "{explained}"
    );
    assert_eq!(db.rows("blocked_executions"), 4);
    gate.open();
    until("all have", || log.len() == 6);
    assert_eq!(log.lines()[2..], ["a", "b", "c", "d"]);
}

/// A worker that is busy with a job of the key until the gate is opened.
fn one_runs(db: &TestDb, gate: &Arc<Gate>, log: &Arc<Log>, events: &Events) -> Handle {
    let registry = Registry::new()
        .register::<Wait>(Arc::clone(gate))
        .register::<Note>(Arc::clone(log));
    let worker = Worker::new(&db.database, registry).threads(2);
    let worker = worker.subscriber(events.subscriber()).start().unwrap();
    let job = on_key(NewJob::new(&Wait).unwrap(), 1);
    job.enqueue(&mut db.connection()).unwrap();
    until("one runs", || gate.begun() == 1);
    worker
}

fn does_not_wait(text: &str) -> NewJob {
    let limit = Concurrency::new("k").group("g");
    NewJob::new(&Note::new(text))
        .unwrap()
        .concurrency(limit.on_conflict(LimitConflict::Discard))
}

fn a_job_that_does_not_wait_is_discarded(db: &TestDb) {
    let (gate, log) = (Arc::new(Gate::default()), Arc::new(Log::default()));
    let events = Events::default();
    let _worker = one_runs(db, &gate, &log, &events);
    let mut conn = db.connect();
    let job = does_not_wait("a").enqueue(&mut conn).unwrap().id;
    until("it is discarded", || events.count("Discarded") == 1);
    note("b").enqueue(&mut conn).unwrap();
    let attempts = crate::support::jobs::attempts(&mut conn, job).unwrap();
    assert_eq!(attempts[0].kind, "concurrency_limit");
    assert_eq!(
        db.count("SELECT count(*) AS n FROM solid_queue_jobs WHERE finished_at IS NOT NULL"),
        1
    );
    gate.open();
    until("what waits runs", || log.lines() == ["b"]);
    until("the slot is free", || look(db) == 0);
    does_not_wait("c").enqueue(&mut conn).unwrap();
    until("it finds a slot", || log.lines() == ["b", "c"]);
    assert_eq!(events.count("Discarded"), 1);
}

/// It may be half done.
/// Only Postgres locks rows.
fn a_locked_job_that_does_not_wait_holds_up_no_other(db: &TestDb) {
    let discards = |key: &str| {
        let limit = Concurrency::new(key).on_conflict(LimitConflict::Discard);
        let job = NewJob::new(&Note::new(key)).unwrap().concurrency(limit);
        job.enqueue(&mut db.connection()).unwrap().id
    };
    let events = Events::default();
    discards("k");
    let mut first = dispatcher(db, &events);
    until("it has the slot", || db.rows("ready_executions") == 1);
    first.stop();
    first.join(DEADLINE).unwrap();
    let late = discards("k");
    discards("other");
    let mut conn = db.connect();
    if db.is_postgres() {
        execute(&mut conn, "SET idle_in_transaction_session_timeout = 0");
        execute(&mut conn, "BEGIN");
        let lock = format!("SELECT id AS n FROM solid_queue_jobs WHERE id = {late} FOR UPDATE");
        count(&mut conn, &lock);
    }
    let mut second = dispatcher(db, &events);
    until("the other key goes on", || db.rows("ready_executions") == 2);
    if db.is_postgres() {
        assert_eq!(db.rows("blocked_executions"), 1);
        execute(&mut conn, "COMMIT");
    }
    until("it is discarded", || db.rows("blocked_executions") == 0);
    let attempts = crate::support::jobs::attempts(&mut conn, late).unwrap();
    assert_eq!(attempts.len(), 1, "{attempts:?}");
    // One that somebody has deleted by hand leaves nothing behind.
    second.stop();
    second.join(DEADLINE).unwrap();
    let gone = discards("k");
    db.execute(&format!("DELETE FROM solid_queue_jobs WHERE id = {gone}"));
    let _third = dispatcher(db, &events);
    until("it is gone", || db.rows("blocked_executions") == 0);
    assert_eq!(look(db), 2);
}

fn one_that_has_begun_waits_all_the_same(db: &TestDb) {
    let (gate, log) = (Arc::new(Gate::default()), Arc::new(Log::default()));
    let events = Events::default();
    let job = does_not_wait("again").after(HOUR);
    let id = job.enqueue(&mut db.connection()).unwrap().id;
    db.execute("UPDATE solid_queue_jobs SET attempts = 1");
    let _worker = one_runs(db, &gate, &log, &events);
    let jobs = Jobs::in_state(JobState::Scheduled).ids([id]);
    let moved = jobs.change(&mut db.connection(), Change::RunIn(Duration::ZERO));
    assert_eq!(moved.unwrap().changed, 1);
    until("it was looked at", || {
        db.count("SELECT count(*) AS n FROM windlass_wanted_keys") == 0
    });
    assert_eq!(db.rows("blocked_executions"), 1);
    gate.open();
    until("it runs", || log.lines() == ["again"]);
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
enum End {
    Well,
    Fail,
    Panic,
    Discard,
    RetryLater,
    RetryNow,
    Snooze,
    WhenCancelled,
}

impl Job for End {
    const NAME: &'static str = "end";
    type State = Log;
    type Output = ();

    fn policy() -> windlass::Policy {
        windlass::Policy::new().max_attempts(2)
    }

    fn perform(self, cx: &Context<'_, Log>) -> JobResult {
        cx.add("end");
        let error = JobError::from("as told");
        match self {
            End::Well => Ok(()),
            End::Fail => Err(error.fail()),
            End::Panic => panic!("as told"),
            End::Discard => Err(error.discard()),
            End::RetryLater => Err(error.retry_after(HOUR)),
            End::RetryNow if cx.attempt() == 1 => Err(error.retry_after(Duration::ZERO)),
            End::RetryNow => Ok(()),
            End::Snooze => Err(JobError::snooze(HOUR)),
            End::WhenCancelled => loop {
                cx.check()?;
                std::thread::sleep(Duration::from_millis(5));
            },
        }
    }
}

fn however_a_run_ends_its_slot_is_free(db: &TestDb) {
    let log = Arc::new(Log::default());
    let registry = Registry::new()
        .register::<End>(Arc::clone(&log))
        .register::<Note>(Arc::clone(&log));
    let _worker = Worker::new(&db.database, registry)
        .threads(2)
        .heartbeat_interval(Duration::from_millis(50))
        .start()
        .unwrap();
    let mut conn = db.connect();
    for end in [
        End::Well,
        End::Fail,
        End::Panic,
        End::Discard,
        End::RetryLater,
        End::RetryNow,
        End::Snooze,
        End::WhenCancelled,
    ] {
        let before = log.count("end");
        let job = on_key(NewJob::new(&end).unwrap(), 1).priority(-1);
        let job = job.enqueue(&mut conn).unwrap().id;
        until("it runs", || log.count("end") > before);
        let after = format!("after {end:?}");
        note(&after).enqueue(&mut conn).unwrap();
        if end == End::WhenCancelled {
            windlass::jobs::cancel(&mut conn, job).unwrap();
        }
        until(&after, || log.lines().contains(&after));
        look(db);
    }
}

fn however_a_ready_job_leaves_its_slot_is_free(db: &TestDb) {
    let _dispatcher = dispatcher(db, &Events::default());
    let mut conn = db.connect();
    for change in [
        Change::Cancel,
        Change::Discard,
        Change::RunIn(HOUR),
        Change::Cancel,
    ] {
        note("a").enqueue(&mut conn).unwrap();
        until("one is ready", || db.rows("ready_executions") == 1);
        note("b").enqueue(&mut conn).unwrap();
        let ready = |db: &TestDb| {
            db.count("SELECT coalesce(max(job_id), 0) AS n FROM solid_queue_ready_executions")
        };
        let first = ready(db);
        let changed = Jobs::in_state(JobState::Ready).change(&mut conn, change);
        assert_eq!(changed.unwrap().changed, 1);
        until("the next is ready", || ready(db) > first && look(db) > 0);
        Jobs::in_state(JobState::Ready)
            .change(&mut conn, Change::Discard)
            .unwrap();
        until("the queue is empty", || db.rows("blocked_executions") == 0);
        Jobs::waiting().change(&mut conn, Change::Discard).unwrap();
    }
}

/// A slot is free and its key is wanted, and no process has promoted it yet.
fn a_free_slot_is_waited_for(db: &TestDb) {
    note("next").enqueue(&mut db.connection()).unwrap();
    assert_eq!(db.rows("blocked_executions"), 1);
    assert_eq!(db.rows("ready_executions"), 0);
}

#[derive(Debug, Serialize, Deserialize)]
struct Nap;

impl Job for Nap {
    const NAME: &'static str = "nap";
    type State = Log;
    type Output = ();

    fn perform(self, cx: &Context<'_, Log>) -> JobResult {
        std::thread::sleep(Duration::from_millis(3));
        cx.add("nap");
        Ok(())
    }
}

fn a_worker_that_is_never_idle_promotes_too(db: &TestDb) {
    a_free_slot_is_waited_for(db);
    // Long enough that no more is claimed than there are idle threads: so no
    // claim finds fewer than it asked for.
    let many = (0..1_000).map(|_| NewJob::new(&Nap).unwrap());
    enqueue_all(&mut db.connection(), many).unwrap();
    let log = Arc::new(Log::default());
    let registry = Registry::new()
        .register::<Note>(Arc::clone(&log))
        .register::<Nap>(Arc::clone(&log));
    let _worker = Worker::new(&db.database, registry)
        .threads(2)
        .start()
        .unwrap();
    until("all have run", || log.len() == 1_001);
    let place = log.lines().iter().position(|line| line == "next");
    assert!(place < Some(900), "it ran as number {place:?}");
}

fn a_dispatcher_with_a_full_batch_promotes_too(db: &TestDb) {
    a_free_slot_is_waited_for(db);
    let soon = Duration::from_millis(1);
    let many = (0..50).map(|_| NewJob::new(&Note::new("other")).unwrap().after(soon));
    enqueue_all(&mut db.connection(), many).unwrap();
    let due = "SELECT count(*) AS n FROM solid_queue_scheduled_executions";
    assert_eq!(db.count(due), 50);
    let _dispatcher = Dispatcher::new(&db.database)
        .batch_size(1)
        .polling_interval(Duration::from_millis(20))
        .start()
        .unwrap();
    until("all are ready", || db.rows("ready_executions") == 51);
    let after = "SELECT count(*) AS n FROM solid_queue_ready_executions WHERE id > \
         (SELECT id FROM solid_queue_ready_executions WHERE concurrency_key IS NOT NULL)";
    assert!(db.count(after) > 40, "{} came after it", db.count(after));
}

fn ten_thousand_of_three_keys_come_in_few_statements(db: &TestDb) {
    use diesel::connection::InstrumentationEvent;
    let jobs = (0..10_000).map(|n| {
        let job = NewJob::new(&Note::new(n.to_string())).unwrap();
        job.concurrency(Concurrency::new(n % 3).limit(2))
    });
    let jobs: Vec<NewJob> = jobs.collect();
    let statements = Arc::new(Mutex::new(0_usize));
    crate::with_own_connection!(db, |conn| {
        let counted = Arc::clone(&statements);
        conn.set_instrumentation(move |event: InstrumentationEvent<'_>| {
            if let InstrumentationEvent::StartQuery { .. } = event {
                *counted.lock().unwrap() += 1;
            }
        });
        enqueue_all(&mut conn, jobs).unwrap();
    });
    if db.is_postgres() {
        let statements = *statements.lock().unwrap();
        assert!(statements < 30, "{statements} statements");
    }
    let wanted = db.count("SELECT count(*) AS n FROM windlass_wanted_keys");
    assert!((3..=30).contains(&wanted), "{wanted} wanted keys");
    assert_eq!(db.rows("blocked_executions"), 10_000);
    let _dispatcher = dispatcher(db, &Events::default());
    until("there are as many as may be", || {
        look(db);
        db.rows("ready_executions") == 6
    });
    // The oldest of each key.
    let ready = "SELECT arguments AS t FROM solid_queue_ready_executions r \
         JOIN solid_queue_jobs j ON j.id = r.job_id ORDER BY j.id";
    let texts: Vec<String> = (0..6).map(|n| format!(r#"{{"text":"{n}"}}"#)).collect();
    assert_eq!(db.texts(ready), texts);
}

fn due_jobs_get_no_more_slots_than_there_are(db: &TestDb) {
    let jobs = (0..20).map(|n| {
        let job = NewJob::new(&Note::new(n.to_string())).unwrap().after(HOUR);
        if n % 4 == 0 { job } else { on_key(job, 3) }
    });
    enqueue_all(&mut db.connection(), jobs).unwrap();
    assert_eq!(db.rows("scheduled_executions"), 20);
    db.execute(
        "UPDATE solid_queue_scheduled_executions SET scheduled_at = '2026-01-01 00:00:00.000000'",
    );
    let events = Events::default();
    let _dispatcher = dispatcher(db, &events);
    until("all are dispatched", || {
        db.rows("scheduled_executions") == 0
    });
    until("the slots are taken", || {
        look(db);
        db.rows("ready_executions") == 8
    });
    assert_eq!(db.rows("blocked_executions"), 12);
    assert_eq!(events.count("Overlooked"), 0);
}

fn the_limit_of_the_youngest_job_counts(db: &TestDb) {
    let _dispatcher = dispatcher(db, &Events::default());
    let mut conn = db.connect();
    let with = |limit| on_key(NewJob::new(&Note::new("a")).unwrap(), limit);
    enqueue_all(&mut conn, (0..4).map(|_| with(1))).unwrap();
    until("one is ready", || db.rows("ready_executions") == 1);
    with(3).enqueue(&mut conn).unwrap();
    until("three are", || db.rows("ready_executions") == 3);
    with(1).enqueue(&mut conn).unwrap();
    until("its wish is known", || {
        db.count("SELECT count(*) AS n FROM windlass_wanted_keys") == 0
    });
    for left in [2, 1, 1] {
        Jobs::in_state(JobState::Ready)
            .limit(1)
            .change(&mut conn, Change::Discard)
            .unwrap();
        until("as few as may be are left", || {
            db.count("SELECT count(*) AS n FROM windlass_wanted_keys") == 0
                && db.rows("ready_executions") == left
        });
    }
}

fn a_slot_that_somebody_freed_by_hand_is_found(db: &TestDb) {
    let events = Events::default();
    let _dispatcher = dispatcher(db, &events);
    let mut conn = db.connect();
    enqueue_all(&mut conn, [note("a"), note("b")]).unwrap();
    until("one is ready", || db.rows("ready_executions") == 1);
    db.execute("DELETE FROM solid_queue_ready_executions");
    until("the other one is", || db.rows("ready_executions") == 1);
    assert_eq!(events.of("Overlooked"), [r#"Overlooked { key: "g/k" }"#]);
}

/// Solid Queue looks for blocked executions that have expired.
fn jobs_of_rails_are_left_to_rails(db: &TestDb) {
    let mut conn = db.connect();
    enqueue_all(&mut conn, (0..2).map(|n| note(&n.to_string()).after(HOUR))).unwrap();
    db.execute("UPDATE solid_queue_jobs SET concurrency_slots = NULL");
    db.execute(
        "UPDATE solid_queue_scheduled_executions SET scheduled_at = '2026-01-01 00:00:00.000000'",
    );
    let events = Events::default();
    let _dispatcher = dispatcher(db, &events);
    until("both are blocked", || db.rows("blocked_executions") == 2);
    // A job of our own that has the same key has nothing to do with them.
    note("own").enqueue(&mut conn).unwrap();
    until("it is ready", || db.rows("ready_executions") == 1);
    let expired =
        "SELECT count(*) AS n FROM solid_queue_blocked_executions WHERE expires_at <= created_at";
    assert_eq!(db.count(expired), 2);
    assert_eq!(db.rows("semaphores"), 0);
    assert_eq!(events.count("Overlooked"), 0);
}

fn a_failed_job_that_is_retried_waits_for_a_slot(db: &TestDb) {
    let (gate, log) = (Arc::new(Gate::default()), Arc::new(Log::default()));
    let events = Events::default();
    note("again")
        .after(HOUR)
        .enqueue(&mut db.connection())
        .unwrap();
    let fail = "INSERT INTO solid_queue_failed_executions (job_id, created_at) SELECT job_id, created_at \
         FROM solid_queue_scheduled_executions";
    db.in_transaction(&[fail, "DELETE FROM solid_queue_scheduled_executions"]);
    let _worker = one_runs(db, &gate, &log, &events);
    let retry = Change::Retry {
        even_at_most_once: false,
    };
    let done = Jobs::failed().change(&mut db.connection(), retry).unwrap();
    assert_eq!(done.changed, 1);
    until("it was looked at", || {
        db.count("SELECT count(*) AS n FROM windlass_wanted_keys") == 0
    });
    assert_eq!(db.rows("blocked_executions"), 1);
    gate.open();
    until("it runs", || log.lines() == ["again"]);
}

/// An application may keep the transaction open that enqueues a job for as
/// long as it likes: jobs of the same key come and go meanwhile.
#[cfg(feature = "postgres")]
#[test]
fn an_open_transaction_that_enqueues_makes_nobody_wait() {
    use diesel::Connection as _;
    let db = TestDb::postgres();
    let log = Arc::new(Log::default());
    let registry = Registry::new().register::<Note>(Arc::clone(&log));
    let _worker = Worker::new(&db.database, registry).start().unwrap();
    let mut conn = diesel::PgConnection::establish(db.address()).unwrap();
    conn.transaction(|conn| {
        note("late").enqueue(conn)?;
        enqueue_all(&mut db.connection(), ["a", "b", "c"].map(note))?;
        until("the others are done", || log.lines() == ["a", "b", "c"]);
        until("nothing else is to be seen", || look(&db) == 0);
        Ok::<(), windlass::Error>(())
    })
    .unwrap();
    until("it is done too", || log.lines() == ["a", "b", "c", "late"]);
}
