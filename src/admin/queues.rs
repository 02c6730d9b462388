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
use crate::db::table::run_time::limits::{self, RunTimeLimit};
use crate::db::table::{pauses, run_time};
use crate::db::transition::audit::{AuditEffect, AuditTrail};
use crate::db::transition::pause;
use crate::db::{AsConn, own};
use crate::error::{Error, ErrorContext, Result};
use serde_json::json;
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

// --- Limits of concurrency keys, set by operators while the programs run ---

/// Sets how many jobs of a concurrency key may hold a slot at once, instead of the limit that its
/// jobs have.
///
/// `key` is a key with its group, `import/7`, or all keys of a group, `import/*`; a limit of the
/// key itself counts before that of its group. A group ends at the first `/`.
///
/// It takes effect with the next promotion of the key, without a restart of any program. If it is
/// higher, blocked jobs are promoted within a turn of a dispatcher. If it is lower, running jobs
/// end, and the next ones wait. With 0 slots, no job of the key starts: those that wait stay
/// blocked, and those that are [discarded](crate::limits::LimitConflict::Discard) without a slot are
/// discarded. An [ordered](crate::Concurrency::ordered) key has one slot at most, whatever is set.
///
/// `by` and `reason` are shown with the limit and may be empty.
///
/// ```
/// # use diesel::prelude::*;
/// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
/// # windlass::migrate(&mut conn).unwrap();
/// windlass::limits::set(&mut conn, "import/*", 1, "ada", "the disk is slow")?;
/// let limit = &windlass::limits::list(&mut conn)?[0];
/// assert_eq!((&*limit.key, limit.slots), ("import/*", 1));
/// assert!(windlass::limits::clear(&mut conn, "import/*")?);
/// # Ok::<(), windlass::Error>(())
/// ```
///
/// # Errors
/// If the key has no group, or more than 255 bytes, or if the database does not answer or has no
/// tables.
pub fn set_limit<C: AsConn + ?Sized>(
    conn: &mut C,
    key: &str,
    slots: u32,
    by: &str,
    reason: &str,
) -> Result<()> {
    Actor::named(by)
        .reason(reason)
        .limit(conn, key, slots, !by.is_empty())
}

/// Clears a limit that was set at run time, so that the limits of the jobs count again. Returns
/// `false` if none was set.
///
/// ```
/// # use diesel::prelude::*;
/// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
/// # windlass::migrate(&mut conn).unwrap();
/// use windlass::limits;
///
/// limits::set(&mut conn, "import/*", 1, "ada", "the disk is slow")?;
/// assert!(limits::clear(&mut conn, "import/*")?);
/// assert!(!limits::clear(&mut conn, "import/*")?, "none is set any more");
/// # Ok::<(), windlass::Error>(())
/// ```
///
/// # Errors
/// If the database does not answer or has no tables.
pub fn clear_limit<C: AsConn + ?Sized>(conn: &mut C, key: &str) -> Result<bool> {
    Actor::default().clear_limit(conn, key)
}

impl Actor {
    /// Does what [`limits::set`](crate::limits::set) does.
    ///
    /// # Errors
    /// As for [`limits::set`](crate::limits::set).
    pub fn set_limit<C: AsConn + ?Sized>(&self, conn: &mut C, key: &str, slots: u32) -> Result<()> {
        self.limit(conn, key, slots, true)
    }

    fn limit<C: AsConn + ?Sized>(
        &self,
        conn: &mut C,
        key: &str,
        slots: u32,
        is_named: bool,
    ) -> Result<()> {
        check(key)?;
        let slots = i32::try_from(slots).unwrap_or(i32::MAX);
        let (by, reason) = (
            Some(self.name()).filter(|_| is_named),
            self.reason.as_deref(),
        );
        let mut conn = own(conn);
        let set = AuditTrail::new(self, AuditAction::SetLimit)
            .target(key)
            .parameters(json!({ "slots": slots }).to_string())
            .record(
                &mut conn,
                |conn| pause::set(conn, key, slots, by, reason),
                |()| AuditEffect::Done,
            );
        set.and_then(|()| pause::request_group(&mut conn, key))
            .during("set the limit")
    }

    /// Does what [`limits::clear`](crate::limits::clear) does.
    ///
    /// # Errors
    /// As for [`limits::clear`](crate::limits::clear).
    pub fn clear_limit<C: AsConn + ?Sized>(&self, conn: &mut C, key: &str) -> Result<bool> {
        let mut conn = own(conn);
        let cleared = AuditTrail::new(self, AuditAction::ClearLimit)
            .target(key)
            .record_if(&mut conn, |conn| pause::clear(conn, key));
        let cleared = cleared.during("clear the limit")?;
        if cleared {
            pause::request_group(&mut conn, key).during("clear the limit")?;
        }
        Ok(cleared)
    }
}

/// Returns the limits that were set at run time, by key.
///
/// ```
/// # use diesel::prelude::*;
/// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
/// # windlass::migrate(&mut conn).unwrap();
/// use windlass::limits;
///
/// limits::set(&mut conn, "import/*", 1, "ada", "the disk is slow")?;
/// for limit in limits::list(&mut conn)? {
///     println!("{}: {} slots", limit.key, limit.slots);
/// }
/// # Ok::<(), windlass::Error>(())
/// ```
///
/// # Errors
/// If the database does not answer or has no tables.
pub fn limits<C: AsConn + ?Sized>(conn: &mut C) -> Result<Vec<RunTimeLimit>> {
    limits::list_limits(&mut own(conn)).during("read the limits")
}

fn check(key: &str) -> Result<()> {
    let parts = key.split_once('/');
    let is_whole = parts.is_some_and(|(group, rest)| !group.is_empty() && !rest.is_empty());
    if !is_whole || key.len() > 255 || key.contains('\0') {
        return Err(Error::Settings(format!(
            "cannot set the limit of `{}`: name a concurrency key with its group, as `import/7`, \
             or all keys of a group, as `import/*`; `windlass status` shows blocked jobs, and \
             `windlass explain` their keys",
            key.escape_debug()
        )));
    }
    Ok(())
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
