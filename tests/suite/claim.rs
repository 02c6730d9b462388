//! Claiming: whose turn it is, how many, and by whom.

use crate::on_each_database;
use crate::support::TestDb;
use crate::support::chance::Control;
use crate::support::events::Events;
use crate::support::jobs::{Gate, Log, Note, Wait};
use crate::support::process::HEARTBEAT;
use crate::support::wait::until;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;
use windlass::{Context, Handle, Job, JobResult, NewJob, Registry, Worker, enqueue_all};

/// Known to some workers only.
#[derive(Debug, Serialize, Deserialize)]
struct Other(String);

impl Job for Other {
    const NAME: &'static str = "other";
    type State = Log;
    type Output = ();

    fn perform(self, cx: &Context<'_, Log>) -> JobResult {
        cx.add(self.0);
        Ok(())
    }
}

fn enqueue(db: &TestDb, queue: &str, priority: i32, text: &str) {
    NewJob::new(&Note::new(text))
        .unwrap()
        .queue(queue)
        .priority(priority)
        .enqueue(&mut db.connection())
        .unwrap();
}

/// A worker with one thread, so that jobs run in the order of their claims.
/// It is not woken by what follows: whatever it finds, it polls for.
fn one_thread(db: &TestDb, log: &Arc<Log>, queues: &[&str]) -> Handle {
    let registry = Registry::new().register::<Note>(Arc::clone(log));
    Worker::new(&db.database, registry)
        .queues(queues)
        .unwrap()
        .threads(1)
        .polling_interval(Duration::from_millis(50))
        .start()
        .unwrap()
}

/// Returns the log of a worker with one thread, once it has performed `count` jobs.
fn performed(db: &TestDb, queues: &[&str], count: usize) -> Vec<String> {
    let log = Arc::new(Log::default());
    let _worker = one_thread(db, &log, queues);
    until("all are done", || log.len() == count);
    log.lines()
}

fn the_most_important_comes_first_then_the_oldest(db: &TestDb) {
    for (n, priority) in [5, -1, 0, 0, 5, -1, i32::MIN, i32::MAX]
        .into_iter()
        .enumerate()
    {
        enqueue(db, ["a", "b"][n % 2], priority, &format!("{n}"));
    }
    assert_eq!(
        performed(db, &["*"], 8),
        ["6", "1", "5", "2", "3", "0", "4", "7"]
    );
}

fn the_order_of_named_queues_goes_before_priority(db: &TestDb) {
    for (queue, priority, text) in [
        ("low", -9, "low, urgent"),
        ("high", 9, "high, not urgent"),
        ("high", 0, "high"),
        ("low", 0, "low"),
        ("unserved", -99, "never"),
    ] {
        enqueue(db, queue, priority, text);
    }
    assert_eq!(
        performed(db, &["high", "low", "empty", "high"], 4),
        ["high", "high, not urgent", "low, urgent", "low"]
    );
    assert_eq!(
        db.texts("SELECT queue_name AS t FROM solid_queue_ready_executions"),
        ["unserved"]
    );
}

/// Many queues in one claim: the first ones get the threads.
fn one_claim_over_several_queues_keeps_their_order(db: &TestDb) {
    for n in 0..3 {
        for queue in ["third", "second", "first"] {
            NewJob::new(&Wait)
                .unwrap()
                .queue(queue)
                .priority(n)
                .enqueue(&mut db.connection())
                .unwrap();
        }
    }
    let gate = Arc::new(Gate::default());
    let registry = Registry::new().register::<Wait>(Arc::clone(&gate));
    let _worker = Worker::new(&db.database, registry)
        .queues(["first", "second", "third"])
        .unwrap()
        .threads(5)
        .start()
        .unwrap();
    until("five run", || gate.begun() == 5);
    let left =
        db.texts("SELECT queue_name || priority AS t FROM solid_queue_ready_executions ORDER BY 1");
    assert_eq!(left, ["second2", "third0", "third1", "third2"]);
    gate.open();
}

fn a_prefix_serves_its_queues_in_the_order_of_their_names(db: &TestDb) {
    for queue in ["mail_b", "mail_a", "mailx", "Mail_a", "email_a", "mail"] {
        enqueue(db, queue, 0, queue);
    }
    enqueue(db, "mail_a", -1, "mail_a, urgent");
    // `_` and `%` mean nothing here.
    assert_eq!(
        performed(db, &["mail_*"], 3),
        ["mail_a, urgent", "mail_a", "mail_b"]
    );
    assert_eq!(
        performed(db, &["email_a", "mail*"], 3),
        ["email_a", "mail", "mailx"]
    );
    // A star at the end serves the rest, after those that are named.
    enqueue(db, "zzz", 0, "zzz");
    enqueue(db, "aaa", -9, "aaa");
    assert_eq!(performed(db, &["zzz", "*"], 3)[0], "zzz");
}

/// A prefix is resolved anew at every look.
fn a_queue_that_comes_up_later_is_served(db: &TestDb) {
    let log = Arc::new(Log::default());
    let _worker = one_thread(db, &log, &["import*"]);
    for queue in ["import_a", "import_b", "import"] {
        enqueue(db, "export", 0, "never");
        enqueue(db, queue, 0, queue);
        until("it is done", || {
            log.lines().last().is_some_and(|line| line == queue)
        });
    }
    assert_eq!(log.len(), 3);
}

