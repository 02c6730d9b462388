//! The counters: as exact as the rows, and never going back.

use super::Served;
use super::promtool::reads;
use super::scrape::{Scrape, get};
use crate::on_each_database;
use crate::support::TestDb;
use crate::support::jobs::{Log, Note};
use crate::support::process::{Do, Effects, HEARTBEAT, Scene, THRESHOLD, Work};
use crate::support::wait::until;
use rustix::process::Signal;
use std::sync::Arc;
use windlass::limits::Rate;
use windlass::{Job, NewJob, Registry, Supervisor, Worker, enqueue_all};
use windlass_console::web::Probes;

on_each_database!(
    counters_equal_the_rows,
    what_a_killed_process_had_not_stored_is_all_that_lacks,
    nothing_goes_back_through_restarts_and_folds,
    hostile_names_are_counted_too,
    jobs_at_rates_are_counted_by_group,
    jobs_that_wait_for_a_share_are_counted_by_queue,
);

fn work(name: &str, what: Do, queue: &str) -> NewJob {
    NewJob::new(&Work::new(name, what)).unwrap().queue(queue)
}

fn jobs(queue: &str, outcome: &str) -> String {
    format!("windlass_jobs_total{{queue=\"{queue}\",class=\"work\",outcome=\"{outcome}\"}}")
}

/// The counter, 0 if there is none.
fn count(page: &Scrape, series: &str) -> f64 {
    page.0.get(series).copied().unwrap_or(0.0)
}

/// Returns the number of jobs of a queue that have finished, and that have failed, by the rows.
fn rows(db: &TestDb, queue: &str) -> (f64, f64) {
    let finished = format!(
        "SELECT count(*) AS n FROM solid_queue_jobs WHERE queue_name = '{queue}' AND finished_at IS NOT NULL"
    );
    let failed = format!(
        "SELECT count(*) AS n FROM solid_queue_failed_executions f \
         JOIN solid_queue_jobs j ON j.id = f.job_id WHERE j.queue_name = '{queue}'"
    );
    (db.count(&finished) as f64, db.count(&failed) as f64)
}

fn jobs_at_rates_are_counted_by_group(db: &TestDb) {
    let mut conn = db.connection();
    let note = || NewJob::new(&Note::new("x")).unwrap();
    for key in ["api/a", "api/b", "api/b", "mail"] {
        let job = note().rate(Rate::per_day(1).key(key));
        job.rate(Rate::per_day(1).key("all"))
            .enqueue(&mut conn)
            .unwrap();
    }
    note()
        .rate(Rate::per_day(1).key("e{f=\"/x"))
        .enqueue(&mut conn)
        .unwrap();
    for key in ["api/c", "api/d"] {
        db.execute(&format!(
            "INSERT INTO windlass_rates (rate_key, number, period, burst, level, counted_at, closed_until) \
             VALUES ('{key}', 1, 1, 1, 1, 1, 9000000000000000)"
        ));
    }
    let page = Served::of(db).scrape();
    let value = |metric: &str, group: &str| {
        page.value(&format!("windlass_rate_{metric}{{group=\"{group}\"}}"))
    };
    assert_eq!(
        (value("waiting", "api"), value("keys_closed", "api")),
        (3.0, 2.0)
    );
    assert_eq!(value("waiting", "mail"), 1.0);
    assert_eq!(value("waiting", "e{f=\\\""), 1.0);
}

fn jobs_that_wait_for_a_share_are_counted_by_queue(db: &TestDb) {
    crate::shares::seen::two_wait(db);
    let page = Served::of(db).scrape();
    let waiting = page.value("windlass_share_waiting{queue=\"mail\"}");
    assert_eq!(waiting, db.rows("blocked_executions") as f64);
}

fn left(db: &TestDb) -> i64 {
    db.rows("ready_executions") + db.rows("claimed_executions") + db.rows("scheduled_executions")
}

