//! Jobs that wait at a step: for a time, or for an event.

mod checks;
mod events;
mod pauses;
pub mod processes;
mod tests_of_apps;

use crate::policies::{Bench, Doing};
use crate::support::TestDb;
use crate::support::jobs::Log;
use std::sync::Arc;
use std::time::Duration;
use windlass::{Context, JobResult};

const WEEK: Duration = Duration::from_secs(7 * 86_400);

/// Enqueues a job in the place of the one before it.
const REPLACE: &str = "INSERT INTO windlass_enqueue (class, arguments, unique_id, on_conflict) VALUES ('call', 'null', 'u', 'replace')";

/// A worker whose jobs do this. The log has a line for each run, and the kinds of their errors.
fn bench(
    db: &TestDb,
    body: impl Fn(&Context<'_, Doing>, &Log) -> JobResult + Send + Sync + 'static,
) -> Bench {
    Bench::with(db, |registry, log| {
        let log = Arc::clone(log);
        registry.register::<crate::policies::Call>(Doing::new(move |cx| {
            log.add(format!("run {}", cx.attempt()));
            let result = body(cx, &log);
            if let Err(error) = &result {
                log.add(error.kind());
            }
            result
        }))
    })
}

/// Lets every pause end, and every wait time out.
fn time_passes(db: &TestDb) {
    db.execute(
        "UPDATE solid_queue_scheduled_executions SET scheduled_at = '2000-01-01 00:00:00.000000'",
    );
    db.execute("UPDATE windlass_waits SET timeout_at = '2000-01-01 00:00:00.000000'");
}

fn waits(db: &TestDb) -> i64 {
    db.count("SELECT count(*) AS n FROM windlass_waits")
}

fn steps(db: &TestDb) -> i64 {
    db.count("SELECT count(*) AS n FROM windlass_steps")
}

/// The failed attempts and the crashes that are counted.
fn counted(db: &TestDb) -> i64 {
    db.count("SELECT CAST(coalesce(max(attempts + crash_count), 0) AS bigint) AS n FROM solid_queue_jobs")
}
