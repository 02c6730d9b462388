//! Ends of jobs that cannot be written at present.

use crate::on_each_database;
use crate::policies::{Bench, Call, Doing, call, executions};
use crate::support::TestDb;
use crate::support::db::execute;
use crate::support::process::{Do, Scene, Work};
use crate::support::wait::until;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use windlass::{Job, Policy};

on_each_database!(
    a_refusal_that_passes_costs_no_text,
    a_worker_without_descriptors_ends,
);

crate::through_a_pooler_in_all!(
    a_refusal_that_passes_costs_no_text,
    a_worker_without_descriptors_ends,
);

/// However often it was refused meanwhile.
fn a_refusal_that_passes_costs_no_text(db: &TestDb) {
    let may_end = Arc::new(AtomicBool::new(false));
    let bench = Bench::with(db, |registry, log| {
        let (log, may_end) = (Arc::clone(log), Arc::clone(&may_end));
        registry.register::<Call>(Doing::new(move |_| {
            log.add("runs");
            until("it may end", || may_end.load(Ordering::SeqCst));
            Err("the text".into())
        }))
    });
    let job = call(db, Policy::new());
    until("it runs", || bench.log.len() == 1);
    let mut lock = db.connect();
    if db.is_postgres() {
        let table = "solid_queue_failed_executions";
        execute(&mut lock, "SET idle_in_transaction_session_timeout = 0");
        execute(&mut lock, "BEGIN");
        execute(
            &mut lock,
            &format!("LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE"),
        );
    } else {
        execute(&mut lock, "BEGIN IMMEDIATE");
    }
    may_end.store(true, Ordering::SeqCst);
    // Said at first, and then every ten seconds: it is refused more than once.
    until("it was refused", || {
        let troubles = bench.events.of("Unreachable");
        let of_ends = troubles
            .iter()
            .filter(|trouble| trouble.contains("end jobs"));
        of_ends.count() >= 2
    });
    execute(&mut lock, "ROLLBACK");
    until("it has failed", || executions(db, "failed") == 1);
    let attempts = crate::support::jobs::attempts(&mut db.connection(), job).unwrap();
    assert_eq!(attempts[0].message, "the text");
}

/// It cannot write how its jobs ended, and no other process may: so it does not
/// go on for ever.
fn a_worker_without_descriptors_ends(db: &TestDb) {
    let scene = Scene::new(db);
    let mut worker = scene.worker_with(|role| role.shutdown_ms = 1_000);
    let work = Work::new("other", Do::WaitFor(scene.gate("other")));
    work.enqueue(&mut db.connection()).unwrap();
    scene.started("other", 1);
    let work = Work::new("starve", Do::Starve(scene.gate("never")));
    work.enqueue(&mut db.connection()).unwrap();
    scene.started("starve", 1);
    // The first end of this process: the finisher has no connection yet.
    scene.open("other");
    assert_eq!(worker.exit().code(), Some(70));
    let log = worker.log();
    assert!(log.contains("descriptor"), "{log}");
}
