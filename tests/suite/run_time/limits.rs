//! Limits of concurrency keys that are set while the programs run.

use crate::on_each_database;
use crate::support::TestDb;
use crate::support::jobs::{Gate, Note, Wait};
use crate::support::program::windlass;
use crate::support::wait::until;
use std::sync::Arc;
use std::time::Duration;
use windlass::jobs::{self, Reason};
use windlass::{Concurrency, Dispatcher, NewJob, Registry, Worker, limits};

on_each_database!(
    a_higher_limit_promotes_and_a_lower_one_lets_jobs_end,
    a_limit_of_a_group_counts_for_its_keys,
    a_change_of_a_group_waits_for_no_sweep,
    no_job_of_a_key_with_no_slot_starts,
    limits_are_shown_and_cleared,
);

crate::through_a_pooler_in_all!(
    a_higher_limit_promotes_and_a_lower_one_lets_jobs_end,
    a_limit_of_a_group_counts_for_its_keys,
    a_change_of_a_group_waits_for_no_sweep,
    no_job_of_a_key_with_no_slot_starts,
    limits_are_shown_and_cleared,
);

fn on_key(job: NewJob, key: &str) -> NewJob {
    job.concurrency(Concurrency::new(key).group("g").limit(1))
}

fn wait(key: &str) -> NewJob {
    on_key(NewJob::new(&Wait).unwrap(), key)
}

fn note(key: &str) -> NewJob {
    on_key(NewJob::new(&Note::new("a")).unwrap(), key)
}

/// The limit of the key, whether it was set, and how many jobs hold a slot.
fn slots(db: &TestDb, key: &str) -> (i64, bool, i64) {
    let all = limits::semaphores(&mut db.connection()).unwrap();
    let found = all.iter().find(|one| one.key == key).unwrap();
    (found.limit, found.limit_is_set, found.ready + found.claimed)
}

fn a_higher_limit_promotes_and_a_lower_one_lets_jobs_end(db: &TestDb) {
    let gate = Arc::new(Gate::default());
    let registry = Registry::new().register::<Wait>(Arc::clone(&gate));
    let _worker = Worker::new(&db.database, registry).start().unwrap();
    let conn = &mut db.connection();
    windlass::enqueue_all(conn, vec![wait("k"); 6]).unwrap();
    until("the first one runs", || gate.begun() == 1);
    limits::set(conn, "g/k", 3, "ada", "").unwrap();
    until("three run", || gate.begun() == 3);
    assert_eq!(slots(db, "g/k"), (3, true, 3));
    limits::set(conn, "g/k", 2, "ada", "").unwrap();
    assert_eq!(slots(db, "g/k"), (2, true, 3));
    // They were allowed to start.
    assert!(limits::check_semaphores(conn).unwrap().is_empty());
    gate.open();
    until("all have run", || gate.ended() == 6);
}

fn a_limit_of_a_group_counts_for_its_keys(db: &TestDb) {
    let conn = &mut db.connection();
    for key in ["a", "b"] {
        windlass::enqueue_all(conn, vec![wait(key); 5]).unwrap();
    }
    let dispatcher = Dispatcher::new(&db.database)
        .polling_interval(Duration::from_millis(20))
        .start()
        .unwrap();
    until("the first ones are ready", || {
        db.rows("ready_executions") == 2
    });
    limits::set(conn, "g/*", 3, "", "").unwrap();
    until("three of each are ready", || {
        db.rows("ready_executions") == 6
    });
    // That of the key itself counts before that of its group.
    limits::set(conn, "g/b", 4, "", "").unwrap();
    until("four of it are ready", || db.rows("ready_executions") == 7);
    assert_eq!(
        (slots(db, "g/a"), slots(db, "g/b")),
        ((3, true, 3), (4, true, 4))
    );
    limits::set(conn, "other/*", 9, "", "").unwrap();
    drop(dispatcher);
    assert_eq!(db.rows("ready_executions"), 7);
}

