//! New work is heard of at once; polling would take an hour here.

use crate::on_each_database;
use crate::support::TestDb;
use crate::support::jobs::{Log, Note};
use crate::support::wait::until;
use crate::with_own_connection;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};
use windlass::{Error, Handle, Job, NewJob, Registry, Worker};

const HOUR: Duration = Duration::from_secs(3600);

/// Lets a test try until it was fast enough to prove something, with longer
/// and longer times for which its workers are idle before there is work.
///
/// A worker that went idle looks again after three times the time it has been
/// idle, for what was not committed yet when it last looked: after 0.02, 0.06,
/// .. 1.6, 4.9, 14.6 s, or other such times on a busy machine. So one of them
/// may happen to look in time by itself, but hardly several of them.
pub fn is_heard_in_time(test: impl FnMut(Duration) -> bool) {
    let heard = [1, 2, 3, 4, 9, 16]
        .into_iter()
        .map(|round| Duration::from_secs(6) * round)
        .any(test);
    assert!(heard, "the work was found too late, every time");
}

/// Returns whether something happens in a small part of the time for which a
/// worker has been idle.
pub fn soon_after(idle: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    loop {
        let in_time = start.elapsed() < idle / 5;
        if condition() || !in_time {
            return in_time;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Its heartbeat would be a commit that others hear of, too.
fn worker(db: &TestDb, queue: &str, log: &Arc<Log>) -> Handle {
    let registry = Registry::new().register::<Note>(Arc::clone(log));
    Worker::new(&db.database, registry)
        .queues([queue])
        .unwrap()
        .heartbeat_interval(HOUR)
        .alive_threshold(3 * HOUR)
        .polling_interval(HOUR)
        .start()
        .unwrap()
}

fn note(queue: &str) -> NewJob {
    NewJob::new(&Note::new(queue)).unwrap().queue(queue)
}

const ELSEWHERE: &str = "WINDLASS_TEST_ENQUEUE_ELSEWHERE";

/// Not a test but the program that `new_work_is_heard_of` runs: this test
/// program again, told by its environment where to enqueue.
#[test]
fn enqueue_elsewhere() {
    if let Ok(url) = std::env::var(ELSEWHERE) {
        let database = windlass::Database::open(&url).unwrap();
        let mut conn = database.connect().unwrap();
        note("process").enqueue(&mut conn).unwrap();
    }
}

fn new_work_is_heard_of(db: &TestDb) {
    is_heard_in_time(|idle| new_work_is_heard_of_once(db, idle));
}

/// One worker for each way in which work arrives, so that all sleep when it
/// does. False: it was too late to tell.
fn new_work_is_heard_of_once(db: &TestDb, idle: Duration) -> bool {
    // An earlier attempt may have left jobs.
    db.execute("DELETE FROM solid_queue_ready_executions");
    let log = Arc::new(Log::default());
    let queues = ["connection", "process", "many", "reconnected"];
    let _workers = queues.map(|queue| worker(db, queue, &log));
    until("all are registered", || db.rows("processes") == 4);
    std::thread::sleep(idle);
    let done = |queue: &str| soon_after(idle, || log.lines().iter().any(|line| line == queue));
    note("connection").enqueue(&mut db.connection()).unwrap();
    if !done("connection") {
        return false;
    }

    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "wakeup::enqueue_elsewhere"])
        .env(ELSEWHERE, &db.url)
        .output()
        .unwrap()
        .status;
    assert!(status.success());
    if !done("process") {
        return false;
    }

    with_own_connection!(db, |conn| {
        conn.transaction::<_, Error, _>(|conn| {
            windlass::enqueue_all(conn, [note("nobodys"), note("many")])
        })
        .unwrap();
    });
    if !done("many") {
        return false;
    }

    #[cfg(feature = "postgres")]
    if db.is_postgres() {
        cut_off_the_listeners(db);
        note("reconnected").enqueue(&mut db.connection()).unwrap();
        return done("reconnected");
    }
    true
}

/// Ends the sessions that listen, and waits for others in their place.
#[cfg(feature = "postgres")]
fn cut_off_the_listeners(db: &TestDb) {
    let listening = "SELECT CAST(pid AS text) AS t FROM pg_stat_activity \
         WHERE datname = current_database() AND query = 'LISTEN windlass'";
    let before = db.texts(listening);
    assert_eq!(before.len(), 4);
    for pid in &before {
        db.execute(&format!("SELECT pg_terminate_backend({pid})"));
    }
    until("others listen", || {
        let now = db.texts(listening);
        now.len() == 4 && now.iter().all(|pid| !before.contains(pid))
    });
}

/// It has notified nobody: when it enqueued, nobody listened. On SQLite it
/// keeps the worker from registering.
fn work_of_a_transaction_that_was_open_is_found(db: &TestDb) {
    let log = Arc::new(Log::default());
    with_own_connection!(db, |conn| {
        let worker = conn
            .transaction::<_, Error, _>(|conn| {
                Note::new("slow").enqueue(conn)?;
                let worker = worker(db, "*", &log);
                if db.is_postgres() {
                    // It has looked, and has not seen the open one's work.
                    note("seen").enqueue(&mut db.connection())?;
                    until("it has looked", || log.lines() == ["seen"]);
                }
                // Its first looks, which come soon, find nothing.
                std::thread::sleep(Duration::from_secs(3));
                Ok(worker)
            })
            .unwrap();
        until("the job is done", || {
            log.lines().contains(&"slow".to_owned())
        });
        drop(worker);
    });
}

/// Notifications that came while the worker was idle must not use up its own looks.
fn and_it_is_found_by_a_worker_that_others_wake(db: &TestDb) {
    let log = Arc::new(Log::default());
    with_own_connection!(db, |conn| {
        let worker = conn
            .transaction::<_, Error, _>(|conn| {
                note("mine").enqueue(conn)?;
                let worker = worker(db, "mine", &log);
                if db.is_postgres() {
                    until("it is registered", || db.rows("processes") == 1);
                    for _ in 0..50 {
                        note("nobodys").enqueue(&mut db.connection())?;
                    }
                }
                Ok(worker)
            })
            .unwrap();
        until("the job is done", || log.len() == 1);
        drop(worker);
    });
}

on_each_database!(
    new_work_is_heard_of,
    work_of_a_transaction_that_was_open_is_found,
    and_it_is_found_by_a_worker_that_others_wake,
);

crate::through_a_pooler_in_all!(
    new_work_is_heard_of,
    work_of_a_transaction_that_was_open_is_found,
    and_it_is_found_by_a_worker_that_others_wake,
);
