//! One job at a time for a unique id.

use crate::support::TestDb;
use crate::support::db::execute;
use crate::support::jobs::{Gate, Log, Note, Wait};
use crate::support::thread::{Watched, blocks};
use crate::support::wait::until;
use crate::{on_each_database, with_own_connection};
use crossbeam_channel::bounded;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;
use windlass::jobs::{Change, EnqueueOutcome, Jobs};
use windlass::policies::UniqueScope;
use windlass::{
    Dispatcher, Enqueued, Error, Handle, NewJob, OnConflict, Policy, Registry, Worker, enqueue_all,
};

fn note(text: &str, id: &str) -> NewJob {
    NewJob::new(&Note::new(text)).unwrap().unique_id(id)
}

fn wait(id: &str) -> NewJob {
    NewJob::new(&Wait).unwrap().unique_id(id)
}

fn when(policy: OnConflict) -> Policy {
    Policy::new().on_conflict(policy)
}

fn scope(scope: UniqueScope) -> Policy {
    Policy::new().unique_scope(scope)
}

/// A worker and a dispatcher.
struct Crew {
    log: Arc<Log>,
    gate: Arc<Gate>,
    _handles: Vec<Handle>,
}

fn crew(db: &TestDb) -> Crew {
    let (log, gate) = (Arc::new(Log::default()), Arc::new(Gate::default()));
    let registry = Registry::new()
        .register::<Note>(Arc::clone(&log))
        .register::<Wait>(Arc::clone(&gate));
    let worker = Worker::new(&db.database, registry).threads(2);
    let dispatcher = Dispatcher::new(&db.database).polling_interval(Duration::from_millis(20));
    Crew {
        log,
        gate,
        _handles: vec![worker.start().unwrap(), dispatcher.start().unwrap()],
    }
}

fn finished(db: &TestDb) -> i64 {
    db.count("SELECT count(*) AS n FROM solid_queue_jobs WHERE finished_at IS NOT NULL")
}

fn the_second_finds_the_first(db: &TestDb) {
    let mut conn = db.connect();
    let first = note("first", "a").enqueue(&mut conn).unwrap();
    let second = note("second", "a").enqueue(&mut conn).unwrap();
    let other = note("other", "b").enqueue(&mut conn).unwrap();
    assert_eq!(first.outcome, EnqueueOutcome::New);
    assert_eq!(
        (second.id, second.outcome, second.is_new),
        (first.id, EnqueueOutcome::Existing, false)
    );
    assert!(other.is_new && other.id > first.id);
    assert_eq!((db.rows("jobs"), db.rows("ready_executions")), (2, 2));
}

fn an_error_names_the_job_that_is_there(db: &TestDb) {
    let mut conn = db.connect();
    let first = note("first", "a").enqueue(&mut conn).unwrap();
    let refused = note("second", "a")
        .policy(when(OnConflict::Refuse))
        .enqueue(&mut conn)
        .unwrap_err();
    let Error::UniqueIdTaken {
        existing,
        unique_id,
        ..
    } = &refused
    else {
        panic!("{refused}");
    };
    assert_eq!((*existing, unique_id.as_str()), (first.id.0, "a"));
    assert_eq!(db.rows("jobs"), 1);
}

fn it_is_free_again_after_the_end(db: &TestDb) {
    let crew = crew(db);
    let mut conn = db.connect();
    for n in 1..=3 {
        let enqueued = note("x", "a").enqueue(&mut conn).unwrap();
        assert!(enqueued.is_new, "{enqueued:?}");
        until("it has finished", || finished(db) == n);
    }
    assert_eq!(crew.log.len(), 3);
}

fn a_running_job_holds_it_until_it_has_finished(db: &TestDb) {
    let crew = crew(db);
    let mut conn = db.connect();
    let first = wait("a").enqueue(&mut conn).unwrap();
    until("it runs", || crew.gate.begun() == 1);
    assert_eq!(wait("a").enqueue(&mut conn).unwrap().id, first.id);
    crew.gate.open();
    until("it has finished", || finished(db) == 1);
    assert!(wait("a").enqueue(&mut conn).unwrap().is_new);
}