/// The promotion is requested at once, for each key that has a free slot now.
fn a_change_of_a_group_waits_for_no_sweep(db: &TestDb) {
    let conn = &mut db.connection();
    for key in ["a", "b"] {
        windlass::enqueue_all(conn, vec![wait(key); 2]).unwrap();
    }
    let dispatcher = Dispatcher::new(&db.database)
        .polling_interval(Duration::from_millis(20))
        .start()
        .unwrap();
    until("the first ones are ready", || {
        db.rows("ready_executions") == 2
    });
    drop(dispatcher);
    let requested = || db.count("SELECT count(DISTINCT key) AS n FROM windlass_wanted_keys");
    db.execute("DELETE FROM windlass_wanted_keys");
    limits::set(conn, "g/*", 1, "", "").unwrap();
    assert_eq!(requested(), 0);
    limits::set(conn, "g/*", 2, "", "").unwrap();
    assert_eq!(requested(), 2);
    limits::set(conn, "g/*", 0, "", "").unwrap();
    db.execute("DELETE FROM windlass_wanted_keys");
    db.execute("DELETE FROM solid_queue_ready_executions");
    assert!(limits::clear(conn, "g/*").unwrap());
    assert_eq!(requested(), 2);
}

fn no_job_of_a_key_with_no_slot_starts(db: &TestDb) {
    let conn = &mut db.connection();
    limits::set(conn, "g/k", 0, "ada", "").unwrap();
    let job = note("k").enqueue(conn).unwrap().id;
    note("other").enqueue(conn).unwrap();
    let log = Arc::default();
    let registry = Registry::new().register::<Note>(Arc::clone(&log));
    let worker = Worker::new(&db.database, registry).until_idle();
    let mut stopped = worker.start().unwrap();
    let stopped = stopped.join(crate::support::wait::DEADLINE).unwrap();
    assert!(stopped.is_drained());
    assert_eq!((log.len(), db.rows("blocked_executions")), (1, 1));
    let reason = jobs::explain(conn, job).unwrap().unwrap().reason;
    assert!(
        matches!(
            reason,
            Reason::Limited {
                set_limit: Some(0),
                ..
            }
        ),
        "{reason:?}"
    );
    assert!(limits::clear(conn, "g/k").unwrap());
    let registry = Registry::new().register::<Note>(Arc::clone(&log));
    let _worker = Worker::new(&db.database, registry).start().unwrap();
    until("it runs", || log.len() == 2);
}

fn limits_are_shown_and_cleared(db: &TestDb) {
    let set = windlass(
        &db.url,
        &[
            "limits", "set", "g/*", "2", "--by", "ada", "--reason", "slow",
        ],
    );
    assert!(set.is_done(), "{set:?}");
    assert!(set.out.contains("The limit of g/* is 2"), "{set:?}");
    let conn = &mut db.connection();
    let stored = &limits::list(conn).unwrap()[0];
    let (by, reason) = (stored.set_by.as_deref(), stored.reason.as_deref());
    assert_eq!(
        (&*stored.key, stored.slots, by, reason),
        ("g/*", Some(2), Some("ada"), Some("slow"))
    );
    let listed = windlass(&db.url, &["limits", "list"]);
    assert!(
        listed.out.contains("g/* was set to 2") && listed.out.contains("by ada: slow"),
        "{listed:?}"
    );
    let doctor = windlass(&db.url, &["doctor"]);
    assert!(
        doctor.out.contains("1 limits are set: g/* to 2"),
        "{doctor:?}"
    );
    for wrong in ["k", "/k", "g/", ""] {
        assert!(limits::set(conn, wrong, 1, "", "").is_err(), "{wrong}");
    }
    let cleared = windlass(&db.url, &["limits", "clear", "g/*"]);
    assert!(cleared.out.contains("as its jobs have it"), "{cleared:?}");
    assert!(!limits::clear(conn, "g/*").unwrap());
    assert!(limits::list(conn).unwrap().is_empty());
}
