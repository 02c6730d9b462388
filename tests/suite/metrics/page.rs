//! The page of metrics.

use super::Served;
use super::promtool::{reads, reads_open_metrics};
use super::scrape::{OPEN_METRICS, Scrape, get};
use crate::on_each_database;
use crate::support::TestDb;
use crate::support::jobs::{Log, Note};
use crate::support::process::HEARTBEAT;
use crate::support::wait::until;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};
use windlass::{Dispatcher, NewJob, Registry, Supervisor, Worker, queues};
use windlass_console::web::Probes;

on_each_database!(
    both_formats_are_read_by_prometheus,
    what_waits_is_counted,
    counts_stop_at_their_limit,
    processes_are_counted_by_kind_and_state,
    hostile_names_end_no_line,
    many_scrapes_cost_one,
    no_part_can_be_left_out,
    a_page_of_the_process_alone_asks_no_database,
);

fn both_formats_are_read_by_prometheus(db: &TestDb) {
    let worker = Worker::new(&db.database, Registry::new()).start().unwrap();
    until("it is registered", || db.rows("processes") == 1);
    NewJob::of_class("send", "{}")
        .enqueue(&mut db.connection())
        .unwrap();
    let served = Served::start(Probes::new(&db.database).process(worker.health()));
    let (mut plain, mut open);
    loop {
        served.scrape();
        plain = get(&served.address, "/metrics", &[]);
        open = get(&served.address, "/metrics", &[OPEN_METRICS]);
        // Unless newer ones were read in between, they are of the same figures.
        if Scrape::parse(&plain.body) == Scrape::parse(&open.body) {
            break;
        }
    }
    assert!(
        plain.head.contains("text/plain; version=0.0.4"),
        "{plain:?}"
    );
    reads(&plain.body);
    let of_type = "content-type: application/openmetrics-text; version=1.0.0; charset=utf-8";
    assert!(open.head.contains(of_type), "{open:?}");
    reads_open_metrics(&open.body);
    let open = Scrape::parse(&open.body);
    assert_eq!(open.value("windlass_process_live{kind=\"worker\"}"), 1.0);
    assert_eq!(open.value("windlass_up"), 1.0);
    assert!(open.is_complete(), "{:#?}", open.0);
}

fn what_waits_is_counted(db: &TestDb) {
    let mut conn = db.connect();
    for queue in ["mail", "mail", "slow"] {
        let job = NewJob::of_class("send", "{}").queue(queue);
        job.enqueue(&mut conn).unwrap();
    }
    let later = NewJob::of_class("send", "{}").after(Duration::from_secs(3600));
    later.enqueue(&mut conn).unwrap();
    queues::pause(&mut conn, "slow", "ada", "").unwrap();
    queues::pause(&mut conn, "empty", "ada", "").unwrap();
    let page = Served::of(db).scrape();
    for (queue, ready, paused) in [("mail", 2.0, 0.0), ("slow", 1.0, 1.0), ("empty", 0.0, 1.0)] {
        let of = |name: &str| page.value(&format!("windlass_queue_{name}{{queue=\"{queue}\"}}"));
        assert_eq!((of("ready"), of("paused")), (ready, paused), "{queue}");
        assert!(of("oldest_ready_age_seconds") >= 0.0);
    }
    let of = |state: &str| page.value(&format!("windlass_executions{{state=\"{state}\"}}"));
    assert_eq!(
        (of("ready"), of("scheduled"), of("failed")),
        (3.0, 1.0, 0.0)
    );
    assert_eq!(page.value("windlass_scheduled_late"), 0.0);
    let due = match db.is_postgres() {
        true => "(now() AT TIME ZONE 'UTC') - interval '1 minute'",
        false => "strftime('%Y-%m-%d %H:%M:%f000', 'now', '-1 minute')",
    };
    db.execute(&format!(
        "UPDATE solid_queue_scheduled_executions SET scheduled_at = {due}"
    ));
    assert_eq!(
        Served::of(db).scrape().value("windlass_scheduled_late"),
        1.0
    );
}

fn counts_stop_at_their_limit(db: &TestDb) {
    let mut conn = db.connect();
    NewJob::of_class("send", "{}")
        .queue("mail")
        .enqueue(&mut conn)
        .unwrap();
    let numbers =
        "WITH RECURSIVE n(id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM n WHERE id < 10050)";
    db.execute(&format!(
        "INSERT INTO solid_queue_ready_executions (job_id, queue_name, priority, created_at) \
         {numbers} SELECT -id, 'mail', 0, '2026-01-01 00:00:00.000000' FROM n"
    ));
    let page = Served::of(db).scrape();
    assert_eq!(page.value("windlass_executions{state=\"ready\"}"), 10_001.0);
    assert_eq!(page.value("windlass_queue_ready{queue=\"mail\"}"), 10_001.0);
    let age = page.value("windlass_queue_oldest_ready_age_seconds{queue=\"mail\"}");
    assert!(
        age > 86_400.0,
        "the oldest is found however many there are: {age}"
    );
}

