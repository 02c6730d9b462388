//! Queues: paused and resumed, counted and cleared, and many of them.

use crate::on_each_database;
use crate::support::TestDb;
use crate::support::jobs::{Log, Note};
use crate::support::wait::until;
use std::sync::Arc;
use std::time::Duration;
use windlass::jobs::{JobState, Jobs};
use windlass::{Handle, NewJob, Policy, Registry, Worker, enqueue_all, queues};

on_each_database!(
    a_pause_says_who_when_and_why,
    a_paused_queue_stops_and_goes_on,
    a_queue_tells_how_full_and_how_late_it_is,
    clearing_takes_the_ready_ones_only,
    a_prefix_reaches_every_one_of_many_queues,
    a_queue_that_is_new_is_found,
    a_full_paused_queue_hides_nothing,
    time_is_a_priority,
);

crate::through_a_pooler_in_all!(
    a_pause_says_who_when_and_why,
    a_paused_queue_stops_and_goes_on,
    a_queue_tells_how_full_and_how_late_it_is,
    clearing_takes_the_ready_ones_only,
    a_prefix_reaches_every_one_of_many_queues,
    a_queue_that_is_new_is_found,
    a_full_paused_queue_hides_nothing,
    time_is_a_priority,
);

fn note(queue: &str, text: &str) -> NewJob {
    NewJob::new(&Note::new(text)).unwrap().queue(queue)
}

fn worker(db: &TestDb, log: &Arc<Log>, queues: &[&str]) -> Handle {
    let registry = Registry::new().register::<Note>(Arc::clone(log));
    Worker::new(&db.database, registry)
        .queues(queues)
        .unwrap()
        .threads(1)
        .polling_interval(Duration::from_millis(50))
        .start()
        .unwrap()
}

fn a_pause_says_who_when_and_why(db: &TestDb) {
    let conn = &mut db.connection();
    assert!(queues::pause(conn, "mail", "ada", "the provider is down").unwrap());
    // The first word stays.
    assert!(!queues::pause(conn, "mail", "bob", "").unwrap());
    assert!(queues::pause(conn, "sms", "", "").unwrap());
    let queues = queues::list(conn).unwrap();
    assert_eq!(queues.len(), 2);
    let (mail, sms) = (&queues[0], &queues[1]);
    assert!(mail.paused && sms.paused);
    assert_eq!(mail.paused_by.as_deref(), Some("ada"));
    assert_eq!(mail.pause_reason.as_deref(), Some("the provider is down"));
    assert!((0.0..60.0).contains(&mail.paused_seconds.unwrap()));
    assert_eq!((&sms.paused_by, &sms.pause_reason), (&None, &None));
    assert!(queues::resume(conn, "mail").unwrap());
    assert!(!queues::resume(conn, "mail").unwrap());
    assert_eq!(queues::list(conn).unwrap().len(), 1);
}

fn a_paused_queue_stops_and_goes_on(db: &TestDb) {
    let conn = &mut db.connection();
    let log = Arc::new(Log::default());
    for queues in [&["mail", "other"][..], &["m*", "other"], &["*"]] {
        let done = log.len();
        queues::pause(conn, "mail", "ada", "").unwrap();
        note("mail", "held").enqueue(conn).unwrap();
        let worker = worker(db, &log, queues);
        note("other", "free").enqueue(conn).unwrap();
        // The one behind it comes, so the paused one was passed over.
        until("the other queue goes on", || log.len() == done + 1);
        assert_eq!(log.lines()[done], "free", "{queues:?}");
        assert_eq!(queues::size(conn, "mail").unwrap(), 1);
        queues::resume(conn, "mail").unwrap();
        until("the queue goes on", || log.len() == done + 2);
        drop(worker);
    }
}

fn a_queue_tells_how_full_and_how_late_it_is(db: &TestDb) {
    let conn = &mut db.connection();
    assert_eq!(queues::size(conn, "mail").unwrap(), 0);
    assert_eq!(queues::latency(conn, "mail").unwrap(), None);
    let later = note("mail", "later").after(Duration::from_secs(600));
    enqueue_all(
        conn,
        [
            note("mail", "a"),
            note("mail", "b"),
            later,
            note("sms", "c"),
        ],
    )
    .unwrap();
    assert_eq!(queues::size(conn, "mail").unwrap(), 2);
    let an_hour_ago = if db.is_postgres() {
        "statement_timestamp() AT TIME ZONE 'UTC' - interval '1 hour'"
    } else {
        "strftime('%Y-%m-%d %H:%M:%f000', 'now', '-1 hours')"
    };
    db.execute(&format!(
        "UPDATE solid_queue_ready_executions SET created_at = {an_hour_ago} \
         WHERE id = (SELECT max(id) FROM solid_queue_ready_executions WHERE queue_name = 'mail')"
    ));
    let latency = queues::latency(conn, "mail").unwrap().unwrap();
    assert!((3_600..3_700).contains(&latency.as_secs()), "{latency:?}");
    assert!(queues::latency(conn, "sms").unwrap().unwrap() < Duration::from_secs(100));
}

