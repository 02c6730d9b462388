//! Ordered keys: one job at a time, in the order of enqueue, and none overtakes one that waits for
//! its next run.

use crate::on_each_database;
use crate::support::TestDb;
use crate::support::events::Events;
use crate::support::jobs::{Log, Note};
use crate::support::process::{Do, Scene, Work, signal};
use crate::support::wait::until;
use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use windlass::jobs::{Change, JobState, Jobs, Reason};
use windlass::limits::{LimitConflict, SemaphoreStatus};
use windlass::{
    Concurrency, Context, Dispatcher, Handle, Job, JobError, JobId, JobResult, NewJob, OnConflict,
    Policy, Registry, Worker, enqueue_all,
};

on_each_database!(
    random_failures_change_no_order,
    killed_workers_change_no_order,
    priorities_change_no_order,
    slots_are_passed_on_in_order,
    a_limit_set_at_run_time_changes_no_order,
    a_job_that_waits_for_its_retry_keeps_its_place,
    a_snoozed_job_keeps_its_place,
    a_job_cut_short_by_a_stop_keeps_its_place,
    a_final_failure_lets_the_next_one_run,
    an_operator_frees_the_slot_of_a_waiting_retry_once,
    a_waiting_retry_deleted_by_hand_is_noticed,
    a_waiting_retry_that_is_replaced_gives_its_slot_up,
    a_waiting_retry_dispatched_by_ruby_runs_alone,
    a_delayed_job_gets_in_line_when_it_is_due,
    what_cannot_be_in_order_is_refused,
    jobs_of_other_keys_in_one_enqueue_change_no_order,
);

const HOUR: Duration = Duration::from_secs(3600);

fn in_order(job: NewJob) -> NewJob {
    job.concurrency(Concurrency::new("k").group("g").ordered())
}

/// The log of the jobs, and whether those that wait may go on.
#[derive(Debug, Default)]
struct Desk {
    log: Log,
    is_open: AtomicBool,
}

/// The end of the first run of a job.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
enum First {
    Well,
    RetryLater,
    Snooze,
    Fail,
    /// Goes on when the desk is open.
    Wait,
}

#[derive(Debug, Serialize, Deserialize)]
struct Entry {
    text: String,
    first: First,
}

impl Job for Entry {
    const NAME: &'static str = "entry";
    type State = Desk;
    type Output = ();

    fn policy() -> Policy {
        Policy::new().max_attempts(2)
    }

    fn perform(self, cx: &Context<'_, Desk>) -> JobResult {
        let is_first = !cx.log.lines().contains(&self.text);
        cx.log.add(&self.text);
        match self.first {
            First::Wait => {
                while !cx.is_open.load(Ordering::SeqCst) {
                    cx.sleep(Duration::from_millis(5))?;
                }
                Ok(())
            }
            First::RetryLater if is_first => Err(JobError::from("as told").retry_after(HOUR)),
            First::Snooze if is_first => Err(JobError::snooze(HOUR)),
            First::Fail if is_first => Err(JobError::from("as told").fail()),
            _ => Ok(()),
        }
    }
}

fn entry(text: &str, first: First) -> NewJob {
    let text = text.to_owned();
    in_order(NewJob::new(&Entry { text, first }).unwrap())
}

fn worker(db: &TestDb, desk: &Arc<Desk>) -> Handle {
    let registry = Registry::new().register::<Entry>(Arc::clone(desk));
    let worker = Worker::new(&db.database, registry).threads(3);
    worker.start().unwrap()
}

fn dispatcher(db: &TestDb, events: &Events) -> Handle {
    Dispatcher::new(&db.database)
        .polling_interval(Duration::from_millis(20))
        .subscriber(events.subscriber())
        .start()
        .unwrap()
}

fn id_of(db: &TestDb, text: &str) -> JobId {
    JobId(db.count(&format!(
        "SELECT id AS n FROM solid_queue_jobs WHERE arguments LIKE '%\"{text}\"%'"
    )))
}

