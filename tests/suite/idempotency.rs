//! A repeated enqueue with a caller's own key is harmless.

use crate::support::TestDb;
use crate::support::jobs::{Log, Note};
use crate::support::thread::{Watched, blocks};
use crate::support::wait::until;
use crate::{on_each_database, with_own_connection};
use crossbeam_channel::bounded;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use windlass::{Enqueued, Error, NewJob, Registry, Worker, enqueue_all};

fn note(text: &str, key: &str) -> NewJob {
    NewJob::new(&Note::new(text)).unwrap().idempotency_key(key)
}

fn a_repeat_finds_the_first_job(db: &TestDb) {
    let mut conn = db.connect();
    let first = note("first", "order/1").enqueue(&mut conn).unwrap();
    let again = note("second", "order/1").enqueue(&mut conn).unwrap();
    let other = note("other", "order/2").enqueue(&mut conn).unwrap();
    assert!(first.is_new && !again.is_new && other.is_new);
    assert_eq!(again.id, first.id);
    assert_ne!(other.id, first.id);
    assert_eq!(db.rows("jobs"), 2);
    assert_eq!(db.rows("ready_executions"), 2);
}

/// As long as the job is kept, and not longer.
fn a_finished_job_still_holds_its_key(db: &TestDb) {
    let log = Arc::new(Log::default());
    let worker = |keep| {
        let registry = Registry::new().register::<Note>(Arc::clone(&log));
        Worker::new(&db.database, registry)
            .keep_finished(keep)
            .start()
            .unwrap()
    };
    let mut conn = db.connect();
    let first = note("kept", "k").enqueue(&mut conn).unwrap();
    let kept = worker(true);
    until("it is finished", || {
        db.count("SELECT count(*) AS n FROM solid_queue_jobs WHERE finished_at IS NOT NULL") == 1
    });
    drop(kept);
    assert_eq!(note("again", "k").enqueue(&mut conn).unwrap().id, first.id);
    db.execute("DELETE FROM solid_queue_jobs");
    assert!(note("deleted", "k").enqueue(&mut conn).unwrap().is_new);
    let _worker = worker(false);
    until("it is finished and gone", || db.rows("jobs") == 0);
    assert!(note("new", "k").enqueue(&mut conn).unwrap().is_new);
    until("it is done", || log.len() == 3);
    assert_eq!(log.lines(), ["kept", "deleted", "new"]);
}

/// Runs both at once, each with a connection of its own.
fn race<T: Send>(db: &TestDb, work: impl Fn(&mut windlass::DbConnection) -> T + Sync) -> Vec<T> {
    let barrier = Barrier::new(2);
    std::thread::scope(|scope| {
        let run = || {
            let mut conn = db.connect();
            barrier.wait();
            work(&mut conn)
        };
        let threads = [scope.spawn(run), scope.spawn(run)];
        threads.map(|thread| thread.join().unwrap()).into()
    })
}

fn of_two_at_once_one_is_new(db: &TestDb) {
    for n in 0..30 {
        let key = format!("key {n}");
        let both = race(db, |conn| note("x", &key).enqueue(conn).unwrap());
        assert_eq!(both[0].id, both[1].id);
        assert!(both[0].is_new != both[1].is_new, "{both:?}");
    }
    assert_eq!(db.rows("jobs"), 30);
    assert_eq!(db.rows("ready_executions"), 30);
}

fn of_two_lots_at_once_every_job_is_new_once(db: &TestDb) {
    for n in 0..10 {
        let lots = race(db, |conn| {
            let jobs = (0..20).map(|i| note("x", &format!("{n} {i}")));
            enqueue_all(conn, jobs).unwrap()
        });
        for (a, b) in lots[0].iter().zip(&lots[1]) {
            assert_eq!(a.id, b.id);
            assert!(a.is_new != b.is_new);
        }
    }
    assert_eq!(db.rows("jobs"), 200);
}

/// Whatever their order, they are inserted in the order of the keys, so that
/// none waits for one that waits for it.
fn lots_with_the_same_keys_in_another_order_come_through(db: &TestDb) {
    let turn = AtomicUsize::new(0);
    // Enough for several statements, between which a lot holds what it has.
    for (n, count) in [20, 20, 20, 2_500, 2_500].into_iter().enumerate() {
        let lots = race(db, |conn| {
            let mut keys: Vec<String> = (0..count).map(|i| format!("{n} {i}")).collect();
            let is_turned = turn.fetch_add(1, Ordering::Relaxed) % 2 == 1;
            if is_turned {
                keys.reverse();
            }
            let mut enqueued = enqueue_all(conn, keys.iter().map(|key| note("x", key))).unwrap();
            if is_turned {
                enqueued.reverse();
            }
            enqueued
        });
        for (a, b) in lots[0].iter().zip(&lots[1]) {
            assert_eq!(a.id, b.id);
            assert!(a.is_new != b.is_new);
        }
    }
    assert_eq!(db.rows("jobs"), 5_060);
}

/// The second one meets the first in the middle of its transaction.
fn second_meets_first(db: &TestDb, commits: bool) -> (Enqueued, Enqueued) {
    let (begin, begun) = bounded(0);
    let (tell, told) = bounded(1);
    std::thread::scope(|scope| {
        let second = scope.spawn(move || {
            let mut conn = db.connect();
            begun.recv().unwrap();
            tell.send(Watched::this()).unwrap();
            note("second", "k").enqueue(&mut conn).unwrap()
        });
        let mut first = None;
        with_own_connection!(db, |conn| {
            let result = conn.transaction::<(), Error, _>(|conn| {
                first = Some(note("first", "k").enqueue(conn)?);
                begin.send(()).unwrap();
                let other = told.recv().unwrap();
                until("the second one waits", || blocks(conn, &other));
                assert!(!second.is_finished());
                if commits {
                    Ok(())
                } else {
                    Err(diesel::result::Error::RollbackTransaction.into())
                }
            });
            assert_eq!(result.is_ok(), commits);
        });
        (first.unwrap(), second.join().unwrap())
    })
}

fn a_rollback_of_the_first_lets_the_second_through(db: &TestDb) {
    let (first, second) = second_meets_first(db, false);
    assert!(first.is_new && second.is_new);
    let texts = db.texts("SELECT arguments AS t FROM solid_queue_jobs");
    assert_eq!(texts, [r#"{"text":"second"}"#]);
    assert_eq!(db.rows("ready_executions"), 1);
}

fn a_commit_of_the_first_answers_the_second(db: &TestDb) {
    let (first, second) = second_meets_first(db, true);
    assert!(first.is_new && !second.is_new);
    assert_eq!(first.id, second.id);
    assert_eq!(db.rows("ready_executions"), 1);
}

on_each_database!(
    a_repeat_finds_the_first_job,
    a_finished_job_still_holds_its_key,
    of_two_at_once_one_is_new,
    of_two_lots_at_once_every_job_is_new_once,
    lots_with_the_same_keys_in_another_order_come_through,
    a_rollback_of_the_first_lets_the_second_through,
    a_commit_of_the_first_answers_the_second,
);

crate::through_a_pooler_in_all!(
    a_repeat_finds_the_first_job,
    a_finished_job_still_holds_its_key,
    of_two_at_once_one_is_new,
    of_two_lots_at_once_every_job_is_new_once,
    lots_with_the_same_keys_in_another_order_come_through,
    a_rollback_of_the_first_lets_the_second_through,
    a_commit_of_the_first_answers_the_second,
);