fn counters_equal_the_rows(db: &TestDb) {
    let scene = Scene::new(db);
    let mut workers = [scene.worker(), scene.worker(), scene.worker()];
    let mut all = Vec::new();
    for number in 0..60 {
        let queue = ["a", "b"][number % 2];
        all.push(work(&format!("n{number}"), Do::Nothing, queue));
        if number % 10 == 0 {
            all.push(work(&format!("p{number}"), Do::Panic, queue));
        }
    }
    enqueue_all(&mut db.connection(), all).unwrap();
    until("all have ended", || left(db) == 0);
    for worker in &mut workers {
        worker.signal(Signal::TERM);
        worker.exit();
    }
    let page = get(&Served::of(db).address, "/metrics", &[]).body;
    reads(&page);
    let page = Scrape::parse(&page);
    for queue in ["a", "b"] {
        let counted = (
            page.value(&jobs(queue, "finished")),
            page.value(&jobs(queue, "failed")),
        );
        assert_eq!(counted, rows(db, queue), "{queue}");
        assert_eq!(page.value(&jobs(queue, "crashed")), 0.0);
        let ended = counted.0 + counted.1;
        let run = format!("windlass_job_run_seconds_count{{queue=\"{queue}\",class=\"work\"}}");
        assert_eq!(page.value(&run), ended);
        let wait = format!("windlass_job_wait_seconds_count{{queue=\"{queue}\"}}");
        assert_eq!(page.value(&wait), ended);
        let infinite = format!("windlass_job_wait_seconds_bucket{{queue=\"{queue}\",le=\"+Inf\"}}");
        assert_eq!(page.value(&infinite), ended);
    }
    assert_eq!(page.value("windlass_processes_died_total"), 0.0);
}

fn what_a_killed_process_had_not_stored_is_all_that_lacks(db: &TestDb) {
    let scene = Scene::with_deaths(db);
    let _supervisor = Supervisor::new(&db.database)
        .heartbeat_interval(HEARTBEAT)
        .alive_threshold(THRESHOLD)
        .start()
        .unwrap();
    let all = (0..2_000).map(|n| work(&format!("n{n}"), Do::Sleep(1), "a"));
    enqueue_all(&mut db.connection(), all).unwrap();
    let mut killed = scene.worker();
    let served = Served::of(db);
    // The figures of a page may be some seconds old: the server of another page reads anew.
    until("some are counted", || {
        count(&Served::of(db).scrape(), &jobs("a", "finished")) > 20.0
    });
    let before = Served::of(db).scrape();
    killed.signal(Signal::KILL);
    killed.exit();
    let ended = scene
        .effects()
        .iter()
        .filter(|effect| effect.what == "end")
        .count() as f64;
    let died = |page: &Scrape| page.value("windlass_processes_died_total");
    until("its death is counted", || died(&served.scrape()) == 1.0);
    let mut worker = scene.worker();
    until("all have ended", || left(db) == 0);
    worker.signal(Signal::TERM);
    worker.exit();
    let page = Served::of(db).scrape();
    let counted = page.value(&jobs("a", "finished"));
    let (finished, failed) = rows(db, "a");
    assert_eq!(failed, 0.0);
    let lacks = finished - counted;
    let most = ended - count(&before, &jobs("a", "finished"));
    assert!(
        (0.0..=most).contains(&lacks),
        "{lacks} of {finished} lack; the killed worker had ended {ended}, and {most} since it was scraped"
    );
    assert_eq!(died(&page), 1.0);
}

/// Checks that every counter of a page is at least what it was, and that none has gone.
fn has_not_gone_back(before: &Scrape, after: &Scrape) {
    let is_counter = |name: &str| {
        let name = name.split('{').next().unwrap();
        ["_total", "_bucket", "_sum", "_count"]
            .iter()
            .any(|end| name.ends_with(end))
    };
    for (series, value) in before.0.iter().filter(|(series, _)| is_counter(series)) {
        let now = after.value(series);
        assert!(now >= *value, "{series} went from {value} to {now}");
    }
}