fn processes_are_counted_by_kind_and_state(db: &TestDb) {
    let worker = |quiet: bool| {
        let registry = Registry::new().register::<Note>(Arc::<Log>::default());
        let worker = Worker::new(&db.database, registry).heartbeat_interval(HEARTBEAT);
        let worker = worker.start().unwrap();
        if quiet {
            worker.quiet();
        }
        worker
    };
    let _workers = [worker(false), worker(false), worker(true)];
    let _dispatcher = Dispatcher::new(&db.database).start().unwrap();
    let _supervisor = Supervisor::new(&db.database).start().unwrap();
    until("all are registered", || db.rows("processes") == 5);
    until("one is quiet", || {
        db.count("SELECT count(*) AS n FROM solid_queue_processes WHERE metadata LIKE '%quiet%'")
            == 1
    });
    db.execute(
        "INSERT INTO solid_queue_processes (name, kind, pid, last_heartbeat_at, created_at) VALUES \
         ('a', 'Supervisor(fork)', 1, '2026-01-01 00:00:00', '2026-01-01 00:00:00'), \
         ('b', 'Cook', 1, '2026-01-01 00:00:00', '2026-01-01 00:00:00')",
    );
    let page = Served::of(db).scrape();
    for (kind, state, count) in [
        ("worker", "running", 2.0),
        ("worker", "quiet", 1.0),
        ("worker", "draining", 0.0),
        ("worker", "dead", 0.0),
        ("dispatcher", "running", 1.0),
        ("supervisor", "running", 1.0),
        ("scheduler", "running", 0.0),
        ("rails_supervisor", "dead", 1.0),
        ("other", "dead", 1.0),
    ] {
        let series = format!("windlass_processes{{kind=\"{kind}\",state=\"{state}\"}}");
        assert_eq!(page.value(&series), count, "{series}");
    }
}

/// Names that a Rails app, or an attacker who may enqueue, could store.
fn hostile_names_end_no_line(db: &TestDb) {
    let mut conn = db.connect();
    let names = [
        "a\"} 1",
        "b\nwindlass_up 0",
        "c\\",
        "d\r\n# EOF",
        "e{f=\"g\"}",
        "h\u{1}",
        "h\u{2}",
        "ü🦀",
        "",
    ];
    for (number, name) in names.iter().enumerate() {
        NewJob::of_class("send", "{}").enqueue(&mut conn).unwrap();
        let name = name.replace('\'', "''");
        db.execute(&format!(
            "UPDATE solid_queue_ready_executions SET queue_name = '{name}' \
             WHERE job_id = (SELECT max(job_id) FROM solid_queue_ready_executions)"
        ));
        assert_eq!(db.rows("ready_executions"), number as i64 + 1);
    }
    let served = Served::of(db);
    let plain = get(&served.address, "/metrics", &[]).body;
    reads(&plain);
    reads_open_metrics(&get(&served.address, "/metrics", &[OPEN_METRICS]).body);
    let page = Scrape::parse(&plain);
    assert_eq!(page.value("windlass_up"), 1.0);
    assert_eq!(
        page.sum("windlass_queue_ready", "queue"),
        names.len() as f64
    );
    for label in [
        "a\\\"} 1",
        "b\\nwindlass_up 0",
        "c\\\\",
        "e{f=\\\"g\\\"}",
        "ü🦀",
        "",
    ] {
        let series = format!("windlass_queue_ready{{queue=\"{label}\"}}");
        assert_eq!(page.value(&series), 1.0, "{series}");
    }
    // Both are shown as the same, and a series must not be there twice.
    let series = "windlass_queue_ready{queue=\"h\u{fffd}\"}";
    assert_eq!(page.value(series), 2.0);
}

fn many_scrapes_cost_one(db: &TestDb) {
    let served = Served::of(db);
    let start = Instant::now();
    let read = |page: Scrape| page.value("windlass_scrape_seconds").to_string();
    let reads: BTreeSet<String> = std::thread::scope(|scope| {
        let scrapes = (0..20).map(|_| scope.spawn(|| read(Scrape::of(&served.address))));
        let scrapes: Vec<_> = scrapes.collect();
        scrapes.into_iter().map(|one| one.join().unwrap()).collect()
    });
    // Figures are used for five seconds.
    let most = 1 + start.elapsed().as_secs() / 5;
    assert!(reads.len() as u64 <= most, "{reads:?}");
    let job = NewJob::of_class("send", "{}");
    job.enqueue(&mut db.connection()).unwrap();
    until("the job is seen", || {
        served
            .scrape()
            .value("windlass_executions{state=\"ready\"}")
            == 1.0
    });
}

/// Others get what was read for one.
fn no_part_can_be_left_out(db: &TestDb) {
    let served = Served::start(Probes::new(&db.database));
    let page = get(&served.address, "/metrics?alone=the-queues", &[]);
    let missing = |line: &&str| line.starts_with("windlass_scrape_part_missing");
    let parts: Vec<&str> = page.body.lines().filter(missing).collect();
    assert!(!parts.is_empty(), "{}", page.body);
    assert!(parts.iter().all(|line| line.ends_with(" 0")), "{parts:?}");
}

fn a_page_of_the_process_alone_asks_no_database(db: &TestDb) {
    let worker = Worker::new(&db.database, Registry::new()).start().unwrap();
    let served = Served::start(Probes::new(&db.database).process(worker.health()));
    until("the worker is ready", || worker.health().is_ready());
    let page = get(&served.address, "/metrics?only=process", &[]).body;
    reads(&page);
    let page = Scrape::parse(&page);
    let names: Vec<&str> = page.0.keys().map(String::as_str).collect();
    let version = format!(
        "windlass_build_info{{version=\"{}\"}}",
        env!("CARGO_PKG_VERSION")
    );
    assert_eq!(
        names,
        [
            &version,
            "windlass_process_live{kind=\"worker\"}",
            "windlass_process_ready{kind=\"worker\"}"
        ]
    );
    assert_eq!(page.0.values().sum::<f64>(), 3.0);
}
