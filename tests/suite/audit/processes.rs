//! Operations in real processes, which are killed.

use super::operations::count_changes;
use super::{actions, enqueue};
use crate::on_each_durable_database;
use crate::support::TestDb;
use crate::support::wait::until;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use windlass::Database;
use windlass::jobs::{Change, JobState, Jobs};
use windlass::operations::OperationState;

on_each_durable_database!(killed_runners_change_no_job_twice);

const ROLE: &str = "WINDLASS_TEST_RUNNER";

/// The entry of the other processes: a test like any other, that does nothing unless the environment
/// names a database.
#[test]
fn role() {
    if let Ok(url) = std::env::var(ROLE) {
        let mut connection = Database::open(&url).unwrap().connect().unwrap();
        loop {
            // A database that is locked is tried again.
            let _ = windlass::operations::run(&mut connection, Duration::from_secs(60));
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Killed when dropped.
struct Runner(Child);

impl Runner {
    fn start(db: &TestDb) -> Self {
        let program = Command::new(std::env::current_exe().unwrap())
            .args(["audit::processes::role", "--exact", "--nocapture"])
            .env(ROLE, &db.url)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn();
        Runner(program.unwrap())
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// One of them is killed after each few batches, in the middle of anything.
fn killed_runners_change_no_job_twice(db: &TestDb) {
    const JOBS: i64 = 20_000;
    enqueue(db, "a", JOBS as usize);
    count_changes(db);
    let jobs = Jobs::in_state(JobState::Ready);
    let operation = jobs
        .in_background(Change::Priority(7))
        .start(&mut db.connection())
        .unwrap();
    let state = || {
        windlass::operations::find(&mut db.connection(), operation.id)
            .unwrap()
            .unwrap()
    };
    let mut runners: Vec<Runner> = (0..3).map(|_| Runner::start(db)).collect();
    let mut kills = 0;
    while state().state != OperationState::Done {
        let before = state().changed;
        until("it goes on", || {
            let now = state();
            now.changed >= before + fastrand::i64(1..3_000) || now.state == OperationState::Done
        });
        let which = fastrand::usize(..runners.len());
        runners[which] = Runner::start(db);
        kills += 1;
    }
    assert!(kills >= 4, "{kills}");
    assert_eq!((state().changed, state().looked_at), (JOBS, JOBS));
    assert_eq!(db.count("SELECT count(*) AS n FROM touched"), JOBS);
    assert_eq!(
        db.count("SELECT count(DISTINCT job_id) AS n FROM touched"),
        JOBS
    );
    assert_eq!(
        actions(db),
        [("jobs.priority".to_owned(), None, Some(JOBS))]
    );
    let recorded = "SELECT CAST(sum(jobs) AS bigint) AS n FROM windlass_audit";
    assert_eq!(db.count(recorded), JOBS);
}
