//! Dispatching: what is due becomes ready, once, in order, in time.

use crate::on_each_database;
use crate::support::TestDb;
use crate::support::events::Events;
use crate::support::jobs::{Log, Note};
use crate::support::wait::until;
use crate::wakeup::{is_heard_in_time, soon_after};
use std::sync::Arc;
use std::time::Duration;
use windlass::{Concurrency, Dispatcher, NewJob, Registry, Worker, enqueue_all};

const HOUR: Duration = Duration::from_secs(3600);

fn later(text: impl Into<String>) -> NewJob {
    NewJob::new(&Note::new(text)).unwrap().after(HOUR)
}

/// Lets the time of every scheduled job have come, a second apart.
fn make_due(db: &TestDb) {
    db.execute(if db.is_postgres() {
        "UPDATE solid_queue_scheduled_executions SET scheduled_at = timestamp '2026-01-01' + id * interval '1 second'"
    } else {
        "UPDATE solid_queue_scheduled_executions \
         SET scheduled_at = strftime('%Y-%m-%d %H:%M:%S.000000', '2026-01-01', id || ' seconds')"
    });
}

/// The counts of all `Dispatched` events.
fn counts(events: &Events) -> Vec<usize> {
    let count = |event: &String| {
        let digits: String = event.chars().filter(char::is_ascii_digit).collect();
        digits.parse().unwrap()
    };
    events.of("Dispatched").iter().map(count).collect()
}

fn what_is_due_is_moved_in_batches(db: &TestDb) {
    let jobs = (0..35).map(|n| later(n.to_string()));
    enqueue_all(&mut db.connection(), jobs).unwrap();
    make_due(db);
    let events = Events::default();
    let _dispatcher = Dispatcher::new(&db.database)
        .batch_size(10)
        .polling_interval(HOUR)
        .subscriber(events.subscriber())
        .start()
        .unwrap();
    until("all are ready", || db.rows("ready_executions") == 35);
    until("all batches are told", || {
        counts(&events).iter().sum::<usize>() == 35
    });
    assert_eq!(counts(&events), [10, 10, 10, 5]);
    assert_eq!(db.rows("scheduled_executions"), 0);
}

fn only_what_is_due_is_moved(db: &TestDb) {
    let mut conn = db.connect();
    enqueue_all(
        &mut conn,
        [later("a"), later("b").queue("other").priority(-3)],
    )
    .unwrap();
    make_due(db);
    enqueue_all(&mut conn, (0..5).map(|_| later("not yet"))).unwrap();
    let _dispatcher = Dispatcher::new(&db.database)
        .polling_interval(Duration::from_millis(10))
        .start()
        .unwrap();
    until("two are ready", || db.rows("ready_executions") == 2);
    enqueue_all(&mut conn, (0..5).map(|_| later("nor these"))).unwrap();
    make_due_of(db, "nor these", 1);
    until("a third one is", || db.rows("ready_executions") == 3);
    assert_eq!(db.rows("scheduled_executions"), 9);
    // Their ready executions are as if they had been enqueued just now.
    assert_eq!(
        db.texts(
            "SELECT queue_name || ' ' || priority || ' ' || class_name AS t FROM solid_queue_ready_executions ORDER BY job_id"
        ),
        ["default 0 note", "other -3 note", "default 0 note"]
    );
}

/// Lets the time of the first `count` jobs of this text have come.
fn make_due_of(db: &TestDb, text: &str, count: u32) {
    db.execute(&format!(
        "UPDATE solid_queue_scheduled_executions SET scheduled_at = '2026-01-01 00:00:00.000000' WHERE job_id IN \
         (SELECT id FROM solid_queue_jobs WHERE arguments LIKE '%{text}%' ORDER BY id LIMIT {count})"
    ));
}

/// By time, then importance, then age; batches of one tell the order.
fn what_was_due_first_goes_first(db: &TestDb) {
    let mut conn = db.connect();
    for (priority, at) in [(0, 3), (0, 1), (5, 2), (-5, 2), (-5, 2), (9, 0)] {
        later(at.to_string())
            .priority(priority)
            .enqueue(&mut conn)
            .unwrap();
        db.execute(&format!(
            "UPDATE solid_queue_scheduled_executions SET scheduled_at = '2026-01-01 00:00:0{at}.000000' \
             WHERE id = (SELECT max(id) FROM solid_queue_scheduled_executions)"
        ));
    }
    let first = db.count("SELECT min(id) AS n FROM solid_queue_jobs");
    let _dispatcher = Dispatcher::new(&db.database).batch_size(1).start().unwrap();
    until("all are ready", || db.rows("ready_executions") == 6);
    let order = db.texts(&format!(
        "SELECT CAST(job_id - {first} AS text) AS t FROM solid_queue_ready_executions ORDER BY id"
    ));
    assert_eq!(order, ["5", "1", "3", "4", "2", "0"]);
}

