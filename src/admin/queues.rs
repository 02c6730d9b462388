//! Changes to queues by operators and by other programs.

use crate::admin::bulk::change::Change;
use crate::admin::changed::Changed;
use crate::admin::jobs::Jobs;
use crate::db::model::audit::{Actor, AuditAction};
use crate::db::model::state::JobState;
use crate::db::table::pauses;
use crate::db::transition::operators::{AuditEffect, AuditTrail};
use crate::db::transition::pause;
use crate::db::{AsConn, own};
use crate::error::{Doing, Result};
use std::ops::ControlFlow;
use std::time::Duration;

/// Pauses a queue: workers take no more jobs from it from their next poll on. Running jobs
/// continue, and jobs can still be enqueued.
///
/// `by` and `reason` are shown with the queue and may be empty.
///
/// Returns `false` if the queue was already paused; its original `by`, `reason` and time are kept.
///
/// ```
/// # use diesel::prelude::*;
/// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
/// # windlass::migrate(&mut conn).unwrap();
/// assert!(windlass::pause_queue(&mut conn, "mail", "ada", "the provider is down")?);
/// let mail = &windlass::queues(&mut conn)?[0];
/// assert_eq!(mail.paused_by.as_deref(), Some("ada"));
/// assert!(windlass::resume_queue(&mut conn, "mail")?);
/// # Ok::<(), windlass::Error>(())
/// ```
///
/// # Errors
/// If the database does not answer or has no tables.
pub fn pause_queue<C: AsConn + ?Sized>(
    conn: &mut C,
    queue: &str,
    by: &str,
    reason: &str,
) -> Result<bool> {
    Actor::named(by)
        .reason(reason)
        .pause(conn, queue, !by.is_empty())
}

/// Resumes a paused queue. Returns `false` if it was not paused.
///
/// # Errors
/// If the database does not answer or has no tables.
pub fn resume_queue<C: AsConn + ?Sized>(conn: &mut C, queue: &str) -> Result<bool> {
    Actor::default().resume_queue(conn, queue)
}

impl Actor {
    /// Does what [`pause_queue`] does.
    ///
    /// # Errors
    /// As for [`pause_queue`].
    pub fn pause_queue<C: AsConn + ?Sized>(&self, conn: &mut C, queue: &str) -> Result<bool> {
        self.pause(conn, queue, true)
    }

    fn pause<C: AsConn + ?Sized>(&self, conn: &mut C, queue: &str, is_named: bool) -> Result<bool> {
        let (by, reason) = (
            Some(self.name()).filter(|_| is_named),
            self.reason.as_deref(),
        );
        let paused = AuditTrail::new(self, AuditAction::PauseQueue)
            .target(queue)
            .record(
                &mut own(conn),
                |conn| pause::pause(conn, queue, by, reason),
                |paused| AuditEffect::done_if(*paused),
            );
        paused.doing("pause the queue")
    }

    /// Does what [`resume_queue`] does.
    ///
    /// # Errors
    /// As for [`resume_queue`].
    pub fn resume_queue<C: AsConn + ?Sized>(&self, conn: &mut C, queue: &str) -> Result<bool> {
        let resumed = AuditTrail::new(self, AuditAction::ResumeQueue)
            .target(queue)
            .record(
                &mut own(conn),
                |conn| pause::resume(conn, queue),
                |resumed| AuditEffect::done_if(*resumed),
            );
        resumed.doing("resume the queue")
    }

    /// Does what [`clear_queue`] does.
    ///
    /// # Errors
    /// As for [`clear_queue`].
    pub fn clear_queue<C: AsConn + ?Sized>(&self, conn: &mut C, queue: &str) -> Result<u64> {
        Jobs::in_state(JobState::Ready)
            .queue(queue)
            .by_actor(self.clone())
            .clear(conn, queue, |_| {})
            .map(|done| done.changed)
    }
}

impl Jobs {
    /// Deletes the jobs of a queue, which this selection has.
    pub(crate) fn clear<C: AsConn + ?Sized>(
        &self,
        conn: &mut C,
        queue: &str,
        mut progress: impl FnMut(&Changed),
    ) -> Result<Changed> {
        let mut trail = self.trail(AuditAction::ClearQueue).target(queue);
        let progress = |done: &Changed| {
            progress(done);
            ControlFlow::Continue(())
        };
        self.each_batch(&mut own(conn), progress, |conn, state, jobs| {
            let done = trail.record(
                conn,
                |conn| Change::Discard.apply(conn, state, jobs),
                |done| Change::Discard.effect(done),
            );
            done.doing("clear the queue")
        })
    }
}

/// Returns the number of ready jobs in a queue.
///
/// These are the jobs that a worker could take now, or could if the queue were not paused.
/// Scheduled, blocked and running jobs are not included. The jobs are counted one by one, so the
/// time grows with their number.
///
/// # Errors
/// If the database does not answer or has no tables.
pub fn queue_size<C: AsConn + ?Sized>(conn: &mut C, queue: &str) -> Result<u64> {
    pauses::size(&mut own(conn), queue).doing("count the jobs of the queue")
}

/// Returns how long the oldest ready job of a queue has been ready, by the database's clock.
/// Returns `None` if no job is ready.
///
/// This is the number to monitor: it shows how late the queue is, whatever its size.
///
/// ```
/// # use diesel::prelude::*;
/// # use windlass::NewJob;
/// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
/// # windlass::migrate(&mut conn).unwrap();
/// assert_eq!(windlass::queue_latency(&mut conn, "mail")?, None);
/// NewJob::of_class("send", "{}").queue("mail").enqueue(&mut conn)?;
/// assert!(windlass::queue_latency(&mut conn, "mail")?.is_some());
/// assert_eq!(windlass::queue_size(&mut conn, "mail")?, 1);
/// # Ok::<(), windlass::Error>(())
/// ```
///
/// # Errors
/// If the database does not answer or has no tables.
pub fn queue_latency<C: AsConn + ?Sized>(conn: &mut C, queue: &str) -> Result<Option<Duration>> {
    pauses::latency(&mut own(conn), queue).doing("read the oldest job of the queue")
}

/// Deletes the ready jobs of a queue in batches of 500, and returns their number.
///
/// To delete jobs in other states, use [`Jobs`].
///
/// ```
/// # use diesel::prelude::*;
/// # use windlass::NewJob;
/// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
/// # windlass::migrate(&mut conn).unwrap();
/// NewJob::of_class("send", "{}").queue("mail").enqueue(&mut conn)?;
/// assert_eq!(windlass::clear_queue(&mut conn, "mail")?, 1);
/// # Ok::<(), windlass::Error>(())
/// ```
///
/// # Errors
/// If the database does not answer or has no tables; completed batches stay deleted.
pub fn clear_queue<C: AsConn + ?Sized>(conn: &mut C, queue: &str) -> Result<u64> {
    Actor::default().clear_queue(conn, queue)
}
