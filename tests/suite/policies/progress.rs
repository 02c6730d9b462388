//! The progress of a running job.

use super::{Bench, Call, Doing, call, finished};
use crate::on_each_database;
use crate::support::TestDb;
use crate::support::jobs::Log;
use crate::support::wait::{eventually, until};
use std::sync::Arc;
use std::time::Duration;
use windlass::jobs::Progress;
use windlass::{Policy, Registry, Worker};

on_each_database!(
    a_heartbeat_carries_the_progress,
    telling_writes_nothing_by_itself,
    a_note_waits_for_nobody,
);

crate::through_a_pooler_in_all!(
    a_heartbeat_carries_the_progress,
    telling_writes_nothing_by_itself,
    a_note_waits_for_nobody,
);

fn progress(db: &TestDb) -> Option<(Option<String>, Progress)> {
    let processes = windlass::processes::list(&mut db.connection()).unwrap();
    let run = processes
        .into_iter()
        .flat_map(|process| process.runs)
        .next();
    run.and_then(|run| Some((run.thread, run.progress?)))
}

/// Tells 42 % and waits to be cancelled, then 43 % and so on, three times.
fn slow(log: &Arc<Log>) -> Doing {
    let log = Arc::clone(log);
    Doing::new(move |cx| {
        for part in 1..=3_u8 {
            cx.progress(41.0 + f64::from(part), format!("part {part}"));
            log.add(format!("told {part}"));
            until("the test goes on", || {
                cx.is_cancelled() || log.count("next") >= usize::from(part)
            });
        }
        Ok(())
    })
}

fn a_heartbeat_carries_the_progress(db: &TestDb) {
    let bench = Bench::with(db, |registry, log| registry.register::<Call>(slow(log)));
    call(db, Policy::new());
    for part in 1..=3_u8 {
        let message = format!("part {part}");
        let (thread, told) = eventually("the progress is there", || {
            progress(db).filter(|(_, progress)| progress.message == message)
        });
        assert_eq!(told.percent, 41.0 + f64::from(part));
        assert!(thread.unwrap().starts_with("windlass-job-"));
        bench.log.add("next");
    }
    until("it has finished", || finished(db) == 1);
}

fn telling_writes_nothing_by_itself(db: &TestDb) {
    let log = Arc::new(Log::default());
    let registry = Registry::new().register::<Call>(slow(&log));
    let _worker = Worker::new(&db.database, registry)
        .heartbeat_interval(Duration::from_secs(3600))
        .alive_threshold(Duration::from_secs(4 * 3600))
        .start()
        .unwrap();
    // The first beat comes with the registration: the job begins after it.
    until("it is registered", || db.rows("processes") == 1);
    call(db, Policy::new());
    for part in 1..=3 {
        until("it has told", || log.count("told") == part);
        let notes = "SELECT count(*) AS n FROM solid_queue_claimed_executions WHERE note IS NULL";
        assert_eq!(db.count(notes), 1);
        log.add("next");
    }
    until("it has finished", || finished(db) == 1);
}

/// Somebody holds the claim's lock: the process beats all the same.
fn a_note_waits_for_nobody(db: &TestDb) {
    if !db.is_postgres() {
        return; // There is one lock there, and nobody can hold a claim's alone.
    }
    let bench = Bench::with(db, |registry, log| registry.register::<Call>(slow(log)));
    call(db, Policy::new());
    until("it has told", || bench.log.count("told") == 1);
    let mut conn = db.connect();
    crate::support::db::execute(&mut conn, "BEGIN");
    let lock = "SELECT 1 AS one FROM solid_queue_claimed_executions FOR UPDATE";
    crate::support::db::execute(&mut conn, lock);
    bench.log.add("next");
    until("it has told more", || bench.log.count("told") == 2);
    let beats =
        || db.count("SELECT CAST(sum(heartbeat_seq) AS bigint) AS n FROM solid_queue_processes");
    let before = beats();
    until("it beats", || beats() > before + 5);
    crate::support::db::execute(&mut conn, "COMMIT");
    until("the progress is there", || {
        progress(db).is_some_and(|(_, progress)| progress.message == "part 2")
    });
    bench.log.add("next");
    bench.log.add("next");
    until("it has finished", || finished(db) == 1);
}
