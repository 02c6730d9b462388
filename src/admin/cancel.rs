//! Cancelling one job.

use crate::admin::changed::Changed;
use crate::db::model::audit::{Actor, AuditAction};
use crate::db::transition::operate;
use crate::db::transition::operators::{AuditEffect, AuditTrail};
use crate::db::{AsConn, Conn, own};
use crate::error::{Doing, Result};
use crate::job::id::JobId;

/// The result of [`cancel`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Cancelled {
    /// The job had not started, and is now cancelled.
    Ended,
    /// A process holds the job and learns of the request with its next heartbeat.
    ///
    /// The job is cancelled as soon as it calls [`check`](crate::Context::check), or fails, or its
    /// process dies. If it succeeds before, it has succeeded.
    Asked,
    /// A Ruby process runs the job and cannot be asked to cancel it: nothing was changed.
    InRuby,
    /// The job had ended before, or does not exist.
    NotThere,
}

/// Cancels a job.
///
/// ```
/// # use diesel::prelude::*;
/// # use windlass::{Cancelled, NewJob};
/// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
/// # windlass::migrate(&mut conn).unwrap();
/// let job = NewJob::of_class("import", "{}").enqueue(&mut conn)?.id;
/// assert_eq!(windlass::cancel(&mut conn, job)?, Cancelled::Ended);
/// assert_eq!(windlass::cancel(&mut conn, job)?, Cancelled::NotThere);
/// # Ok::<(), windlass::Error>(())
/// ```
///
/// # Errors
/// If the database does not answer or has no tables.
pub fn cancel<C: AsConn + ?Sized>(conn: &mut C, job: JobId) -> Result<Cancelled> {
    Actor::default().cancel(conn, job)
}

impl Actor {
    /// Does what [`cancel`] does.
    ///
    /// # Errors
    /// As for [`cancel`].
    pub fn cancel<C: AsConn + ?Sized>(&self, conn: &mut C, job: JobId) -> Result<Cancelled> {
        let mut trail = AuditTrail::new(self, AuditAction::CancelJobs).target(job.to_string());
        let done = cancel_all(&mut own(conn), &mut trail, &[job.0])?;
        Ok(if done.changed > 0 {
            Cancelled::Ended
        } else if done.running > 0 {
            Cancelled::Asked
        } else if done.in_ruby > 0 {
            Cancelled::InRuby
        } else {
            Cancelled::NotThere
        })
    }
}

/// A job may move during the search, from a table not yet searched to one already searched. Then it
/// is searched for again, in a new transaction so that locks are taken in order.
pub(crate) fn cancel_all(
    conn: &mut Conn<'_>,
    trail: &mut AuditTrail<'_>,
    jobs: &[i64],
) -> Result<Changed> {
    let mut all = Changed::default();
    let mut open = jobs.to_vec();
    // A search that waits for a current move continues just in time for the next one, so a job that
    // moves repeatedly can be missed many times.
    for _ in 0..100 {
        let done = trail.record(
            conn,
            |conn| operate::cancel(conn, &open),
            |done| AuditEffect::of_jobs((done.ended.len() + done.asked.len()) as u64),
        );
        let done = done.doing("cancel jobs")?;
        all.changed += done.ended.len() as u64;
        all.running += done.asked.len() as u64;
        all.in_ruby += done.in_ruby.len() as u64;
        let settled = [done.ended, done.asked, done.in_ruby].concat();
        open.retain(|job| !settled.contains(job));
        if !open.is_empty() {
            open = operate::open(conn, &open).doing("cancel jobs")?;
        }
        if open.is_empty() {
            break;
        }
    }
    all.passed_over = (jobs.len() as u64).saturating_sub(all.changed + all.left());
    Ok(all)
}