fn only_idle_threads_are_claimed_for(db: &TestDb) {
    let jobs = (0..10).map(|_| NewJob::new(&Wait).unwrap());
    enqueue_all(&mut db.connection(), jobs).unwrap();
    let gate = Arc::new(Gate::default());
    let registry = Registry::new().register::<Wait>(Arc::clone(&gate));
    let _worker = Worker::new(&db.database, registry)
        .threads(3)
        .polling_interval(Duration::from_millis(10))
        .heartbeat_interval(HEARTBEAT)
        .start()
        .unwrap();
    until("three run", || gate.begun() == 3);
    let control = Control::start(db);
    control.has_had_its_turn(db);
    control.has_stopped();
    assert_eq!(db.rows("claimed_executions"), 3);
    assert_eq!(db.rows("ready_executions"), 7);
    assert_eq!(gate.begun(), 3);
    gate.open();
    until("all are done", || gate.ended() == 10);
}

fn no_job_is_claimed_twice(db: &TestDb) {
    let log = Arc::new(Log::default());
    let events = Events::default();
    let workers: Vec<Handle> = (0..2)
        .map(|_| {
            let registry = Registry::new().register::<Note>(Arc::clone(&log));
            Worker::new(&db.database, registry)
                .threads(4)
                .subscriber(events.subscriber())
                .start()
                .unwrap()
        })
        .collect();
    let mut conn = db.connect();
    for lot in 0..5 {
        let jobs = (0..100).map(|n| NewJob::new(&Note::new(format!("{}", lot * 100 + n))).unwrap());
        enqueue_all(&mut conn, jobs).unwrap();
    }
    until("all are finished", || {
        db.count("SELECT count(*) AS n FROM solid_queue_jobs WHERE finished_at IS NOT NULL") == 500
    });
    drop(workers);
    let mut texts: Vec<u32> = log
        .lines()
        .iter()
        .map(|text| text.parse().unwrap())
        .collect();
    texts.sort_unstable();
    assert_eq!(texts, (0..500).collect::<Vec<u32>>());
    assert_eq!(events.count("Fenced"), 0);
    for table in ["ready", "claimed", "scheduled", "failed"] {
        assert_eq!(db.rows(&format!("{table}_executions")), 0, "{table}");
    }
}

fn a_paused_queue_waits(db: &TestDb) {
    for selectors in [&["*"][..], &["quiet", "loud"], &["q*", "l*"]] {
        db.execute("INSERT INTO solid_queue_pauses (queue_name, created_at) VALUES ('quiet', '2026-11-21 00:00:00')");
        let log = Arc::new(Log::default());
        let worker = one_thread(db, &log, selectors);
        enqueue(db, "quiet", -1, "quiet");
        enqueue(db, "loud", 0, "loud");
        until("the other one is done", || log.len() == 1);
        enqueue(db, "loud", 0, "loud again");
        until("and another", || log.len() == 2);
        assert_eq!(log.lines(), ["loud", "loud again"], "{selectors:?}");
        assert_eq!(db.rows("ready_executions"), 1);
        db.execute("DELETE FROM solid_queue_pauses");
        until("the queue goes on", || log.len() == 3);
        drop(worker);
    }
}

fn a_class_is_left_to_a_worker_that_knows_it(db: &TestDb) {
    let (notes, others) = (Arc::new(Log::default()), Arc::new(Log::default()));
    let events = Events::default();
    let worker = |registry| {
        Worker::new(&db.database, registry)
            .polling_interval(Duration::from_millis(20))
            .subscriber(events.subscriber())
            .start()
            .unwrap()
    };
    let _notes = worker(Registry::new().register::<Note>(Arc::clone(&notes)));
    let mut conn = db.connect();
    for n in 0..50 {
        Other(format!("{n}")).enqueue(&mut conn).unwrap();
        Note::new(format!("{n}")).enqueue(&mut conn).unwrap();
    }
    until("the notes are done", || notes.len() == 50);
    assert_eq!(
        db.rows("scheduled_executions"),
        0,
        "they were not even touched"
    );
    assert_eq!(db.rows("ready_executions"), 50);
    let _others = worker(Registry::new().register::<Other>(Arc::clone(&others)));
    until("the others are done", || others.len() == 50);
    assert_eq!(notes.len(), 50);
    assert_eq!(events.count("Released") + events.count("Failed"), 0);
}

on_each_database!(
    the_most_important_comes_first_then_the_oldest,
    the_order_of_named_queues_goes_before_priority,
    one_claim_over_several_queues_keeps_their_order,
    a_prefix_serves_its_queues_in_the_order_of_their_names,
    a_queue_that_comes_up_later_is_served,
    only_idle_threads_are_claimed_for,
    no_job_is_claimed_twice,
    a_paused_queue_waits,
    a_class_is_left_to_a_worker_that_knows_it,
);

crate::through_a_pooler!(
    the_most_important_comes_first_then_the_oldest,
    the_order_of_named_queues_goes_before_priority,
    one_claim_over_several_queues_keeps_their_order,
    a_prefix_serves_its_queues_in_the_order_of_their_names,
    a_queue_that_comes_up_later_is_served,
    only_idle_threads_are_claimed_for,
    no_job_is_claimed_twice,
    a_paused_queue_waits,
    a_class_is_left_to_a_worker_that_knows_it,
);
