//! Small batches, with what follows each: what must hold of them at the end.

use crate::Result;
use crate::check::Violations;
use crate::jobs::{Kind, Log, Work};
use crate::place::Place;
use serde::{Deserialize, Serialize};
use windlass::{Batch, Context, DbConnection, Error, Job, JobResult, NewJob};

/// A job that adds another one to its batch, if it has one.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Adds(Work);

impl Job for Adds {
    const NAME: &'static str = "chaos_adds";
    type State = Log;
    type Output = ();

    fn perform(self, cx: &Context<'_, Log>) -> JobResult {
        cx.batch()?.add(&mut cx.connection()?, [&self.0])?;
        self.0.perform(cx)
    }
}

/// A job of a batch. A few fail, and of ten thousand `killers` end their process.
fn member(killers: u32) -> Result<NewJob, Error> {
    let kind = match fastrand::u32(..10_000) {
        n if n < killers => Kind::Aborts,
        0..300 => Kind::Fails,
        300..400 => Kind::Panics,
        _ => Kind::Short,
    };
    let work = short(kind);
    match fastrand::u32(..20) {
        0 => NewJob::new(&Adds(short(Kind::Short))),
        _ => NewJob::new(&work),
    }
}

/// One in fifty has a concurrency limit.
fn short(kind: Kind) -> Work {
    let key = match fastrand::u32(..50) {
        0 => fastrand::u64(..1_000) * 5,
        _ => 1,
    };
    Work {
        key,
        kind,
        millis: fastrand::u64(..2),
    }
}

/// Enqueues so many batches: all of them, or none.
pub fn enqueue(connection: &mut DbConnection, n: u32, killers: u32) -> Result<(), Error> {
    connection.transaction(|connection| {
        for _ in 0..n {
            let members = (0..fastrand::u32(0..4)).map(|_| member(killers));
            let follows = short(Kind::Short);
            let mut batch = Batch::new("chaos")
                .add(members)
                .on_success(&follows)
                .on_failure(&follows);
            if fastrand::u32(..4) == 0 {
                batch = batch.on_finish(&follows);
            }
            batch.enqueue(connection)?;
        }
        Ok(())
    })
}

pub const BATCHES: &str = "SELECT count(*) AS n FROM solid_queue_batches";

/// Counts the batches that are not over.
pub const OPEN: &str = "SELECT count(*) AS n FROM solid_queue_batches WHERE finished_at IS NULL";

/// The condition under which a job runs after its batch.
const FITS: &str = "(w.runs_on = 'finish' OR (w.runs_on = 'success' AND b.failed_jobs = 0) \
     OR (w.runs_on = 'failure' AND b.failed_jobs > 0))";

/// Jobs that follow batches, and ran once or more.
pub fn followers() -> String {
    format!(
        "SELECT count(*) AS n FROM windlass_edges w JOIN solid_queue_batches b ON b.id = w.parent_batch_id \
         JOIN solid_queue_jobs j ON j.id = w.child_job_id WHERE {FITS} AND (j.finished_at IS NOT NULL \
         OR EXISTS (SELECT 1 FROM solid_queue_failed_executions f WHERE f.job_id = j.id))"
    )
}

/// Checks what must hold when everything has stopped.
pub fn check(place: &Place, violations: &mut Violations) -> Result<()> {
    let edges = "SELECT count(*) AS n FROM windlass_edges w JOIN solid_queue_batches b ON b.id = w.parent_batch_id \
         LEFT JOIN solid_queue_jobs j ON j.id = w.child_job_id WHERE";
    let counts = [
        (OPEN.to_owned(), "batches are stuck"),
        (
            "SELECT count(*) AS n FROM solid_queue_batch_executions".to_owned(),
            "jobs are in a batch after the end",
        ),
        (
            "SELECT count(*) AS n FROM solid_queue_blocked_executions WHERE concurrency_key = '  '"
                .to_owned(),
            "jobs wait for a batch after the end",
        ),
        (
            format!(
                "{edges} {FITS} AND (j.id IS NULL OR (j.finished_at IS NULL AND NOT EXISTS \
                 (SELECT 1 FROM solid_queue_failed_executions f WHERE f.job_id = j.id)))"
            ),
            "jobs that follow were lost",
        ),
        (
            format!("{edges} NOT {FITS} AND j.id IS NOT NULL"),
            "jobs follow an outcome that their batch does not have",
        ),
        (
            "SELECT count(*) AS n FROM solid_queue_batches b WHERE failed_jobs <> (SELECT count(*) FROM solid_queue_jobs j \
             JOIN solid_queue_failed_executions f ON f.job_id = j.id WHERE j.batch_id = b.id)"
                .to_owned(),
            "batches have counted other failures than there are",
        ),
        (
            "SELECT count(*) AS n FROM solid_queue_batches b WHERE total_jobs <> completed_jobs + failed_jobs \
             OR total_jobs <> (SELECT count(*) FROM solid_queue_jobs j WHERE j.batch_id = b.id)"
                .to_owned(),
            "batches have counted other jobs than they had",
        ),
    ];
    for (query, what) in counts {
        let n = place.count(&query)?;
        if n > 0 {
            violations.add("I16", format!("{n} {what}"));
        }
    }
    Ok(())
}
