//! Workers that end when no work is left.

use crate::on_each_database;
use crate::support::TestDb;
use crate::support::jobs::{Log, Note};
use crate::support::wait::{DEADLINE, until};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;
use windlass::{Context, Error, Job, JobResult, NewJob, Registry, Supervisor, Worker, queues};

on_each_database!(
    it_runs_what_it_can_and_ends,
    jobs_that_running_jobs_enqueue_count,
    an_empty_queue_is_the_end,
    a_supervisor_refuses_it,
);

/// Enqueues a note at its end, unless it was the last one.
#[derive(Debug, Serialize, Deserialize)]
struct Chain(u32);

impl Job for Chain {
    const NAME: &'static str = "chain";
    type State = Log;
    type Output = ();

    fn perform(self, cx: &Context<'_, Log>) -> JobResult {
        cx.add(self.0.to_string());
        if self.0 > 0 {
            Chain(self.0 - 1).enqueue(&mut cx.connection()?)?;
        }
        Ok(())
    }
}

/// Runs until it is idle, and returns what it has run.
fn run(db: &TestDb) -> Arc<Log> {
    let log = Arc::new(Log::default());
    let registry = Registry::new()
        .register::<Note>(Arc::clone(&log))
        .register::<Chain>(Arc::clone(&log));
    let worker = Worker::new(&db.database, registry).until_idle();
    let mut worker = worker
        .polling_interval(Duration::from_secs(600))
        .start()
        .unwrap();
    let stopped = worker.join(DEADLINE).unwrap();
    assert!(stopped.is_drained() && !stopped.is_broken(), "{stopped:?}");
    assert_eq!(
        (db.rows("processes"), db.rows("claimed_executions")),
        (0, 0)
    );
    log
}

fn note(text: &str) -> NewJob {
    NewJob::new(&Note::new(text)).unwrap()
}

fn it_runs_what_it_can_and_ends(db: &TestDb) {
    let conn = &mut db.connection();
    queues::pause(conn, "paused", "", "").unwrap();
    for _ in 0..20 {
        note("ready").enqueue(conn).unwrap();
    }
    note("paused").queue("paused").enqueue(conn).unwrap();
    NewJob::of_class("unknown", "null").enqueue(conn).unwrap();
    note("later")
        .after(Duration::from_secs(3600))
        .enqueue(conn)
        .unwrap();
    note("due")
        .after(Duration::from_millis(1))
        .enqueue(conn)
        .unwrap();
    let is_due = "SELECT count(*) AS n FROM solid_queue_scheduled_executions";
    until("it is scheduled", || db.count(is_due) == 2);
    db.execute(
        "UPDATE solid_queue_scheduled_executions SET scheduled_at = '2020-01-01 00:00:00.000000' \
         WHERE scheduled_at = (SELECT min(scheduled_at) FROM solid_queue_scheduled_executions)",
    );
    let log = run(db);
    assert_eq!(
        (log.count("ready"), log.count("due"), log.len()),
        (20, 1, 21)
    );
    assert_eq!((db.rows("ready_executions"), db.count(is_due)), (2, 1));
}

fn jobs_that_running_jobs_enqueue_count(db: &TestDb) {
    Chain(5).enqueue(&mut db.connection()).unwrap();
    assert_eq!(run(db).lines(), ["5", "4", "3", "2", "1", "0"]);
}

fn an_empty_queue_is_the_end(db: &TestDb) {
    assert_eq!(run(db).len(), 0);
}

fn a_supervisor_refuses_it(db: &TestDb) {
    let worker = Worker::new(&db.database, Registry::new()).until_idle();
    let refused = Supervisor::new(&db.database).worker(worker).start();
    assert!(matches!(refused, Err(Error::Settings(_))));
}