/// The state of the key; `None` if no job of it waits or runs.
fn look(db: &TestDb) -> Option<SemaphoreStatus> {
    let mut all = windlass::limits::semaphores(&mut db.connection()).unwrap();
    for one in &all {
        assert!(one.held() <= 1, "{one:?}");
    }
    let wrong = windlass::limits::check_semaphores(&mut db.connection()).unwrap();
    assert!(wrong.is_empty(), "{wrong:?}");
    all.pop()
}

fn is_wanted(db: &TestDb) -> bool {
    db.count("SELECT count(*) AS n FROM windlass_wanted_keys") > 0
}

/// Waits until the first job of the key waits for its next run, and others have been looked at.
fn until_one_waits(db: &TestDb) {
    until("the first one waits", || {
        look(db).is_some_and(|key| key.scheduled == 1) && !is_wanted(db)
    });
}

fn change(db: &TestDb, job: JobId, change: Change) {
    let changed = Jobs::waiting()
        .ids([job])
        .change(&mut db.connection(), change);
    assert_eq!(changed.unwrap().changed, 1);
}

/// Does what chance wants, and notes when it begins and ends.
#[derive(Debug, Serialize, Deserialize)]
struct Chancy {
    key: usize,
    number: usize,
}

impl Job for Chancy {
    const NAME: &'static str = "chancy";
    type State = Log;
    type Output = ();

    fn policy() -> Policy {
        Policy::new().max_attempts(1_000)
    }

    fn concurrency(&self) -> Option<Concurrency> {
        Some(Concurrency::new(self.key).ordered())
    }

    fn perform(self, cx: &Context<'_, Log>) -> JobResult {
        let soon = Duration::from_millis(fastrand::u64(0..10));
        cx.add(format!("{} {} begins", self.key, self.number));
        std::thread::sleep(Duration::from_millis(1));
        cx.add(format!("{} {} ends", self.key, self.number));
        match fastrand::u8(0..5) {
            0 => Err(JobError::from("as told").retry_after(soon)),
            1 => Err(JobError::snooze(soon)),
            2 => Err(JobError::from("as told").fail()),
            _ => Ok(()),
        }
    }
}

fn random_failures_change_no_order(db: &TestDb) {
    const KEYS: usize = 3;
    let log = Arc::new(Log::default());
    let events = Events::default();
    let _dispatcher = dispatcher(db, &events);
    let _workers: Vec<_> = (0..3)
        .map(|_| {
            let registry = Registry::new().register::<Chancy>(Arc::clone(&log));
            let worker = Worker::new(&db.database, registry).threads(3);
            worker.start().unwrap()
        })
        .collect();
    let mut conn = db.connect();
    let chancy = |number: usize, key| {
        let job = NewJob::new(&Chancy { key, number }).unwrap();
        job.priority(fastrand::i32(-5..5))
    };
    let lot = (0..10).flat_map(|number| (0..KEYS).map(move |key| chancy(number, key)));
    enqueue_all(&mut conn, lot.collect::<Vec<_>>()).unwrap();
    for number in 10..20 {
        for key in 0..KEYS {
            chancy(number, key).enqueue(&mut conn).unwrap();
        }
    }
    until("all have ended", || {
        look(db);
        let open = "SELECT count(*) AS n FROM solid_queue_jobs j WHERE finished_at IS NULL \
             AND NOT EXISTS (SELECT 1 FROM solid_queue_failed_executions f WHERE f.job_id = j.id)";
        db.count(open) == 0
    });
    let mut last: HashMap<String, (usize, String)> = HashMap::new();
    for line in log.lines() {
        let [key, number, what] = line.split(' ').collect::<Vec<_>>()[..] else {
            panic!("{line}");
        };
        let number: usize = number.parse().unwrap();
        let before = last.insert(key.to_owned(), (number, what.to_owned()));
        let (job, done) = before.unwrap_or((0, "ends".to_owned()));
        let is_in_turn = match what {
            "begins" => done == "ends" && (job..=job + 1).contains(&number),
            _ => done == "begins" && job == number,
        };
        assert!(is_in_turn, "{line} after {job} {done}");
    }
    assert!(last.values().all(|(number, _)| *number == 19), "{last:?}");
    assert_eq!(events.count("Overlooked"), 0);
}