fn while_waiting_ends_with_the_claim(db: &TestDb) {
    let crew = crew(db);
    let mut conn = db.connect();
    let job = || wait("a").policy(scope(UniqueScope::WhileWaiting));
    job().enqueue(&mut conn).unwrap();
    until("it runs", || crew.gate.begun() == 1);
    assert!(job().enqueue(&mut conn).unwrap().is_new);
    until("both run", || crew.gate.begun() == 2);
    // No thread is left for the third, so it waits.
    let third = job().enqueue(&mut conn).unwrap();
    assert!(third.is_new);
    assert_eq!(job().enqueue(&mut conn).unwrap().id, third.id);
    crew.gate.open();
    until("all have finished", || finished(db) == 3);
}

/// A replacement in Rust and one in SQL keep the 20 newest attempts, and the 20 newest released runs.
fn a_replacement_keeps_the_newest_attempts(db: &TestDb) {
    let mut conn = db.connect();
    let put = || note("1", "a").policy(when(OnConflict::Replace));
    put().enqueue(&mut conn).unwrap();
    let fill = |conn: &mut windlass::DbConnection| {
        for outcome in ["failed", "released"] {
            for _ in 0..25 {
                let row = format!(
                    "INSERT INTO windlass_attempts (job_id, claim_id, attempt, outcome, kind, message, ended_at) \
                     SELECT id, 0, 1, '{outcome}', 'x', 'x', CURRENT_TIMESTAMP FROM solid_queue_jobs"
                );
                execute(conn, &row);
            }
        }
    };
    let kept = || {
        db.texts("SELECT outcome || ' ' || count(*) AS t FROM windlass_attempts GROUP BY outcome ORDER BY 1")
    };
    fill(&mut conn);
    put().enqueue(&mut conn).unwrap();
    assert_eq!(kept(), ["failed 20", "released 20"]);
    fill(&mut conn);
    let sql = "INSERT INTO windlass_enqueue (class, unique_id, on_conflict) VALUES ('note', 'a', 'replace')";
    execute(&mut conn, sql);
    assert_eq!(kept(), ["failed 20", "released 20"]);
}

