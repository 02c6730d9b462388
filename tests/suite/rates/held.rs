//! The promise: in any window of `w` seconds, at most `rate * w + burst` starts.

use super::note;
use crate::on_each_database;
use crate::support::TestDb;
use crate::support::jobs::{Log, Note};
use crate::support::wait::until;
use std::sync::Arc;
use windlass::jobs;
use windlass::limits::Rate;
use windlass::{Dispatcher, NewJob, Registry, Worker, enqueue_all};

/// Notes when claims start, by the database's clock.
fn note_starts(db: &TestDb) {
    let (micros, now) = match db.is_postgres() {
        true => (
            "bigint",
            "CAST(extract(epoch FROM NEW.started_at) * 1000000 AS bigint)",
        ),
        false => (
            "integer",
            "CAST(round((julianday(NEW.started_at) - 2440587.5) * 86400000.0) AS integer) * 1000",
        ),
    };
    db.execute(&format!("CREATE TABLE starts (job_id bigint, at {micros})"));
    let insert = format!("INSERT INTO starts SELECT NEW.job_id, {now}");
    match db.is_postgres() {
        true => {
            db.execute(&format!(
                "CREATE FUNCTION note_start() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {insert}; RETURN NULL; END $$"
            ));
            db.execute(
                "CREATE TRIGGER note_claim AFTER INSERT OR UPDATE OF started_at ON solid_queue_claimed_executions \
                 FOR EACH ROW WHEN (NEW.started_at IS NOT NULL) EXECUTE FUNCTION note_start()",
            );
        }
        false => {
            for event in ["INSERT", "UPDATE OF started_at"] {
                let name = event.split(' ').next().unwrap();
                db.execute(&format!(
                    "CREATE TRIGGER note_{name} AFTER {event} ON solid_queue_claimed_executions \
                     WHEN NEW.started_at IS NOT NULL BEGIN {insert}; END"
                ));
            }
        }
    }
}

