//! Recurring tasks: when they are due, who fires them, and what becomes of
//! ticks that nobody fired or that come too early.

mod change;
mod cli;
mod crash;
mod declared;
mod file;
mod firing;
mod policies;
mod start;
mod tasks;
mod timing;
mod window;
mod zones;

use crate::support::TestDb;
use crate::support::jobs::Log;
use crate::support::wait::until;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use windlass::{Context, Job, JobResult, RecurringTask, Scheduler, recurring};

/// Notes the tick for which it runs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Stamp {
    pub text: String,
}

impl Job for Stamp {
    const NAME: &'static str = "stamp";
    const QUEUE: &'static str = "clockwork";
    const PRIORITY: i32 = 7;
    type State = Log;
    type Output = ();

    fn perform(self, cx: &Context<'_, Log>) -> JobResult {
        let tick = cx
            .tick()
            .map_or("none".to_owned(), |tick| tick.to_rfc3339());
        let task = cx.recurring_task().unwrap_or("none");
        cx.add(format!("{} {task} {tick}", self.text));
        Ok(())
    }
}

fn stamp(key: &str, schedule: &str) -> RecurringTask {
    let job = Stamp {
        text: "stamped".to_owned(),
    };
    RecurringTask::new(key, schedule, &job).unwrap()
}

/// Schedules a task at run time.
fn schedule(db: &TestDb, task: &RecurringTask) {
    recurring::schedule(&mut db.connection(), task).unwrap();
}

/// One that looks often, and to which nothing is late on a busy machine.
fn scheduler(db: &TestDb) -> Scheduler {
    Scheduler::new(&db.database)
        .polling_interval(Duration::from_millis(20))
        .grace(Duration::from_secs(60))
}

/// The tasks' clock set back: from `seconds` ago on, nobody has fired a tick.
fn rewind(db: &TestDb, key: &str, seconds: u64) {
    let time = ago(db, seconds);
    let changed = db.execute(&format!(
        "UPDATE solid_queue_recurring_tasks SET next_run_at = {time}, row_version = row_version + 1 WHERE key = '{key}'"
    ));
    assert_eq!(changed, 1);
}

/// SQL for a time by the database's clock.
fn ago(db: &TestDb, seconds: u64) -> String {
    if db.is_postgres() {
        format!("(statement_timestamp() AT TIME ZONE 'UTC' - interval '{seconds} seconds')")
    } else {
        format!("strftime('%Y-%m-%d %H:%M:%f000', 'now', '-{seconds} seconds')")
    }
}

/// The ticks of a task that had a job, as seconds since 1970, in order.
fn ticks(db: &TestDb, key: &str) -> Vec<i64> {
    let mut history = recurring::history(&mut db.connection(), key, 10_000).unwrap();
    history.reverse();
    history.iter().map(|(tick, _)| tick.timestamp()).collect()
}

/// Waits until so many ticks of a task had a job.
fn until_ticked(db: &TestDb, key: &str, count: usize) {
    until(&format!("{key} had {count} ticks"), || {
        ticks(db, key).len() >= count
    });
}

/// That no tick of a task of one a second is missing.
#[track_caller]
fn assert_each_second(ticks: &[i64]) {
    let gaps = ticks.windows(2).filter(|pair| pair[1] != pair[0] + 1);
    assert_eq!(gaps.count(), 0, "{ticks:?}");
}