fn killed_workers_change_no_order(db: &TestDb) {
    let scene = Scene::new(db);
    let _supervisor = scene.supervisor(2);
    let jobs =
        (0..8).map(|n| in_order(NewJob::new(&Work::new(&n.to_string(), Do::Sleep(20))).unwrap()));
    enqueue_all(&mut db.connection(), jobs).unwrap();
    let mut killed = 0;
    for n in [1, 7] {
        until("some have begun", || {
            look(db);
            scene.effects().len() > n
        });
        let pid = scene.effects().last().unwrap().pid;
        if pid != killed {
            signal(pid, Signal::KILL);
            killed = pid;
        }
    }
    until("all are done", || look(db).is_none());
    scene.drained();
    let starts = scene
        .effects()
        .into_iter()
        .filter(|effect| effect.what == "start");
    let starts: Vec<String> = starts.map(|effect| effect.name).collect();
    assert!(starts.is_sorted(), "{starts:?}");
    assert!(starts.contains(&"7".to_owned()), "{starts:?}");
}

fn priorities_change_no_order(db: &TestDb) {
    let desk = Arc::new(Desk::default());
    let _worker = worker(db, &desk);
    let mut conn = db.connect();
    entry("first", First::Wait).enqueue(&mut conn).unwrap();
    until("it runs", || desk.log.len() == 1);
    for (text, priority) in [("a", 5), ("b", 0), ("c", -5), ("d", 0)] {
        let job = entry(text, First::Well).priority(priority);
        job.enqueue(&mut conn).unwrap();
    }
    change(db, id_of(db, "d"), Change::Priority(-9));
    let ranks = "SELECT CAST(max(priority) AS bigint) AS n FROM solid_queue_blocked_executions";
    assert_eq!(db.count(ranks), i64::from(i32::MIN));
    desk.is_open.store(true, Ordering::SeqCst);
    until("all have run", || desk.log.len() == 5);
    assert_eq!(desk.log.lines(), ["first", "a", "b", "c", "d"]);
}

fn slots_are_passed_on_in_order(db: &TestDb) {
    let log = Arc::new(Log::default());
    let names: Vec<String> = (0..100).map(|number| format!("{number:03}")).collect();
    let jobs = names.iter().map(|name| {
        let job = in_order(NewJob::new(&Note::new(name)).unwrap());
        job.priority(fastrand::i32(..))
    });
    enqueue_all(&mut db.connection(), jobs.collect::<Vec<_>>()).unwrap();
    let registry = Registry::new().register::<Note>(Arc::clone(&log));
    let _worker = Worker::new(&db.database, registry).start().unwrap();
    until("all have run", || log.len() == 100);
    assert_eq!(log.lines(), names);
}