fn three_dispatchers_move_each_job_once(db: &TestDb) {
    let jobs = (0..2_000).map(|n| later(n.to_string()));
    enqueue_all(&mut db.connection(), jobs).unwrap();
    make_due(db);
    let events = Events::default();
    let dispatchers: Vec<_> = (0..3)
        .map(|_| {
            Dispatcher::new(&db.database)
                .batch_size(50)
                .subscriber(events.subscriber())
                .start()
                .unwrap()
        })
        .collect();
    until("all are ready", || db.rows("ready_executions") == 2_000);
    until("none is scheduled", || db.rows("scheduled_executions") == 0);
    drop(dispatchers);
    assert_eq!(counts(&events).iter().sum::<usize>(), 2_000);
    assert!(counts(&events).iter().all(|count| *count <= 50));
    assert_eq!(
        events.count("Unreachable"),
        0,
        "{:?}",
        events.of("Unreachable")
    );
    assert_eq!(
        db.count("SELECT count(DISTINCT job_id) AS n FROM solid_queue_ready_executions"),
        2_000
    );
}

/// It cannot become ready a second time: somebody has put it there by hand.
fn a_job_that_is_ready_already_holds_up_no_other(db: &TestDb) {
    let jobs = (0..3).map(|n| later(n.to_string()));
    enqueue_all(&mut db.connection(), jobs).unwrap();
    make_due(db);
    db.execute(
        "INSERT INTO solid_queue_ready_executions (job_id, queue_name, priority, class_name, created_at) \
         SELECT min(id), 'default', 0, 'note', '2026-01-01 00:00:00' FROM solid_queue_jobs",
    );
    let _dispatcher = Dispatcher::new(&db.database).start().unwrap();
    until("the others are ready", || db.rows("ready_executions") == 3);
    until("none is scheduled", || db.rows("scheduled_executions") == 0);
}

/// Makes the database refuse to make jobs of a queue ready.
fn refuse(db: &TestDb, queue: &str) {
    if db.is_postgres() {
        db.execute(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'refused by the test'; END $$",
        );
        db.execute(&format!(
            "CREATE TRIGGER refuse BEFORE INSERT ON solid_queue_ready_executions FOR EACH ROW \
             WHEN (NEW.queue_name = '{queue}') EXECUTE FUNCTION refuse()"
        ));
    } else {
        db.execute(&format!(
            "CREATE TRIGGER refuse BEFORE INSERT ON solid_queue_ready_executions WHEN NEW.queue_name = '{queue}' \
             BEGIN SELECT RAISE(ABORT, 'refused by the test'); END"
        ));
    }
}

/// More jobs than a batch that the database refuses, and all due before the others.
fn refused_jobs_hold_up_no_other(db: &TestDb) {
    let refused = (0..12).map(|n| later(n.to_string()).queue("bad"));
    let jobs = refused.chain((0..35).map(|n| later(n.to_string())));
    enqueue_all(&mut db.connection(), jobs).unwrap();
    make_due(db);
    refuse(db, "bad");
    let events = Events::default();
    let _dispatcher = Dispatcher::new(&db.database)
        .batch_size(10)
        .polling_interval(Duration::from_millis(20))
        .subscriber(events.subscriber())
        .start()
        .unwrap();
    until("the others are ready", || db.rows("ready_executions") == 35);
    assert_eq!(db.rows("scheduled_executions"), 12);
    let told = events.of("Unreachable");
    assert!(
        told.iter().any(|one| one.contains("refused by the test")),
        "{told:?}"
    );
    let findings = windlass_console::doctor(&mut db.connection()).unwrap();
    let finding = findings
        .iter()
        .find(|one| one.check == "scheduled")
        .unwrap();
    let first = db.count("SELECT min(id) AS n FROM solid_queue_jobs");
    assert!(finding.says.contains("refuse"), "{finding:?}");
    assert!(finding.jobs.contains(&first), "{finding:?}");
    db.execute(match db.is_postgres() {
        true => "DROP TRIGGER refuse ON solid_queue_ready_executions",
        false => "DROP TRIGGER refuse",
    });
    until("they are tried again", || {
        db.rows("scheduled_executions") == 0
    });
}