fn the_last_of_many_counts(db: &TestDb) {
    let mut conn = db.connect();
    let put = |conn: &mut windlass::DbConnection, text: &str, delay: u64| {
        note(text, "a")
            .policy(when(OnConflict::Replace))
            .queue("later")
            .priority(3)
            .after(Duration::from_secs(delay))
            .enqueue(conn)
            .unwrap()
    };
    let first = put(&mut conn, "1", 3600);
    for (text, delay) in [("2", 7200), ("3", 3600), ("4", 0)] {
        let next = put(&mut conn, text, delay);
        assert_eq!(
            (next.id, next.outcome),
            (first.id, EnqueueOutcome::Replaced)
        );
        let moved = i64::from(delay == 0);
        assert_eq!(db.rows("ready_executions"), moved);
        assert_eq!(db.rows("scheduled_executions"), 1 - moved);
    }
    let rows = db.texts(
        "SELECT j.arguments || r.queue_name || r.priority || j.queue_name || j.priority AS t \
         FROM solid_queue_jobs j JOIN solid_queue_ready_executions r ON r.job_id = j.id",
    );
    assert_eq!(rows, [r#"{"text":"4"}later3later3"#]);
}

fn the_newest_runs_after_the_running_one(db: &TestDb) {
    let crew = crew(db);
    let mut conn = db.connect();
    let first = wait("a").enqueue(&mut conn).unwrap();
    until("it runs", || crew.gate.begun() == 1);
    let replace = |conn: &mut windlass::DbConnection, text: &str| {
        note(text, "a")
            .policy(when(OnConflict::Replace))
            .enqueue(conn)
            .unwrap()
    };
    let second = replace(&mut conn, "old");
    assert_eq!(second.outcome, EnqueueOutcome::Again);
    assert!(second.is_new && second.id != first.id);
    let third = replace(&mut conn, "new");
    assert_eq!(
        (third.id, third.outcome),
        (second.id, EnqueueOutcome::Replaced)
    );
    let fourth = note("no", "a").policy(when(OnConflict::RunAgain));
    let fourth = fourth.enqueue(&mut conn).unwrap();
    assert_eq!(
        (fourth.id, fourth.outcome),
        (second.id, EnqueueOutcome::Existing)
    );
    assert_eq!((db.rows("blocked_executions"), db.rows("jobs")), (1, 2));
    assert_eq!(crew.log.len(), 0);
    crew.gate.open();
    until("both have finished", || finished(db) == 2);
    assert_eq!(crew.log.lines(), ["new"]);
}

/// The one that waits behind is cancelled: the running one holds it still.
fn a_running_job_holds_it_behind_a_cancelled_one(db: &TestDb) {
    let crew = crew(db);
    let mut conn = db.connect();
    let first = wait("a").enqueue(&mut conn).unwrap();
    until("it runs", || crew.gate.begun() == 1);
    let again = || note("again", "a").policy(when(OnConflict::RunAgain));
    let second = again().enqueue(&mut conn).unwrap();
    windlass::jobs::cancel(&mut conn, second.id).unwrap();
    assert_eq!(wait("a").enqueue(&mut conn).unwrap().id, first.id);
    let third = again().enqueue(&mut conn).unwrap();
    assert_eq!(third.outcome, EnqueueOutcome::Again);
    assert_eq!(db.rows("blocked_executions"), 1);
    crew.gate.open();
    until("all have ended", || finished(db) == 3);
    assert_eq!(crew.log.lines(), ["again"]);
}

fn a_failed_job_gives_it_up_and_takes_it_back(db: &TestDb) {
    let mut conn = db.connect();
    let bad = |conn: &mut windlass::DbConnection| {
        NewJob::of_class("note", "\"no arguments of it\"")
            .unique_id("a")
            .enqueue(conn)
            .unwrap()
    };
    let running = crew(db);
    let first = bad(&mut conn);
    until("it has failed", || db.rows("failed_executions") == 1);
    let second = bad(&mut conn);
    assert!(second.is_new);
    until("so has the second", || db.rows("failed_executions") == 2);
    drop(running);
    let retry = Change::Retry {
        even_at_most_once: false,
    };
    // Of the two, one can have it.
    let done = Jobs::failed()
        .change(&mut db.connection(), retry.clone())
        .unwrap();
    assert_eq!((done.changed, done.id_taken), (1, 1));
    assert_eq!(db.rows("failed_executions"), 1);
    let third = note("third", "a").enqueue(&mut conn).unwrap();
    assert!(!third.is_new && third.id == first.id, "{third:?}");
    let done = Jobs::failed().change(&mut db.connection(), retry).unwrap();
    assert_eq!((done.changed, done.id_taken), (0, 1));
}

fn a_unique_row_never_stops_the_others(db: &TestDb) {
    let mut conn = db.connect();
    let held = note("held", "c").enqueue(&mut conn).unwrap();
    let refuse = |text: &str, id: &str| note(text, id).policy(when(OnConflict::Refuse));
    let lot = vec![
        NewJob::new(&Note::new("plain")).unwrap(),
        refuse("free", "d"),
        refuse("refused", "c"),
        note("first", "b"),
        note("existing", "b"),
        note("replacing", "b").policy(when(OnConflict::Replace)),
        note("keyed", "e").idempotency_key("k"),
        note("known", "e").idempotency_key("k"),
        NewJob::new(&Note::new("last")).unwrap(),
    ];
    let answers = enqueue_all(&mut conn, lot).unwrap();
    use EnqueueOutcome::{Existing, New, Refused, Replaced};
    let outcomes: Vec<_> = answers.iter().map(|answer| answer.outcome).collect();
    assert_eq!(
        outcomes,
        [
            New, New, Refused, New, Existing, Replaced, New, Existing, New
        ]
    );
    assert_eq!(answers[2].id, held.id);
    assert_eq!(answers[4].id, answers[3].id);
    assert_eq!(answers[7].id, answers[6].id);
    assert_eq!(db.rows("jobs"), 6);
    assert_eq!(db.rows("ready_executions"), 6);
    let text = format!(
        "SELECT arguments AS t FROM solid_queue_jobs WHERE id = {}",
        answers[3].id
    );
    assert_eq!(db.texts(&text), [r#"{"text":"replacing"}"#]);
    // The key answers before the unique id is asked for.
    let again = refuse("again", "e").idempotency_key("k");
    assert_eq!(again.enqueue(&mut conn).unwrap().id, answers[6].id);
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
        let id = format!("id {n}");
        let both = race(db, |conn| note("x", &id).enqueue(conn).unwrap());
        assert_eq!(both[0].id, both[1].id);
        assert!(both[0].is_new != both[1].is_new, "{both:?}");
    }
    assert_eq!(db.rows("jobs"), 30);
}

/// None of them waits for the other in a circle.
fn lots_in_another_order_come_through(db: &TestDb) {
    let turn = AtomicUsize::new(0);
    for n in 0..20 {
        let lots = race(db, |conn| {
            let mut ids: Vec<String> = (0..20).map(|i| format!("{n} {i}")).collect();
            let is_turned = turn.fetch_add(1, Ordering::Relaxed) % 2 == 1;
            if is_turned {
                ids.reverse();
            }
            let jobs = ids.iter().enumerate().map(|(index, id)| {
                if index.is_multiple_of(2) == is_turned {
                    note("x", id).idempotency_key(id)
                } else {
                    NewJob::new(&Note::new("x")).unwrap().idempotency_key(id)
                }
            });
            let mut enqueued = enqueue_all(conn, jobs).unwrap();
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
    assert_eq!(db.rows("jobs"), 400);
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
            note("second", "a").enqueue(&mut conn).unwrap()
        });
        let mut first = None;
        with_own_connection!(db, |conn| {
            let result = conn.transaction::<(), Error, _>(|conn| {
                first = Some(note("first", "a").enqueue(conn)?);
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
}

/// On SQLite, the other transaction has the lock of the file.
fn an_open_transaction_with_the_same_name_is_named(db: &TestDb) {
    let (mut other, mut conn) = (db.connect(), db.connect());
    let soon = if db.is_postgres() {
        "SET lock_timeout = 50"
    } else {
        "PRAGMA busy_timeout = 50"
    };
    execute(&mut conn, soon);
    let held = other.transaction(|other| {
        let held = note("a", "u/1").idempotency_key("k").enqueue(other)?;
        names_are_locked(db, &mut conn);
        Ok::<_, Error>(held)
    });
    let found = note("b", "u/1").enqueue(&mut conn).unwrap();
    assert_eq!(found.id, held.unwrap().id);
}

fn names_are_locked(db: &TestDb, conn: &mut windlass::DbConnection) {
    let quota = windlass::Quota::of_class("note").per_day(9);
    let keyed = note("b", "u/2").idempotency_key("k");
    let enqueued = [
        note("b", "u/1").enqueue(conn).map(drop),
        note("b", "u/1").quota(quota).enqueue(conn).map(drop),
        keyed.enqueue(conn).map(drop),
        enqueue_all(conn, [note("b", "u/1"), note("c", "u/3")]).map(drop),
    ];
    for (place, enqueued) in enqueued.into_iter().enumerate() {
        let error = enqueued.unwrap_err();
        if !db.is_postgres() {
            assert!(matches!(error, Error::Query { .. }), "{error:?}");
            continue;
        }
        let says = error.to_string();
        assert!(
            matches!(error, Error::NamesLocked { .. }),
            "{place}: {error:?}"
        );
        let name = match place {
            2 => "the idempotency key `k`",
            _ => "the unique id `u/1`",
        };
        assert!(
            says.contains(name) && says.contains("enqueue it again"),
            "{says}"
        );
    }
}

on_each_database!(
    an_open_transaction_with_the_same_name_is_named,
    the_second_finds_the_first,
    an_error_names_the_job_that_is_there,
    it_is_free_again_after_the_end,
    a_running_job_holds_it_until_it_has_finished,
    while_waiting_ends_with_the_claim,
    the_last_of_many_counts,
    a_replacement_keeps_the_newest_attempts,
    the_newest_runs_after_the_running_one,
    a_running_job_holds_it_behind_a_cancelled_one,
    a_failed_job_gives_it_up_and_takes_it_back,
    a_unique_row_never_stops_the_others,
    of_two_at_once_one_is_new,
    lots_in_another_order_come_through,
    a_rollback_of_the_first_lets_the_second_through,
    a_commit_of_the_first_answers_the_second,
);

crate::through_a_pooler!(
    the_second_finds_the_first,
    an_error_names_the_job_that_is_there,
    it_is_free_again_after_the_end,
    a_running_job_holds_it_until_it_has_finished,
    while_waiting_ends_with_the_claim,
    the_last_of_many_counts,
    the_newest_runs_after_the_running_one,
    a_running_job_holds_it_behind_a_cancelled_one,
    a_failed_job_gives_it_up_and_takes_it_back,
    a_unique_row_never_stops_the_others,
    of_two_at_once_one_is_new,
    lots_in_another_order_come_through,
    a_rollback_of_the_first_lets_the_second_through,
    a_commit_of_the_first_answers_the_second,
);