fn a_limit_set_at_run_time_changes_no_order(db: &TestDb) {
    let desk = Arc::new(Desk::default());
    let _dispatcher = dispatcher(db, &Events::default());
    let _worker = worker(db, &desk);
    let mut conn = db.connect();
    windlass::limits::set(&mut conn, "g/*", 3, "", "").unwrap();
    let jobs = [
        entry("a", First::Wait),
        entry("b", First::Well),
        entry("c", First::Well),
    ];
    enqueue_all(&mut conn, jobs).unwrap();
    until("the first one runs", || desk.log.len() == 1);
    windlass::limits::set(&mut conn, "g/k", 2, "", "").unwrap();
    until("the others have been looked at", || !is_wanted(db));
    let key = look(db).unwrap();
    assert_eq!((key.limit, key.limit_is_set, key.blocked), (1, true, 2));
    windlass::limits::set(&mut conn, "g/k", 0, "", "").unwrap();
    desk.is_open.store(true, Ordering::SeqCst);
    until("the first one has ended", || {
        look(db).is_some_and(|key| key.held() == 0) && !is_wanted(db)
    });
    assert_eq!(look(db).map(|key| (key.limit, key.blocked)), Some((0, 2)));
    windlass::limits::set(&mut conn, "g/k", 9, "", "").unwrap();
    until("all have run", || desk.log.len() == 3);
    assert_eq!(desk.log.lines(), ["a", "b", "c"]);
}

fn a_job_that_waits_for_its_retry_keeps_its_place(db: &TestDb) {
    let desk = Arc::new(Desk::default());
    let _dispatcher = dispatcher(db, &Events::default());
    let _worker = worker(db, &desk);
    let mut conn = db.connect();
    entry("a", First::RetryLater).enqueue(&mut conn).unwrap();
    until_one_waits(db);
    let next = entry("b", First::Well).enqueue(&mut conn).unwrap().id;
    entry("c", First::Well)
        .priority(-1)
        .enqueue(&mut conn)
        .unwrap();
    until("they were looked at", || !is_wanted(db));
    let key = look(db).unwrap();
    assert_eq!((key.held(), key.scheduled, key.blocked), (1, 1, 2));
    let first = id_of(db, "a");
    let explained = windlass::jobs::explain(&mut conn, next).unwrap().unwrap();
    let Reason::InLine {
        key,
        behind,
        until: due,
    } = &explained.reason
    else {
        panic!("{explained:?}");
    };
    assert_eq!((&**key, *behind), ("g/k", Some(first)));
    assert!(due.is_some() && explained.is_on_its_way(), "{explained:?}");
    assert_eq!(desk.log.lines(), ["a"]);
    // Its time comes.
    db.execute(
        "UPDATE solid_queue_scheduled_executions SET scheduled_at = '2026-01-01 00:00:00.000000'",
    );
    until("all have run", || desk.log.len() == 4);
    assert_eq!(desk.log.lines(), ["a", "a", "b", "c"]);
    until("nothing is held", || look(db).is_none());
}

fn a_snoozed_job_keeps_its_place(db: &TestDb) {
    let desk = Arc::new(Desk::default());
    let _worker = worker(db, &desk);
    let jobs = [entry("a", First::Snooze), entry("b", First::Well)];
    enqueue_all(&mut db.connection(), jobs).unwrap();
    until_one_waits(db);
    assert_eq!(desk.log.lines(), ["a"]);
    change(db, id_of(db, "a"), Change::RunIn(Duration::ZERO));
    until("both have run", || desk.log.len() == 3);
    assert_eq!(desk.log.lines(), ["a", "a", "b"]);
}

fn a_job_cut_short_by_a_stop_keeps_its_place(db: &TestDb) {
    let desk = Arc::new(Desk::default());
    let registry = Registry::new().register::<Entry>(Arc::clone(&desk));
    let mut first = Worker::new(&db.database, registry)
        .shutdown_timeout(Duration::from_millis(20))
        .start()
        .unwrap();
    let mut conn = db.connect();
    entry("a", First::Wait).enqueue(&mut conn).unwrap();
    until("it runs", || desk.log.len() == 1);
    let jobs = ["b", "c"].map(|text| entry(text, First::Well).priority(-1));
    enqueue_all(&mut conn, jobs).unwrap();
    first.stop();
    let _ = first.join(Duration::from_secs(120)).unwrap();
    assert_eq!(look(db).map(|key| key.ready), Some(1));
    desk.is_open.store(true, Ordering::SeqCst);
    let _second = worker(db, &desk);
    until("all have run", || desk.log.len() == 4);
    assert_eq!(desk.log.lines(), ["a", "a", "b", "c"]);
}

