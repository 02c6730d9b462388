//! The ids that fence: no claim and no process gets one that was used before.

use crate::on_each_database;
use crate::support::TestDb;
use crate::support::jobs::Log;
use crate::support::wait::{DEADLINE, until};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use windlass::{Context, Job, JobResult, Registry, Worker};

/// Notes the id of its claim.
#[derive(Debug, Serialize, Deserialize)]
struct Claimed;

impl Job for Claimed {
    const NAME: &'static str = "claimed";
    type State = Log;
    type Output = ();

    fn perform(self, cx: &Context<'_, Log>) -> JobResult {
        cx.add(cx.claim_id().to_string());
        Ok(())
    }
}

/// A plain rowid of SQLite would be given out again as soon as the newest
/// claim has gone, as it has after every one of these jobs.
fn a_claim_id_is_never_used_twice(db: &TestDb) {
    let log = Arc::new(Log::default());
    let registry = Registry::new().register::<Claimed>(Arc::clone(&log));
    let _worker = Worker::new(&db.database, registry)
        .threads(1)
        .start()
        .unwrap();
    let mut conn = db.connect();
    for done in 1..=3 {
        Claimed.enqueue(&mut conn).unwrap();
        until("the job is done and its claim gone", || {
            log.len() == done && db.rows("claimed_executions") == 0
        });
    }
    let ids: Vec<i64> = log
        .lines()
        .iter()
        .map(|line| line.parse().unwrap())
        .collect();
    assert!(ids.is_sorted_by(|a, b| a < b), "{ids:?}");
}

fn a_process_id_is_never_used_twice(db: &TestDb) {
    let mut ids = Vec::new();
    for _ in 0..3 {
        let mut worker = Worker::new(&db.database, Registry::new()).start().unwrap();
        until("the worker is registered", || db.rows("processes") == 1);
        ids.push(db.count("SELECT id AS n FROM solid_queue_processes"));
        worker.stop();
        assert!(worker.join(DEADLINE).unwrap().is_drained());
        assert_eq!(db.rows("processes"), 0);
    }
    assert!(ids.is_sorted_by(|a, b| a < b), "{ids:?}");
}

on_each_database!(
    a_claim_id_is_never_used_twice,
    a_process_id_is_never_used_twice
);