/// The first thing that a dispatcher does in each turn fails.
fn a_duty_that_fails_stops_no_other(db: &TestDb) {
    let events = Events::default();
    let _dispatcher = Dispatcher::new(&db.database)
        .polling_interval(Duration::from_millis(20))
        .subscriber(events.subscriber())
        .start()
        .unwrap();
    db.execute("ALTER TABLE windlass_expiries RENAME COLUMN expires_at TO hidden");
    until("it fails", || {
        let told = events.of("Unreachable");
        told.iter().any(|one| one.contains("expired"))
    });
    let limited = NewJob::new(&Note::new("limited")).unwrap();
    let jobs = [limited.concurrency(Concurrency::new("k")), later("due")];
    enqueue_all(&mut db.connection(), jobs).unwrap();
    make_due(db);
    until("both are ready", || db.rows("ready_executions") == 2);
    db.execute("ALTER TABLE windlass_expiries RENAME COLUMN hidden TO expires_at");
}

/// The dispatcher looks but once an hour, unless it knows better.
fn the_next_due_time_is_waited_for(db: &TestDb) {
    let log = Arc::new(Log::default());
    let registry = Registry::new().register::<Note>(Arc::clone(&log));
    let note = |text: &str| NewJob::new(&Note::new(text)).unwrap();
    let jobs = [
        note("later").after(Duration::from_millis(600)),
        note("soon").after(Duration::from_millis(300)),
        later("never"),
    ];
    enqueue_all(&mut db.connection(), jobs).unwrap();
    let _dispatcher = Dispatcher::new(&db.database)
        .polling_interval(HOUR)
        .start()
        .unwrap();
    until("both are dispatched", || db.rows("ready_executions") == 2);
    // By the clock that counts, not a moment too early.
    assert_eq!(
        db.count(
            "SELECT count(*) AS n FROM solid_queue_ready_executions r JOIN solid_queue_jobs j ON j.id = r.job_id \
             WHERE r.created_at >= j.scheduled_at"
        ),
        2
    );
    let _worker = Worker::new(&db.database, registry).start().unwrap();
    until("both are done", || log.len() == 2);
}

/// The worker is woken by a dispatcher, as by anybody who enqueues.
fn a_worker_hears_of_what_was_dispatched(db: &TestDb) {
    is_heard_in_time(|idle| {
        // An earlier attempt may have left jobs.
        db.execute("DELETE FROM solid_queue_ready_executions");
        let queues = ["a", "b", "c", "d"];
        let log = Arc::new(Log::default());
        let _workers = queues.map(|queue| {
            let registry = Registry::new().register::<Note>(Arc::clone(&log));
            Worker::new(&db.database, registry)
                .queues([queue])
                .unwrap()
                .heartbeat_interval(HOUR)
                .alive_threshold(3 * HOUR)
                .polling_interval(HOUR)
                .start()
                .unwrap()
        });
        let _dispatcher = Dispatcher::new(&db.database)
            .heartbeat_interval(HOUR)
            .alive_threshold(3 * HOUR)
            .start()
            .unwrap();
        until("all are registered", || db.rows("processes") == 5);
        let job = |queue| {
            let job = NewJob::new(&Note::new("x")).unwrap();
            job.queue(queue).after(idle)
        };
        enqueue_all(&mut db.connection(), queues.map(job)).unwrap();
        until("all are dispatched", || {
            db.rows("scheduled_executions") == 0
        });
        soon_after(idle, || log.len() == queues.len())
    });
}

on_each_database!(
    what_is_due_is_moved_in_batches,
    only_what_is_due_is_moved,
    what_was_due_first_goes_first,
    three_dispatchers_move_each_job_once,
    a_job_that_is_ready_already_holds_up_no_other,
    refused_jobs_hold_up_no_other,
    a_duty_that_fails_stops_no_other,
    the_next_due_time_is_waited_for,
);

on_each_database!(a_worker_hears_of_what_was_dispatched);

crate::through_a_pooler_in_all!(
    what_is_due_is_moved_in_batches,
    only_what_is_due_is_moved,
    what_was_due_first_goes_first,
    three_dispatchers_move_each_job_once,
    a_job_that_is_ready_already_holds_up_no_other,
    the_next_due_time_is_waited_for,
    a_worker_hears_of_what_was_dispatched,
);
