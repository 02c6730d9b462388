//! Waits of jobs in real processes, which are killed and stopped.

use super::{steps, waits};
use crate::on_each_database;
use crate::support::TestDb;
use crate::support::process::{Effects, Scene};
use crate::support::wait::until;
use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use windlass::events::emit;
use windlass::{Context, Job, JobResult, NewJob};

on_each_database!(
    a_killed_job_resumes_where_it_was,
    a_job_that_is_killed_in_its_wait_resumes,
    a_job_waits_while_its_worker_stops,
);

/// Pauses, charges, waits for an event, and waits at its gate before its end.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Order {
    pub gate: String,
}

impl Job for Order {
    const NAME: &'static str = "order";
    type State = Effects;
    type Output = ();

    fn perform(self, cx: &Context<'_, Effects>) -> JobResult {
        cx.pause_for("pause", Duration::from_millis(10))?;
        cx.memo("charge", || {
            cx.write("end", "charge", cx.claim_id());
            Ok(())
        })?;
        let paid = cx.wait_event::<i64>("paid", "paid/7", Duration::from_secs(86_400))?;
        assert_eq!(paid, Some(990));
        cx.write("start", "paid", cx.claim_id());
        until("the gate opens", || {
            std::path::Path::new(&self.gate).exists()
        });
        cx.pause_for("last", Duration::ZERO)?;
        cx.write("end", "order", cx.claim_id());
        Ok(())
    }
}

fn order(scene: &Scene<'_>) {
    let gate = scene.gate("go");
    let job = NewJob::new(&Order { gate }).unwrap();
    job.enqueue(&mut scene.db.connection()).unwrap();
}

fn a_killed_job_resumes_where_it_was(db: &TestDb) {
    let scene = Scene::new(db);
    let _supervisor = scene.supervisor(1);
    order(&scene);
    until("the job waits", || waits(db) == 1);
    emit(&mut db.connection(), "paid/7", &990).unwrap();
    let first = scene.started("paid", 1);
    crate::support::process::signal(first.pid, Signal::KILL);
    let second = scene.started("paid", 2);
    assert_ne!(first.pid, second.pid);
    scene.open("go");
    scene.drained();
    assert_eq!(scene.count("end", "charge"), 1);
    assert_eq!(scene.count("end", "order"), 1);
    assert_eq!((waits(db), steps(db)), (0, 0));
}

/// No process holds it meanwhile, so no process recovers it.
fn a_job_that_is_killed_in_its_wait_resumes(db: &TestDb) {
    let scene = Scene::new(db);
    scene.open("go");
    let mut supervisor = scene.supervisor(1);
    order(&scene);
    until("the job waits", || waits(db) == 1);
    supervisor.signal(Signal::KILL);
    supervisor.exit();
    emit(&mut db.connection(), "paid/7", &990).unwrap();
    let _next = scene.supervisor(1);
    scene.drained();
    assert_eq!(scene.count("end", "charge"), 1);
    assert_eq!(scene.count("end", "order"), 1);
    let crashes = "SELECT CAST(crash_count AS bigint) AS n FROM solid_queue_jobs";
    assert_eq!(db.count(crashes), 0);
}

fn a_job_waits_while_its_worker_stops(db: &TestDb) {
    let scene = Scene::new(db);
    let mut supervisor = scene.supervisor(1);
    order(&scene);
    until("the job waits", || waits(db) == 1);
    supervisor.signal(Signal::TERM);
    assert_eq!(supervisor.exit().code(), Some(0), "it waits for no job");
    assert_eq!(waits(db), 1);
    let _next = scene.supervisor(1);
    scene.open("go");
    emit(&mut db.connection(), "paid/7", &990).unwrap();
    scene.drained();
    assert_eq!(scene.count("end", "order"), 1);
}
