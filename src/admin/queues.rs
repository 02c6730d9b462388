//! Changes to queues by operators and by other programs.

use crate::admin::audited_changes::unbroken;
use crate::admin::change::Change;
use crate::admin::jobs::{Changed, Jobs};
use crate::db::model::audit::{Actor, AuditAction};
use crate::db::model::decision::JobState;
use crate::db::query::status::{self, ProcessStatus, QueueStatus};
use crate::db::schema::beside_rails::RailsOption;
use crate::db::schema::compare::Migrated;
use crate::db::schema::migrate::migrate;
use crate::db::table::{pauses, run_time};
use crate::db::transition::audit::AuditTrail;
use crate::db::transition::pause;
use crate::db::{AsConn, own};
use crate::error::{ErrorContext, Result};
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
/// assert!(windlass::queues::pause(&mut conn, "mail", "ada", "the provider is down")?);
/// let mail = &windlass::queues::list(&mut conn)?[0];
/// assert_eq!(mail.paused_by.as_deref(), Some("ada"));
/// assert!(windlass::queues::resume(&mut conn, "mail")?);
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
/// ```
/// # use diesel::prelude::*;
/// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
/// # windlass::migrate(&mut conn).unwrap();
/// use windlass::queues;
///
/// queues::pause(&mut conn, "mail", "ada", "the provider is down")?;
/// assert!(queues::resume(&mut conn, "mail")?);
/// # Ok::<(), windlass::Error>(())
/// ```
///
/// # Errors
/// If the database does not answer or has no tables.
pub fn resume_queue<C: AsConn + ?Sized>(conn: &mut C, queue: &str) -> Result<bool> {
    Actor::default().resume_queue(conn, queue)
}

impl Actor {
    /// Does what [`queues::pause`](crate::queues::pause) does.
    ///
    /// # Errors
    /// As for [`queues::pause`](crate::queues::pause).
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
            .record_if(&mut own(conn), |conn| pause::pause(conn, queue, by, reason));
        paused.during("pause the queue")
    }

    /// Does what [`queues::resume`](crate::queues::resume) does.
    ///
    /// # Errors
    /// As for [`queues::resume`](crate::queues::resume).
    pub fn resume_queue<C: AsConn + ?Sized>(&self, conn: &mut C, queue: &str) -> Result<bool> {
        let resumed = AuditTrail::new(self, AuditAction::ResumeQueue)
            .target(queue)
            .record_if(&mut own(conn), |conn| pause::resume(conn, queue));
        resumed.during("resume the queue")
    }

    /// Does what [`queues::clear`](crate::queues::clear) does.
    ///
    /// # Errors
    /// As for [`queues::clear`](crate::queues::clear).
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
    #[doc(hidden)]
    pub fn clear<C: AsConn + ?Sized>(
        &self,
        conn: &mut C,
        queue: &str,
        progress: impl FnMut(&Changed),
    ) -> Result<Changed> {
        let trail = self.trail(AuditAction::ClearQueue).target(queue);
        let (action, progress) = ("clear the queue", unbroken(progress));
        self.each_chunk(
            &mut own(conn),
            trail,
            action,
            progress,
            |conn, (state, jobs)| Change::Discard.apply(conn, state, jobs),
        )
    }
}

