//! The counts that processes contribute, also those that are killed, and the process that folds.

use super::{counts, sum, sum_of};
use crate::support::TestDb;
use crate::support::process::{Do, HEARTBEAT, Scene, Work};
use crate::support::program::windlass;
use crate::support::wait::{DEADLINE, eventually, until};
use crate::{on_each_database, on_each_durable_database};
use rustix::process::Signal;
use std::time::Duration;
use windlass::history::{self, HistoryFilter, TimeRange};
use windlass::{NewJob, Policy, Registry, Supervisor, Worker, testing};

on_each_durable_database!(
    a_kill_loses_a_heartbeat_at_most,
    a_stop_in_order_loses_nothing,
    a_crash_that_fails_a_job_is_counted_by_the_supervisor,
    a_process_that_had_to_end_has_not_died,
);

on_each_database!(
    a_supervisor_folds,
    several_supervisors_fold_once,
    counts_are_stored_before_the_process_leaves,
    a_worker_folds_where_no_supervisor_does,
    a_worker_clears_where_it_folds,
    a_worker_leaves_it_to_the_supervisor,
    the_program_shows_rates,
);

const SELDOM: Duration = Duration::from_secs(600);

fn work(scene: &Scene<'_>, name: &str, what: Do, policy: Policy) {
    let job = NewJob::new(&Work::new(name, what)).unwrap().policy(policy);
    job.enqueue(&mut scene.db.connection()).unwrap();
}

fn finished_rows(db: &TestDb) -> u64 {
    db.count("SELECT count(*) AS n FROM solid_queue_jobs WHERE finished_at IS NOT NULL")
        .unsigned_abs()
}

fn died(db: &TestDb) -> u64 {
    let all = HistoryFilter::all();
    // A death may come between both reads.
    eventually("the buckets are the total", || {
        let totals = history::totals(&mut db.connection()).unwrap();
        let buckets = history::series(&mut db.connection(), &all, TimeRange::Hour).unwrap();
        let in_buckets: u64 = buckets.iter().map(|one| one.processes_died).sum();
        (in_buckets == totals.processes_died).then_some(in_buckets)
    })
}

/// The worker ends jobs all the time, so that it dies between two heartbeats.
fn a_kill_loses_a_heartbeat_at_most(db: &TestDb) {
    let scene = Scene::new(db);
    let mut supervisor = scene.supervisor(1);
    let jobs = (0..3_000).map(|number| Work::new(&format!("n{number}"), Do::Nothing));
    let jobs: Vec<NewJob> = jobs.map(|job| NewJob::new(&job).unwrap()).collect();
    windlass::enqueue_all(&mut db.connection(), jobs).unwrap();
    until("some are counted", || sum(db).finished > 0);
    let pids = || {
        db.texts("SELECT CAST(pid AS text) AS t FROM solid_queue_processes WHERE kind = 'Worker'")
    };
    let pid: i32 = pids()[0].parse().unwrap();
    crate::support::process::signal(pid, Signal::KILL);
    until("the death is counted", || died(db) == 1);
    scene.drained();
    supervisor.signal(Signal::TERM);
    assert!(supervisor.exit().success());
    let (rows, found) = (finished_rows(db), sum(db));
    assert_eq!(rows, 3_000);
    assert!(found.finished <= rows, "{found:?}");
    // The lost jobs ended after the last contribution of the process that was killed.
    let lost = rows - found.finished;
    let after = "SELECT count(*) AS n FROM solid_queue_jobs j WHERE j.finished_at > \
         (SELECT max(d.created_at) FROM windlass_stats_deltas d \
          WHERE d.source = (SELECT min(source) FROM windlass_stats_deltas WHERE id = \
            (SELECT min(id) FROM windlass_stats_deltas)))";
    let most = db.count(after).unsigned_abs();
    assert!(lost <= most, "{lost} of {most}");
    assert_eq!(died(db), 1, "others ended in order");
}