/// Returns the starts in order, in microseconds.
fn starts(db: &TestDb) -> Vec<i64> {
    let texts = db.texts("SELECT CAST(at AS text) AS t FROM starts ORDER BY at");
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

/// Checks every window between two starts.
fn check(starts: &[i64], a_second: i64, burst: i64) {
    for (first, from) in starts.iter().enumerate() {
        for (last, to) in starts.iter().enumerate().skip(first) {
            let count = (last - first + 1) as i64;
            // SQLite's times have milliseconds.
            let most = ((to - from + 1_000) * a_second) / 1_000_000 + burst;
            assert!(
                count <= most,
                "{count} starts in {} us, and not {most}: {starts:?}",
                to - from
            );
        }
    }
}

fn registry() -> Registry {
    Registry::new().register::<Note>(Arc::new(Log::default()))
}

fn no_window_has_too_many_starts(db: &TestDb) {
    note_starts(db);
    let rate = || Rate::per_second(100).burst(5).key("api");
    let jobs = (0..150).map(|at| note(&at.to_string(), rate()));
    let workers: Vec<_> = (0..3)
        .map(|_| {
            let worker = Worker::new(&db.database, registry()).threads(3);
            worker.start().unwrap()
        })
        .collect();
    let dispatcher = Dispatcher::new(&db.database).start().unwrap();
    enqueue_all(&mut db.connection(), jobs).unwrap();
    until("all have run", || starts(db).len() == 150);
    check(&starts(db), 100, 5);
    drop((workers, dispatcher));
}

/// A worker that is all alone sees to the tokens itself.
fn a_worker_needs_no_dispatcher(db: &TestDb) {
    let rate = || Rate::per_second(20).key("api");
    let jobs = (0..12).map(|at| note(&at.to_string(), rate()));
    let mut conn = db.connection();
    enqueue_all(&mut conn, jobs).unwrap();
    let worker = Worker::new(&db.database, registry()).start().unwrap();
    let left = || db.count("SELECT count(*) AS n FROM solid_queue_jobs WHERE finished_at IS NULL");
    until("all have run", || left() == 0);
    // The start is counted a while later.
    until("nothing has to be known any more", || {
        db.rows_of("windlass_rates") == 0
    });
    drop(worker);
}

/// A job that costs all tokens comes to its turn, although there are many while it waits.
fn a_costly_job_is_not_forgotten(db: &TestDb) {
    let rate = || Rate::per_second(1_000).burst(1_000).key("api");
    let mut conn = db.connection();
    let jobs = [1, 1_000, 1, 1_000].map(|cost| note(&cost.to_string(), rate().cost(cost)));
    enqueue_all(&mut conn, jobs).unwrap();
    let worker = Worker::new(&db.database, registry()).start().unwrap();
    let left = || db.count("SELECT count(*) AS n FROM solid_queue_jobs WHERE finished_at IS NULL");
    until("all have run", || left() == 0);
    drop(worker);
}

/// Jobs without a rate run beside thousands that wait for a token.
fn others_are_not_held_up(db: &TestDb) {
    let mut conn = db.connection();
    let rate = || Rate::per_day(1).key("api");
    let waiting = (0..2_000).map(|at| note(&at.to_string(), rate()));
    enqueue_all(&mut conn, waiting).unwrap();
    let worker = Worker::new(&db.database, registry()).start().unwrap();
    let free = NewJob::new(&Note::new("free")).unwrap();
    let free = free.enqueue(&mut conn).unwrap();
    until("the free one has run", || {
        let text =
            "SELECT count(*) AS n FROM solid_queue_jobs WHERE finished_at IS NOT NULL AND id =";
        db.count(&format!("{text} {}", free.id)) == 1
    });
    until("one has had its token", || {
        db.rows("blocked_executions") == 1_999
    });
    drop(worker);
}

/// Jobs that wait when all processes end go on in others, of which a dispatcher alone lets them through.
fn what_waits_outlives_its_processes(db: &TestDb) {
    let rate = || Rate::per_second(1).key("api");
    let jobs = (0..4).map(|at| note(&at.to_string(), rate()));
    let mut conn = db.connection();
    enqueue_all(&mut conn, jobs).unwrap();
    let left = || db.count("SELECT count(*) AS n FROM solid_queue_jobs WHERE finished_at IS NULL");
    let worker = Worker::new(&db.database, registry()).start().unwrap();
    until("one has run", || left() < 4);
    drop(worker);
    let dispatcher = Dispatcher::new(&db.database).start().unwrap();
    let before = db.rows("blocked_executions");
    until("the dispatcher lets one through", || {
        db.rows("blocked_executions") < before
    });
    drop(dispatcher);
    let worker = Worker::new(&db.database, registry()).start().unwrap();
    until("all have run", || left() == 0);
    drop(worker);
}

/// A look at a key waits for the tokens that its first job costs: that one is gone, or another has come before it.
fn a_cheaper_job_does_not_wait_for_a_costly_one(db: &TestDb) {
    let mut conn = db.connection();
    let rate = |cost| Rate::per_hour(2).burst(4).key("api").cost(cost);
    let log = Arc::new(Log::default());
    let registry = Registry::new().register::<Note>(Arc::clone(&log));
    let worker = Worker::new(&db.database, registry).threads(1).start();
    let worker = worker.unwrap();
    let waits = "SELECT count(*) AS n FROM windlass_rates WHERE has_waiting";
    note("first", rate(1)).enqueue(&mut conn).unwrap();
    until("the first has run", || log.len() == 1);
    let costly = note("costly", rate(4)).enqueue(&mut conn).unwrap();
    note("cheap", rate(1)).enqueue(&mut conn).unwrap();
    until("both wait", || db.count(waits) == 1);
    jobs::cancel(&mut conn, costly.id).unwrap();
    until("the cheap one has run", || log.len() == 2);
    note("costly", rate(4)).enqueue(&mut conn).unwrap();
    until("it waits", || db.count(waits) == 1);
    let urgent = note("urgent", rate(1)).priority(-1);
    urgent.enqueue(&mut conn).unwrap();
    until("the urgent one has run", || log.len() == 3);
    assert_eq!(log.lines(), ["first", "cheap", "urgent"]);
    worker.stop();
}

on_each_database!(
    a_cheaper_job_does_not_wait_for_a_costly_one,
    no_window_has_too_many_starts,
    a_worker_needs_no_dispatcher,
    a_costly_job_is_not_forgotten,
    others_are_not_held_up,
    what_waits_outlives_its_processes,
);