/// A failed job that is retried has its place among those that wait, by its enqueue.
fn a_final_failure_lets_the_next_one_run(db: &TestDb) {
    let desk = Arc::new(Desk::default());
    let _worker = worker(db, &desk);
    let jobs = [
        entry("a", First::Fail),
        entry("b", First::Wait),
        entry("c", First::Well),
    ];
    enqueue_all(&mut db.connection(), jobs).unwrap();
    until("the next one runs", || desk.log.len() == 2);
    let retry = Change::Retry {
        even_at_most_once: false,
    };
    let failed = Jobs::failed().change(&mut db.connection(), retry).unwrap();
    assert_eq!(failed.changed, 1);
    until("it was looked at", || !is_wanted(db));
    assert_eq!(look(db).map(|key| (key.claimed, key.blocked)), Some((1, 2)));
    desk.is_open.store(true, Ordering::SeqCst);
    until("all have run", || desk.log.len() == 4);
    assert_eq!(desk.log.lines(), ["a", "b", "a", "c"]);
}

fn an_operator_frees_the_slot_of_a_waiting_retry_once(db: &TestDb) {
    let desk = Arc::new(Desk::default());
    let _worker = worker(db, &desk);
    for (round, how) in [Change::Cancel, Change::Discard, Change::RunIn(HOUR)]
        .into_iter()
        .enumerate()
    {
        let [a, b, c] = ["a", "b", "c"].map(|name| format!("{name}{round}"));
        let before = desk.log.len();
        let jobs = [
            entry(&a, First::RetryLater),
            entry(&b, First::RetryLater),
            entry(&c, First::Well),
        ];
        enqueue_all(&mut db.connection(), jobs).unwrap();
        until_one_waits(db);
        change(db, id_of(db, &a), how);
        until("the next one has run", || desk.log.len() == before + 2);
        // A second free slot would let the third one run.
        until_one_waits(db);
        assert_eq!(look(db).map(|key| key.blocked), Some(1));
        change(db, id_of(db, &b), Change::RunIn(Duration::ZERO));
        until("the others have run", || desk.log.len() == before + 4);
        assert_eq!(desk.log.lines()[before..], [&*a, &b, &b, &c]);
        until("nothing is held", || look(db).is_none());
    }
    assert_eq!(
        Jobs::in_state(JobState::Scheduled)
            .count(&mut db.connection())
            .unwrap(),
        1
    );
}