fn a_stop_in_order_loses_nothing(db: &TestDb) {
    let scene = Scene::new(db);
    let mut supervisor = scene.supervisor(2);
    for number in 0..300 {
        let policy = Policy::new().max_attempts(1);
        let what = match number {
            _ if number % 10 == 0 => Do::Panic,
            0..160 => Do::Sleep(3),
            // So the stop comes before the last.
            _ => Do::Sleep(2_000),
        };
        work(&scene, &format!("n{number}"), what, policy);
    }
    until("some have ended", || scene.effects().len() > 150);
    supervisor.signal(Signal::TERM);
    assert!(supervisor.exit().success());
    let failed = db.rows("failed_executions").unsigned_abs();
    let expected = [finished_rows(db), failed, 0, 0, 0, 0];
    assert!(expected[0] + expected[1] < 300, "the stop came in between");
    assert_eq!(counts(&sum(db)), expected);
    assert_eq!(died(db), 0);
    history::fold(&mut db.connection()).unwrap();
    assert_eq!(counts(&sum(db)), expected);
    let day = sum_of(db, &HistoryFilter::all(), TimeRange::Day);
    assert_eq!(counts(&day), expected);
}

fn a_crash_that_fails_a_job_is_counted_by_the_supervisor(db: &TestDb) {
    let scene = Scene::new(db);
    let mut supervisor = scene.supervisor(1);
    work(&scene, "bad", Do::Abort, Policy::new().max_crashes(1));
    until("the job has failed", || db.rows("failed_executions") == 1);
    work(&scene, "good", Do::Nothing, Policy::new());
    scene.ended("good", 1);
    supervisor.signal(Signal::TERM);
    assert!(supervisor.exit().success());
    // The first crash, then the one that failed it.
    assert_eq!(counts(&sum(db)), [1, 1, 0, 0, 0, 1]);
    assert_eq!(died(db), 2);
}

/// Each stop with a job that takes too long would count as a death.
fn a_process_that_had_to_end_has_not_died(db: &TestDb) {
    let scene = Scene::with_deaths(db);
    let _supervisor = scene.supervisor(1);
    db.execute(
        "INSERT INTO solid_queue_processes (kind, name, pid, heartbeat_seq, draining, created_at, last_heartbeat_at) \
         VALUES ('Worker', 'worker-draining', 1, 3, true, '2026-11-20 10:00:00.000000', '2026-11-20 10:00:00.000000')",
    );
    scene.are_watched_for_a_threshold();
    until("the other is pruned as well", || {
        let draining =
            "SELECT count(*) AS n FROM solid_queue_processes WHERE name = 'worker-draining'";
        db.count(draining) == 0
    });
    assert_eq!(died(db), 1);
}

/// One contribution that is not folded.
fn contribute(db: &TestDb) {
    let work = NewJob::new(&counts::note()).unwrap();
    work.enqueue(&mut db.connection()).unwrap();
    let registry = counts::notes();
    let worker = Worker::new(&db.database, registry).until_idle();
    let mut worker = worker.start().unwrap();
    assert!(worker.join(DEADLINE).is_some());
}

fn unfolded(db: &TestDb) -> u64 {
    history::lag(&mut db.connection()).unwrap().unfolded
}

fn supervisor(db: &TestDb) -> windlass::Handle {
    Supervisor::new(&db.database).start().unwrap()
}

/// Has the newest fold be so long ago.
fn last_fold(db: &TestDb, ago: Duration) {
    testing::travel(&mut db.connection(), ago).unwrap();
}

fn a_supervisor_folds(db: &TestDb) {
    contribute(db);
    last_fold(db, Duration::from_secs(60));
    assert_eq!(unfolded(db), 1);
    let _supervisor = supervisor(db);
    until("it is folded", || unfolded(db) == 0);
    assert_eq!(counts(&sum(db)), [1, 0, 0, 0, 0, 0]);
    let all = HistoryFilter::all();
    let sampled = || {
        let buckets = history::series(&mut db.connection(), &all, TimeRange::Hour).unwrap();
        buckets.iter().any(|one| one.fleet.is_some())
    };
    assert!(sampled(), "the workers are sampled with it");
    assert!(history::lag(&mut db.connection()).unwrap().folded.is_some());
}

fn several_supervisors_fold_once(db: &TestDb) {
    contribute(db);
    last_fold(db, Duration::from_secs(60));
    let _supervisors: Vec<_> = (0..4).map(|_| supervisor(db)).collect();
    until("it is folded", || unfolded(db) == 0);
    assert_eq!(counts(&sum(db)), [1, 0, 0, 0, 0, 0]);
    let all = HistoryFilter::all();
    assert_eq!(sum_of(db, &all, TimeRange::Hour).finished, 1);
}

