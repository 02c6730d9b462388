//! Schedulers in processes of their own, killed as they fire.

use super::{assert_each_second, stamp, ticks, until_ticked};
use crate::on_each_durable_database;
use crate::support::TestDb;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use windlass::{Database, Scheduler};

on_each_durable_database!(killed_schedulers_neither_lose_nor_double_a_tick);

crate::through_a_pooler_in_all!(killed_schedulers_neither_lose_nor_double_a_tick,);

const ROLE: &str = "WINDLASS_TEST_SCHEDULER";

/// The entry of the other processes: a test like any other, that does nothing
/// unless the environment tells it a database.
#[test]
fn role() {
    if let Ok(url) = std::env::var(ROLE) {
        let database = Database::open(&url).unwrap();
        let scheduler = Scheduler::new(&database)
            .polling_interval(Duration::from_millis(20))
            .grace(Duration::from_secs(60))
            .task(stamp("fast", "every 1s"));
        let _ = scheduler.run();
        std::process::exit(0);
    }
}

/// Killed when dropped.
struct Process(Child);

impl Process {
    fn start(db: &TestDb) -> Self {
        let program = Command::new(std::env::current_exe().unwrap())
            .args(["recurring::crash::role", "--exact", "--nocapture"])
            .env(ROLE, &db.url)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn();
        Process(program.unwrap())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// One is killed right after every tick, while the others may be in the
/// middle of anything, and another takes its place.
fn killed_schedulers_neither_lose_nor_double_a_tick(db: &TestDb) {
    let mut processes: Vec<Process> = (0..3).map(|_| Process::start(db)).collect();
    for count in 1..=8 {
        until_ticked(db, "fast", count);
        let which = fastrand::usize(..processes.len());
        processes[which] = Process::start(db);
    }
    // And all at once.
    drop(processes);
    let before = ticks(db, "fast").len();
    let _last = Process::start(db);
    until_ticked(db, "fast", before + 3);
    let ticks = ticks(db, "fast");
    assert_each_second(&ticks);
    assert!(db.rows("jobs") >= ticks.len() as i64);
    // In one look each, as the last one goes on.
    for table in ["recurring", "ready"] {
        let difference = format!(
            "SELECT (SELECT count(*) FROM solid_queue_jobs) \
             - (SELECT count(*) FROM solid_queue_{table}_executions) AS n"
        );
        assert_eq!(db.count(&difference), 0, "{table}");
    }
}