/// Returns the number of ready jobs in a queue.
///
/// These are the jobs that a worker could take now, or could if the queue were not paused.
/// Scheduled, blocked and running jobs are not included. The jobs are counted one by one, so the
/// time grows with their number.
///
/// ```
/// # use diesel::prelude::*;
/// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
/// # windlass::migrate(&mut conn).unwrap();
/// use windlass::{NewJob, queues};
///
/// NewJob::of_class("send", "{}").queue("mail").enqueue(&mut conn)?;
/// assert_eq!(queues::size(&mut conn, "mail")?, 1);
/// # Ok::<(), windlass::Error>(())
/// ```
///
/// # Errors
/// If the database does not answer or has no tables.
pub fn queue_size<C: AsConn + ?Sized>(conn: &mut C, queue: &str) -> Result<u64> {
    pauses::size(&mut own(conn), queue).during("count the jobs of the queue")
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
/// assert_eq!(windlass::queues::latency(&mut conn, "mail")?, None);
/// NewJob::of_class("send", "{}").queue("mail").enqueue(&mut conn)?;
/// assert!(windlass::queues::latency(&mut conn, "mail")?.is_some());
/// assert_eq!(windlass::queues::size(&mut conn, "mail")?, 1);
/// # Ok::<(), windlass::Error>(())
/// ```
///
/// # Errors
/// If the database does not answer or has no tables.
pub fn queue_latency<C: AsConn + ?Sized>(conn: &mut C, queue: &str) -> Result<Option<Duration>> {
    pauses::latency(&mut own(conn), queue).during("read the oldest job of the queue")
}

/// Deletes the ready jobs of a queue in chunks of 500, and returns their number.
///
/// To delete jobs in other states, use [`Jobs`].
///
/// ```
/// # use diesel::prelude::*;
/// # use windlass::NewJob;
/// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
/// # windlass::migrate(&mut conn).unwrap();
/// NewJob::of_class("send", "{}").queue("mail").enqueue(&mut conn)?;
/// assert_eq!(windlass::queues::clear(&mut conn, "mail")?, 1);
/// # Ok::<(), windlass::Error>(())
/// ```
///
/// # Errors
/// If the database does not answer or has no tables; completed chunks stay deleted.
pub fn clear_queue<C: AsConn + ?Sized>(conn: &mut C, queue: &str) -> Result<u64> {
    Actor::default().clear_queue(conn, queue)
}

// --- Reads the state of queues and processes ---

/// Returns the counts of every queue that has executions or is paused, by name.
///
/// ```
/// # use diesel::prelude::*;
/// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
/// # windlass::migrate(&mut conn).unwrap();
/// for queue in windlass::queues::list(&mut conn)? {
///     println!("{}: {} ready", queue.queue_name, queue.ready);
/// }
/// # Ok::<(), windlass::Error>(())
/// ```
///
/// # Errors
/// If the database does not answer or has no tables.
pub fn queues<C: AsConn + ?Sized>(conn: &mut C) -> Result<Vec<QueueStatus>> {
    status::queues(&mut own(conn)).during("count the executions")
}

/// Returns every registered process with the jobs it holds.
///
/// ```
/// # use diesel::prelude::*;
/// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
/// # windlass::migrate(&mut conn).unwrap();
/// for process in windlass::processes::list(&mut conn)? {
///     println!("{} {}: {} s since its heartbeat", process.kind, process.name, process.heartbeat_seconds);
/// }
/// # Ok::<(), windlass::Error>(())
/// ```
///
/// # Errors
/// If the database does not answer or has no tables.
pub fn processes<C: AsConn + ?Sized>(conn: &mut C) -> Result<Vec<ProcessStatus>> {
    status::processes(&mut own(conn)).during("list the processes")
}

// --- Options for a database that a Rails app shares ---

/// Turns an option on or off, and returns what was done. Setting it to what it is does nothing.
///
/// It needs the rights that [`migrate`](crate::migrate) needs, and completes the tables as that does. In `windlass`, it is
/// `migrate --wake-from-ruby on`, and `migrate --active-job-envelopes on`.
///
/// ```
/// # use diesel::prelude::*;
/// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
/// # windlass::migrate(&mut conn).unwrap();
/// use windlass::schema::{self, RailsOption};
///
/// schema::set_rails_option(&mut conn, RailsOption::ActiveJobEnvelopes, true)?;
/// # Ok::<(), windlass::Error>(())
/// ```
///
/// # Errors
/// As for [`migrate`](crate::migrate).
pub fn set_rails_option<C: AsConn + ?Sized>(
    conn: &mut C,
    option: RailsOption,
    on: bool,
) -> Result<Migrated> {
    // The settings may have no table yet.
    let mut migrated = migrate(conn)?;
    run_time::set(&mut conn.as_conn(), option.setting(), on).during("change the settings")?;
    let more = migrate(conn)?;
    migrated.completed.extend(more.completed);
    Ok(migrated)
}