fn clearing_takes_the_ready_ones_only(db: &TestDb) {
    let conn = &mut db.connection();
    // More than one batch.
    let many = (0..1_201).map(|n| note("mail", &n.to_string()));
    enqueue_all(conn, many).unwrap();
    let kept = [
        note("mail", "later").after(Duration::from_secs(600)),
        note("sms", "x"),
    ];
    enqueue_all(conn, kept).unwrap();
    assert_eq!(queues::clear(conn, "mail").unwrap(), 1_201);
    assert_eq!(queues::clear(conn, "mail").unwrap(), 0);
    assert_eq!(db.rows("jobs"), 2);
    assert_eq!(Jobs::in_state(JobState::Scheduled).count(conn).unwrap(), 1);
    assert_eq!(queues::size(conn, "sms").unwrap(), 1);
}

/// More names than a claim takes at once, and the order is that of the names.
fn a_prefix_reaches_every_one_of_many_queues(db: &TestDb) {
    let conn = &mut db.connection();
    let name = |n: usize| format!("many{n:03}");
    let jobs = (0..150).map(|n| note(&name(n), &n.to_string()).priority(-1));
    enqueue_all(
        conn,
        jobs.chain([note("urgent", "first"), note("alone", "x").priority(-9)]),
    )
    .unwrap();
    let log = Arc::new(Log::default());
    let _worker = worker(db, &log, &["urgent", "many*"]);
    until("all are done", || log.len() == 151);
    let expected: Vec<String> = (0..150).map(|n| n.to_string()).collect();
    assert_eq!(log.lines()[0], "first");
    assert_eq!(log.lines()[1..], expected);
    assert_eq!(queues::size(conn, "alone").unwrap(), 1);
}

fn a_queue_that_is_new_is_found(db: &TestDb) {
    let conn = &mut db.connection();
    let log = Arc::new(Log::default());
    let _worker = worker(db, &log, &["many*"]);
    for n in 1..20 {
        note(&format!("many{n}"), "x").enqueue(conn).unwrap();
        until("the new queue is found", || log.len() == n);
    }
}

/// So full that a look at all queues goes around it.
fn a_full_paused_queue_hides_nothing(db: &TestDb) {
    let conn = &mut db.connection();
    let held = (0..1_100).map(|_| note("held", "held").priority(-5));
    enqueue_all(conn, held).unwrap();
    queues::pause(conn, "held", "ada", "").unwrap();
    let free = (0..30).map(|n| note(&format!("q{}", n % 7), &n.to_string()).priority(n % 3));
    enqueue_all(conn, free).unwrap();
    let log = Arc::new(Log::default());
    let _worker = worker(db, &log, &["*"]);
    until("the others are done", || log.len() == 30);
    assert_eq!(log.lines()[0], "0");
    assert_eq!(queues::size(conn, "held").unwrap(), 1_100);
    queues::clear(conn, "held").unwrap();
    note("q1", "after").enqueue(conn).unwrap();
    until("it goes on", || log.len() == 31);
}

fn time_is_a_priority(db: &TestDb) {
    let conn = &mut db.connection();
    let seconds = Duration::from_secs;
    let jobs = [
        note("time", "waits").ahead_by(seconds(0)),
        note("time", "ahead").ahead_by(seconds(600)),
        note("time", "more").ahead_by(seconds(601)),
        note("time", "due").ahead_by(seconds(0)).after(seconds(500)),
        note("time", "behind").behind_by(seconds(600)),
        note("time", "fixed").ahead_by(seconds(9)).priority(7),
        note("time", "type").policy(Policy::new().behind_by(seconds(300))),
    ];
    enqueue_all(conn, jobs).unwrap();
    note("time", "far ahead")
        .ahead_by(Duration::MAX)
        .enqueue(conn)
        .unwrap();
    // 2020-01-01 in Unix' seconds.
    let now = chrono::Utc::now().timestamp() - 1_577_836_800;
    let listed = Jobs::unfinished().list(conn).unwrap();
    let about = |text: &str| {
        let id = db.count(&format!(
            "SELECT id AS n FROM solid_queue_jobs WHERE arguments LIKE '%\"{text}\"%'"
        ));
        let found = listed.iter().find(|job| job.job_id == id).unwrap();
        i64::from(found.priority) - now
    };
    let near = |found: i64, expected: i64| (expected - 100..expected + 100).contains(&found);
    assert!(
        near(about("waits"), 0) && near(about("ahead"), -600),
        "{listed:?}"
    );
    assert_eq!(about("ahead") - about("more"), 1);
    assert!(near(about("due"), 500), "{listed:?}");
    assert!(
        near(about("behind"), 600) && near(about("type"), 300),
        "{listed:?}"
    );
    let priority = |text: &str| about(text) + now;
    assert_eq!(priority("fixed"), 7);
    assert_eq!(priority("far ahead"), i64::from(i32::MIN));
    let log = Arc::new(Log::default());
    let _worker = worker(db, &log, &["time"]);
    until("the ready ones are done", || log.len() == 7);
    assert_eq!(
        log.lines(),
        [
            "far ahead",
            "fixed",
            "more",
            "ahead",
            "waits",
            "type",
            "behind"
        ]
    );
}
