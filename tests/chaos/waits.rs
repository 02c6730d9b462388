//! Jobs that wait for events, and who sends them.

use crate::Result;
use crate::check::Violations;
use crate::jobs::{Log, line};
use crate::place::{Place, execute, texts};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use windlass::{Backoff, Context, DbConnection, Error, Job, JobResult, NewJob, Policy};

/// A job that waits for an event, and before that does a step once.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Waiter {
    event: u64,
}

/// Of so many events, the last one never comes.
const OF: u64 = 8;

impl Waiter {
    fn never(&self) -> bool {
        self.event % OF == OF - 1
    }

    fn name(&self) -> String {
        let kind = if self.never() { "never" } else { "chaos" };
        format!("{kind}/{}", self.event)
    }
}

impl Job for Waiter {
    const NAME: &'static str = "chaos_waiter";
    type State = Log;
    type Output = ();

    fn policy() -> Policy {
        Policy::new()
            .max_crashes(100)
            .max_attempts(100)
            .backoff(Backoff::Fixed(Duration::from_millis(100)))
    }

    fn perform(self, cx: &Context<'_, Log>) -> JobResult {
        let job = cx.job_id();
        cx.step(&mut cx.connection()?, "once", |conn| {
            let step = format!("INSERT INTO chaos_steps (job_id) VALUES ({job})");
            Ok(execute(conn, &step).map(drop)?)
        })?;
        if self.event.is_multiple_of(3) {
            cx.pause_for("a pause", Duration::from_millis(self.event % 300))?;
        }
        let patience = Duration::from_secs(if self.never() { 1 } else { 36_000 });
        let came = cx.wait_event::<u64>("event", &self.name(), patience)?;
        if came != Some(self.event).filter(|_| !self.never()) {
            let claim = cx.claim_id();
            cx.line(&format!("odd {job} {claim} {came:?} for {}", self.name()));
        }
        cx.line(&line("end", cx));
        Ok(())
    }
}

/// One in three finds its event there; some wait for the same one.
pub fn enqueue(conn: &mut DbConnection, n: u32, _killers: u32) -> Result<(), Error> {
    conn.transaction(|conn| {
        let mut event = 0;
        for _ in 0..n {
            if event == 0 || fastrand::u32(..3) > 0 {
                event = fastrand::u64(1..1 << 40);
            }
            let waiter = Waiter { event };
            let comes_first = !waiter.never() && fastrand::u32(..3) == 0;
            if comes_first && fastrand::bool() {
                windlass::events::emit(conn, &waiter.name(), &event)?;
            }
            NewJob::new(&waiter)?.enqueue(conn)?;
            if comes_first {
                windlass::events::emit(conn, &waiter.name(), &event)?;
            }
        }
        Ok(())
    })
}

/// Emits events for which a job waits, some of them twice.
pub fn emit(conn: &mut DbConnection, most: u32) -> Result<()> {
    let names = texts(
        conn,
        &format!(
            "SELECT DISTINCT w.event_name AS t FROM windlass_waits w WHERE w.event_name LIKE 'chaos/%' AND NOT EXISTS \
             (SELECT 1 FROM windlass_events e WHERE e.name = w.event_name) LIMIT {most}"
        ),
    )?;
    for name in names {
        let event: u64 = name.trim_start_matches("chaos/").parse()?;
        windlass::events::emit(conn, &name, &event)?;
        if fastrand::u32(..4) == 0 {
            windlass::events::emit(conn, &name, &event)?;
        }
    }
    Ok(())
}

/// Checks what must hold when everything has stopped.
pub fn check(place: &Place, drained: bool, violations: &mut Violations) -> Result<()> {
    let counts = [
        (
            "SELECT count(*) AS n FROM solid_queue_jobs WHERE class_name = 'chaos_waiter' AND finished_at IS NULL",
            "jobs that waited have not finished",
        ),
        (
            "SELECT count(*) AS n FROM windlass_waits w WHERE EXISTS (SELECT 1 FROM windlass_events e WHERE e.name = w.event_name)",
            "jobs wait for events that are there",
        ),
        (
            "SELECT count(*) AS n FROM solid_queue_jobs j WHERE class_name = 'chaos_waiter' AND finished_at IS NOT NULL \
             AND (SELECT count(*) FROM chaos_steps s WHERE s.job_id = j.id) <> 1",
            "jobs have not done their step once",
        ),
        (
            "SELECT count(*) AS n FROM windlass_steps s WHERE NOT EXISTS (SELECT 1 FROM solid_queue_failed_executions f \
             WHERE f.job_id = s.job_id)",
            "steps are left of jobs that have ended",
        ),
    ];
    for (query, what) in counts {
        let n = place.count(query)?;
        if n > 0 && (drained || what.starts_with("jobs wait ")) {
            violations.add("I19", format!("{n} {what}"));
        }
    }
    Ok(())
}