fn idle_worker(db: &TestDb, heartbeat: Duration) -> windlass::Handle {
    Worker::new(&db.database, Registry::new())
        .heartbeat_interval(heartbeat)
        .alive_threshold(SELDOM)
        .start()
        .unwrap()
}

fn a_worker_folds_where_no_supervisor_does(db: &TestDb) {
    contribute(db);
    last_fold(db, Duration::from_secs(181));
    let _worker = idle_worker(db, HEARTBEAT);
    until("it is folded", || unfolded(db) == 0);
    assert_eq!(counts(&sum(db)), [1, 0, 0, 0, 0, 0]);
}

fn a_worker_clears_where_it_folds(db: &TestDb) {
    contribute(db);
    history::fold(&mut db.connection()).unwrap();
    let old = db.execute(
        "INSERT INTO windlass_stats (series_id, resolution, starts_at, data) \
         SELECT series_id, resolution, 0, data FROM windlass_stats WHERE resolution > 0",
    );
    assert!(old > 0);
    last_fold(db, Duration::from_secs(181));
    let _worker = idle_worker(db, HEARTBEAT);
    let left = "SELECT count(*) AS n FROM windlass_stats WHERE resolution > 0 AND starts_at = 0";
    until("the old buckets are cleared", || db.count(left) == 0);
    let buckets = "SELECT count(*) AS n FROM windlass_stats WHERE resolution > 0";
    assert!(db.count(buckets) > 0);
    assert_eq!(counts(&sum(db)), [1, 0, 0, 0, 0, 0]);
}

fn a_worker_leaves_it_to_the_supervisor(db: &TestDb) {
    history::fold(&mut db.connection()).unwrap();
    contribute(db);
    last_fold(db, Duration::from_secs(120));
    let worker = idle_worker(db, HEARTBEAT);
    let beats =
        || db.count("SELECT coalesce(max(heartbeat_seq), 0) AS n FROM solid_queue_processes");
    until("it has sent some heartbeats", || beats() > 3);
    drop(worker);
    assert_eq!(unfolded(db), 1);
}

/// Notes in which order rows of processes and of contributions are written.
fn note_order(db: &TestDb) {
    db.execute("CREATE TABLE noted (what varchar NOT NULL)");
    let both = [
        ("INSERT", "windlass_stats_deltas"),
        ("DELETE", "solid_queue_processes"),
    ];
    for (event, table) in both {
        let note = format!("INSERT INTO noted VALUES ('{event}')");
        if db.is_postgres() {
            db.execute(&format!(
                "CREATE FUNCTION note_{table}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {note}; RETURN NULL; END $$"
            ));
            db.execute(&format!(
                "CREATE TRIGGER note AFTER {event} ON {table} FOR EACH ROW EXECUTE FUNCTION note_{table}()"
            ));
        } else {
            db.execute(&format!(
                "CREATE TRIGGER note_{table} AFTER {event} ON {table} BEGIN {note}; END"
            ));
        }
    }
}

/// If the process is killed in between, its death is counted.
fn counts_are_stored_before_the_process_leaves(db: &TestDb) {
    note_order(db);
    contribute(db);
    let noted = db.texts("SELECT what AS t FROM noted");
    let deleted = noted.iter().position(|what| what == "DELETE").unwrap();
    let stored = noted.iter().position(|what| what == "INSERT").unwrap();
    assert!(stored < deleted, "{noted:?}");
    assert_eq!(counts(&sum(db)), [1, 0, 0, 0, 0, 0]);
}

fn the_program_shows_rates(db: &TestDb) {
    contribute(db);
    let status = windlass(&db.url, &["status", "--json"]).json();
    let rate = &status["rates"][0];
    assert_eq!(rate["queue"], "default", "{status}");
    let finished = rate["finished_per_minute"].as_f64().unwrap();
    assert!((0.1..=0.21).contains(&finished), "{status}");
    assert_eq!(rate["failed_per_minute"], 0.0);
    assert!(rate["wait_p99_seconds"].is_number(), "{status}");
    let said = windlass(&db.url, &["status"]);
    assert!(said.is_done(), "{said:?}");
    let mut line = said
        .out
        .lines()
        .skip_while(|line| !line.starts_with("LAST 5 MIN"));
    let line = line.nth(1).unwrap();
    assert!(line.starts_with("default"), "{}", said.out);
}
