//! Proof that a process had the time for what it must not do. After a fixed
//! pause on a slow machine, nothing has happened because nothing could have.

use super::TestDb;
use super::jobs::Log;
use super::process::{HEARTBEAT, THRESHOLD};
use super::wait::until;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use windlass::{Context, Handle, Job, JobResult, Registry, Worker};

/// A job that only a [`Control`] can perform.
#[derive(Debug, Serialize, Deserialize)]
struct Probe;

impl Job for Probe {
    const NAME: &'static str = "probe";
    type State = Log;
    type Output = ();

    fn perform(self, cx: &Context<'_, Log>) -> JobResult {
        cx.add("probe");
        Ok(())
    }
}

/// A worker beside the one under test, which hears of the same commits and
/// polls as often, but knows no other job than its own.
pub struct Control {
    log: Arc<Log>,
    worker: Handle,
}

impl Control {
    pub fn start(db: &TestDb) -> Self {
        let log = Arc::new(Log::default());
        let registry = Registry::new().register::<Probe>(Arc::clone(&log));
        let worker = Worker::new(&db.database, registry)
            .polling_interval(Duration::from_millis(50))
            .heartbeat_interval(HEARTBEAT)
            .alive_threshold(THRESHOLD * 100)
            .start()
            .unwrap();
        Control { log, worker }
    }

    /// Waits until this worker has heard of several jobs, one after the other,
    /// and has performed each, and until every process has sent some
    /// heartbeats, which must come often. A worker that claims would have taken what
    /// is ready by then.
    pub fn has_had_its_turn(&self, db: &TestDb) {
        let beats = Beats::now(db);
        for _ in 0..5 {
            let before = self.log.len();
            // On SQLite, others may hold the lock for longer than it is waited for.
            until("the control's job is enqueued", || {
                Probe.enqueue(&mut db.connection()).is_ok()
            });
            until("the control performs its job", || self.log.len() > before);
        }
        beats.have_passed(db, 3);
        until("the control's jobs have finished", || {
            db.count(
                "SELECT count(*) AS n FROM solid_queue_jobs \
                 WHERE class_name = 'probe' AND finished_at IS NULL",
            ) == 0
        });
    }

    /// Stops it, which takes no time, as it has nothing to do. What was told to
    /// stop before that has had at least as long.
    pub fn has_stopped(mut self) {
        self.worker.stop();
        let stopped = self.worker.join(super::wait::DEADLINE);
        assert!(stopped.expect("the control stops").is_drained());
    }
}

/// The heartbeats of all processes at some moment.
pub struct Beats(HashMap<i64, i64>);

impl Beats {
    pub fn now(db: &TestDb) -> Self {
        let rows = db.texts(
            "SELECT CAST(id AS text) || ' ' || CAST(heartbeat_seq AS text) AS t \
             FROM solid_queue_processes",
        );
        let number = |text: &str| text.parse::<i64>().unwrap();
        let pair = |row: &String| {
            let (id, beats) = row.split_once(' ').unwrap();
            (number(id), number(beats))
        };
        Beats(rows.iter().map(pair).collect())
    }

    /// Waits until every process that still is registered has sent so many
    /// more. All of them must have short intervals.
    pub fn have_passed(&self, db: &TestDb, count: i64) {
        until("the processes send heartbeats", || {
            let now = Beats::now(db).0;
            let mut both = self
                .0
                .iter()
                .filter_map(|(id, before)| Some((before, now.get(id)?)));
            both.all(|(before, now)| *now >= before + count)
        });
    }
}