fn nothing_goes_back_through_restarts_and_folds(db: &TestDb) {
    let mut last = Scrape::default();
    let mut is = |finished: f64| {
        let mut page = Scrape::default();
        until(&format!("{finished} are counted"), || {
            // Each time from a server that has just started.
            page = Served::of(db).scrape();
            has_not_gone_back(&last, &page);
            last = page.clone();
            count(&page, &jobs("a", "finished")) == finished
        });
    };
    let mut sum = 0.0;
    for round in 0..4 {
        let registry = || {
            let effects = tempfile::NamedTempFile::new().unwrap();
            Registry::new().register::<Work>(Arc::new(Effects::open(effects.path())))
        };
        let workers = [(); 2].map(|()| {
            let worker = Worker::new(&db.database, registry()).heartbeat_interval(HEARTBEAT);
            worker.start().unwrap()
        });
        let all = (0..20).map(|n| work(&format!("r{round}n{n}"), Do::Nothing, "a"));
        enqueue_all(&mut db.connection(), all).unwrap();
        sum += 20.0;
        is(sum);
        drop(workers);
        is(sum);
        // A minute later, which lets the supervisor fold again.
        let a_while_ago = match db.is_postgres() {
            true => "(now() AT TIME ZONE 'UTC') - interval '2 minutes'",
            false => "strftime('%Y-%m-%d %H:%M:%f000', 'now', '-2 minutes')",
        };
        db.execute(&format!(
            "UPDATE windlass_stats_series SET folded_at = {a_while_ago}"
        ));
        let supervisor = Supervisor::new(&db.database).start().unwrap();
        until("the history is folded", || {
            is(sum);
            db.count("SELECT count(*) AS n FROM windlass_stats_deltas WHERE data IS NOT NULL") == 0
        });
        drop(supervisor);
        is(sum);
    }
    assert_eq!(last.value("windlass_statistics_lag_seconds"), 0.0);
}

fn hostile_names_are_counted_too(db: &TestDb) {
    let log = Arc::new(Log::default());
    let registry = Registry::new().register::<Note>(log.clone());
    let names = ["a\"} 1", "c\\", "e{f=\"g\"}", "ü🦀", "$1 {{ 2 }}"];
    for name in names {
        let job = Note::new("x").enqueue(&mut db.connection()).unwrap().id;
        for (table, id) in [("jobs", "id"), ("ready_executions", "job_id")] {
            db.execute(&format!(
                "UPDATE solid_queue_{table} SET queue_name = '{name}' WHERE {id} = {job}"
            ));
        }
    }
    let worker = Worker::new(&db.database, registry).heartbeat_interval(HEARTBEAT);
    let worker = worker.start().unwrap();
    let served = Served::start(Probes::new(&db.database).process(worker.health()));
    until("all have run", || log.len() == names.len());
    until("all are counted", || {
        served
            .scrape()
            .sum("windlass_jobs_total", "outcome=\"finished\"")
            == names.len() as f64
    });
    let page = get(&served.address, "/metrics", &[]).body;
    reads(&page);
    let page = Scrape::parse(&page);
    for label in ["a\\\"} 1", "c\\\\", "e{f=\\\"g\\\"}", "ü🦀", "$1 {{ 2 }}"] {
        let class = Note::NAME;
        let series = format!(
            "windlass_jobs_total{{queue=\"{label}\",class=\"{class}\",outcome=\"finished\"}}"
        );
        assert_eq!(page.value(&series), 1.0, "{series}");
        let run = format!("windlass_job_run_seconds_count{{queue=\"{label}\",class=\"{class}\"}}");
        assert_eq!(page.value(&run), 1.0, "{run}");
    }
    drop(worker);
}
