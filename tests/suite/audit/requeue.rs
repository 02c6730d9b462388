//! Waiting jobs get another queue.

use super::{enqueue, entries};
use crate::on_each_database;
use crate::support::TestDb;
use crate::support::wait::until;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::Mutex;
use std::time::Duration;
use windlass::jobs::{Change, Jobs};
use windlass::{Concurrency, Context, Dispatcher, Job, JobResult, NewJob, Registry, Worker};

on_each_database!(
    waiting_jobs_move_with_all_they_have,
    jobs_that_do_not_wait_stay,
    a_waiting_worker_notices_moved_jobs,
    moves_race_with_claims,
);

fn move_to(db: &TestDb, jobs: &Jobs, queue: &str) -> windlass::jobs::Changed {
    jobs.change(&mut db.connection(), Change::Queue(queue.into()))
        .unwrap()
}

fn waiting_jobs_move_with_all_they_have(db: &TestDb) {
    let conn = &mut db.connection();
    let job = || NewJob::of_class("a", "{}").priority(3);
    let limit = || Concurrency::new("k").limit(1);
    job().enqueue(conn).unwrap();
    job()
        .after(Duration::from_secs(3600))
        .enqueue(conn)
        .unwrap();
    for _ in 0..2 {
        job().concurrency(limit()).enqueue(conn).unwrap();
    }
    // One holds the slot, the other waits for it.
    let mut dispatcher = Dispatcher::new(&db.database).start().unwrap();
    until("one has the slot", || db.rows("ready_executions") == 2);
    dispatcher.stop();
    dispatcher.join(Duration::from_secs(60)).unwrap();
    let rows = |columns: &str, table: &str| {
        db.texts(&format!(
            "SELECT job_id || '|' || {columns} AS t FROM solid_queue_{table}_executions ORDER BY job_id"
        ))
    };
    let all = || {
        let ready = "priority || '|' || created_at || '|' || coalesce(concurrency_key, '') || '|' || class_name || '|' || coalesce(CAST(cautious AS text), '')";
        [
            rows(ready, "ready"),
            rows(
                "priority || '|' || created_at || '|' || scheduled_at",
                "scheduled",
            ),
            rows(
                "priority || '|' || concurrency_key || '|' || expires_at",
                "blocked",
            ),
        ]
    };
    let before = all();
    assert_eq!(before.clone().map(|rows| rows.len()), [2, 1, 1]);
    let newest = db.count("SELECT max(id) AS n FROM solid_queue_ready_executions");
    assert_eq!(move_to(db, &Jobs::waiting(), "slow").changed, 4);
    assert_eq!(all(), before);
    for table in [
        "jobs",
        "ready_executions",
        "scheduled_executions",
        "blocked_executions",
    ] {
        let other =
            format!("SELECT count(*) AS n FROM solid_queue_{table} WHERE queue_name <> 'slow'");
        assert_eq!(db.count(&other), 0, "{table}");
    }
    // A claim that has seen the old ones finds none of them.
    assert!(db.count("SELECT min(id) AS n FROM solid_queue_ready_executions") > newest);
    assert_eq!(windlass::limits::check_semaphores(conn).unwrap(), [""; 0]);
    let again = move_to(db, &Jobs::waiting(), "slow");
    assert_eq!((again.changed, again.passed_over), (0, 4));
    assert_eq!(entries(db).len(), 1);
}

fn jobs_that_do_not_wait_stay(db: &TestDb) {
    enqueue(db, "a", 3);
    super::fail(db, "id = 1");
    db.execute(
        "INSERT INTO solid_queue_claimed_executions (job_id, process_id, created_at) VALUES (2, 1, '2026-01-01')",
    );
    db.execute("DELETE FROM solid_queue_ready_executions WHERE job_id = 2");
    let moved = move_to(db, &Jobs::unfinished(), "slow");
    assert_eq!((moved.changed, moved.running, moved.passed_over), (1, 1, 1));
    let names = db.texts("SELECT queue_name AS t FROM solid_queue_jobs ORDER BY id");
    assert_eq!(names, ["default", "default", "slow"]);
    let refused = Jobs::waiting().change(&mut db.connection(), Change::Queue("a b".into()));
    assert!(refused.is_err());
}

/// The job and the queue of each run, in order.
type Runs = Arc<Mutex<Vec<(i64, String)>>>;

#[derive(serde::Serialize, serde::Deserialize)]
struct Trace;

impl Job for Trace {
    const NAME: &'static str = "trace";
    type State = (String, Runs);
    type Output = ();

    fn perform(self, cx: &Context<'_, (String, Runs)>) -> JobResult {
        let (queue, runs) = cx.state();
        assert_eq!(cx.queue_name(), queue);
        runs.lock().unwrap().push((cx.job_id().0, queue.clone()));
        Ok(())
    }
}

fn worker(db: &TestDb, queue: &str, runs: &Runs) -> windlass::Handle {
    let state = Arc::new((queue.to_owned(), Arc::clone(runs)));
    Worker::new(&db.database, Registry::new().register::<Trace>(state))
        .queues([queue])
        .unwrap()
        .threads(2)
        .start()
        .unwrap()
}

fn a_waiting_worker_notices_moved_jobs(db: &TestDb) {
    let runs = Runs::default();
    let mut worker = worker(db, "fast", &runs);
    for _ in 0..10 {
        let conn = &mut db.connection();
        NewJob::new(&Trace)
            .unwrap()
            .queue("slow")
            .enqueue(conn)
            .unwrap();
        assert_eq!(
            move_to(db, &Jobs::waiting().queue("slow"), "fast").changed,
            1
        );
    }
    until("all have run", || runs.lock().unwrap().len() == 10);
    worker.stop();
    worker.join(Duration::from_secs(60)).unwrap();
}

/// Each job runs once, on the queue that its row names.
fn moves_race_with_claims(db: &TestDb) {
    const JOBS: usize = 600;
    let runs = Runs::default();
    let mut workers = ["a", "b"].map(|queue| worker(db, queue, &runs));
    let mut dispatcher = Dispatcher::new(&db.database)
        .polling_interval(Duration::from_millis(5))
        .start()
        .unwrap();
    for number in 0..JOBS {
        let job = NewJob::new(&Trace).unwrap().queue("a");
        let job = match number % 3 {
            0 => job,
            1 => job.after(Duration::from_millis(fastrand::u64(1..50))),
            _ => job.concurrency(Concurrency::new("k").limit(1)),
        };
        job.enqueue(&mut db.connection()).unwrap();
        if number % 10 == 9 {
            let (from, to) = if fastrand::bool() {
                ("a", "b")
            } else {
                ("b", "a")
            };
            move_to(db, &Jobs::waiting().queue(from), to);
        }
    }
    until("all have run", || runs.lock().unwrap().len() >= JOBS);
    for handle in workers.iter_mut().chain([&mut dispatcher]) {
        handle.stop();
        handle.join(Duration::from_secs(60)).unwrap();
    }
    let runs = runs.lock().unwrap();
    let jobs: BTreeSet<i64> = runs.iter().map(|(job, _)| *job).collect();
    assert_eq!((runs.len(), jobs.len()), (JOBS, JOBS));
    let stored = db.texts("SELECT id || ' ' || queue_name AS t FROM solid_queue_jobs ORDER BY id");
    let mut ran: Vec<_> = runs
        .iter()
        .map(|(job, queue)| (*job, format!("{job} {queue}")))
        .collect();
    ran.sort_unstable();
    assert_eq!(
        stored,
        ran.into_iter().map(|(_, text)| text).collect::<Vec<_>>()
    );
}