fn a_waiting_retry_deleted_by_hand_is_noticed(db: &TestDb) {
    let desk = Arc::new(Desk::default());
    let events = Events::default();
    let _dispatcher = dispatcher(db, &events);
    let _worker = worker(db, &desk);
    let jobs = [entry("a", First::RetryLater), entry("b", First::Well)];
    enqueue_all(&mut db.connection(), jobs).unwrap();
    until_one_waits(db);
    let job = id_of(db, "a");
    db.execute(&format!("DELETE FROM solid_queue_jobs WHERE id = {job}"));
    until("the other one has run", || desk.log.lines() == ["a", "b"]);
    assert_eq!(events.of("Overlooked"), [r#"Overlooked { key: "g/k" }"#]);
}

fn a_waiting_retry_that_is_replaced_gives_its_slot_up(db: &TestDb) {
    let desk = Arc::new(Desk::default());
    let _worker = worker(db, &desk);
    let mut conn = db.connect();
    let named = |text: &str, first| entry(text, first).unique_id("u");
    named("a", First::RetryLater).enqueue(&mut conn).unwrap();
    entry("b", First::Wait).enqueue(&mut conn).unwrap();
    until_one_waits(db);
    // To another key: what waits here goes on.
    let other = named("other", First::Well).concurrency(Concurrency::new("other").ordered());
    let replace = Policy::new()
        .max_attempts(2)
        .on_conflict(OnConflict::Replace);
    other.policy(replace).enqueue(&mut conn).unwrap();
    until("both run", || desk.log.len() == 3);
    desk.is_open.store(true, Ordering::SeqCst);
    until("nothing is held", || look(db).is_none());
    let mut lines = desk.log.lines();
    lines.sort_unstable();
    assert_eq!(lines, ["a", "b", "other"]);
}

/// Solid Queue's dispatcher knows nothing of the slot, and makes the job ready without one.
fn a_waiting_retry_dispatched_by_ruby_runs_alone(db: &TestDb) {
    let desk = Arc::new(Desk::default());
    let _worker = worker(db, &desk);
    let jobs = [entry("a", First::RetryLater), entry("b", First::Well)];
    enqueue_all(&mut db.connection(), jobs).unwrap();
    until_one_waits(db);
    let ready = "INSERT INTO solid_queue_ready_executions (job_id, queue_name, priority, created_at) \
         SELECT job_id, queue_name, priority, created_at FROM solid_queue_scheduled_executions";
    db.in_transaction(&[ready, "DELETE FROM solid_queue_scheduled_executions"]);
    until("both have run", || {
        let held = windlass::limits::semaphores(&mut db.connection()).unwrap();
        assert!(held.iter().all(|key| key.held() <= 1), "{held:?}");
        desk.log.len() == 3
    });
    until("nothing is held", || look(db).is_none());
}

fn a_delayed_job_gets_in_line_when_it_is_due(db: &TestDb) {
    let desk = Arc::new(Desk::default());
    let _dispatcher = dispatcher(db, &Events::default());
    let _worker = worker(db, &desk);
    let mut conn = db.connect();
    entry("late", First::Well)
        .after(HOUR)
        .enqueue(&mut conn)
        .unwrap();
    // It keeps no other waiting until then.
    entry("a", First::Well).enqueue(&mut conn).unwrap();
    until("it has run", || desk.log.len() == 1);
    entry("b", First::Wait).enqueue(&mut conn).unwrap();
    until("the next one runs", || desk.log.len() == 2);
    entry("c", First::Well).enqueue(&mut conn).unwrap();
    db.execute(
        "UPDATE solid_queue_scheduled_executions SET scheduled_at = '2026-01-01 00:00:00.000000'",
    );
    until("it is in line", || {
        look(db).is_some_and(|key| key.blocked == 2)
    });
    desk.is_open.store(true, Ordering::SeqCst);
    until("all have run", || desk.log.len() == 4);
    assert_eq!(desk.log.lines(), ["a", "b", "late", "c"]);
}

fn what_cannot_be_in_order_is_refused(db: &TestDb) {
    let ordered = || Concurrency::new("k").ordered();
    for (limit, reason) in [
        (ordered().limit(2), "its limit must be 1 and not 2"),
        (
            ordered().on_conflict(LimitConflict::Discard),
            "must wait for its turn",
        ),
    ] {
        let job = NewJob::new(&Note::new("x")).unwrap().concurrency(limit);
        let error = job.enqueue(&mut db.connection()).unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
    }
    assert_eq!(db.rows("jobs"), 0);
}

/// They differ in nothing else.
fn jobs_of_other_keys_in_one_enqueue_change_no_order(db: &TestDb) {
    let note = |text: &str| NewJob::new(&Note::new(text)).unwrap();
    let other = note("other").concurrency(Concurrency::new("free").limit(1));
    let jobs = [other, in_order(note("first")), in_order(note("second"))];
    enqueue_all(&mut db.connection(), jobs).unwrap();
    let kinds =
        "SELECT coalesce(concurrency_conflict, 'none') AS t FROM solid_queue_jobs ORDER BY id";
    assert_eq!(db.texts(kinds), ["none", "ordered", "ordered"]);
}
