//! Waiting for the outcome of a job.

use crate::admin::job_info::{JobKey, TaskInfo, look, task_info};
use crate::clock::{self, RetryDelay};
use crate::db::table::results;
use crate::db::{Database, Refusal, own};
use crate::error::{Doing, Error, Result};
use std::time::{Duration, Instant};

/// How long a waiter stays registered after its deadline. If it dies, notifications for it stop
/// after this time.
pub(crate) const GRACE: Duration = Duration::from_secs(60);

/// How long to wait for an unavailable database.
pub(crate) const AWAY: Duration = Duration::from_secs(300);

/// When to check first without a notification; each further pause is twice as long, up to the
/// longest. A job that was just ending when the wait started has sent no notification.
pub(crate) const FIRST_LOOK: Duration = Duration::from_millis(20);

pub(crate) const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// Waits until a job has ended, or until the timeout, and returns its status at that time.
///
/// [`TaskStatus::has_ended`](crate::TaskStatus::has_ended) distinguishes the two cases.
///
/// Returns `None` if nothing is stored about the job (any more). A job that returns `()` and whose
/// row is not kept leaves nothing, unless [`Policy::keep_result`] is set.
///
/// The end of the job wakes the caller: by NOTIFY on Postgres, which uses a connection of its own,
/// and by the commit on SQLite. Behind a pooler in transaction mode and without a
/// [`listen_url`](Database::listen_url), it looks every 2 s. Do not call this within the transaction that enqueues the job.
///
/// ```no_run
/// # use windlass::{Database, NewJob};
/// use std::time::Duration;
///
/// let database = Database::open("sqlite://jobs.db")?;
/// let job = NewJob::of_class("sum", "[1,2]").enqueue(&mut database.connect()?)?;
/// match windlass::wait_for(&database, job.id, Duration::from_secs(10))? {
///     Some(info) if info.status.has_ended() => println!("{:?}", info.result),
///     _ => println!("not yet"),
/// }
/// # Ok::<(), windlass::Error>(())
/// ```
///
/// [`Policy::keep_result`]: crate::Policy::keep_result
///
/// While the database is unavailable, it waits for up to 5 min.
///
/// # Errors
/// If the database cannot be opened within that time, a statement fails, or there are no tables.
pub fn wait_for(
    database: &Database,
    job: impl Into<JobKey>,
    timeout: Duration,
) -> Result<Option<TaskInfo>> {
    let (job, deadline) = (job.into(), clock::deadline(timeout));
    let give_up = deadline.min(clock::deadline(AWAY));
    let mut backoff = RetryDelay::up_to(LONGEST_PAUSE);
    loop {
        match wait_until(database, &job, deadline) {
            Err(error) if is_away(&error) && clock::instant() < give_up => {
                let left = give_up.saturating_duration_since(clock::instant());
                clock::nap(backoff.delay().min(left));
            }
            done => return done,
        }
    }
}

pub(crate) fn is_away(error: &Error) -> bool {
    match error {
        Error::Connect { .. } => true,
        Error::Query { source, .. } => Refusal::of(source) == Refusal::Trouble,
        _ => false,
    }
}

/// The same on one connection.
pub(crate) fn wait_until(
    database: &Database,
    job: &JobKey,
    deadline: Instant,
) -> Result<Option<TaskInfo>> {
    let mut connection = database.connect()?;
    let info = match task_info(&mut connection, job.clone())? {
        Some(info) if !info.status.has_ended() => info,
        known => return Ok(known),
    };
    let id = info.job_id.0;
    // Notifications are received from here on: first the listener, then the row that requests them,
    // then the next check.
    let mut listener = database.listen_on(&[&results::channel(id)])?;
    let left = deadline.saturating_duration_since(clock::instant());
    let waiter = connection
        .with_write_lock(|conn| results::wait(conn, id, left.saturating_add(GRACE)))
        .doing("register the waiter for the job")?;
    let mut pause = FIRST_LOOK;
    let known = loop {
        let known = look(&mut own(&mut connection), id);
        let left = deadline.saturating_duration_since(clock::instant());
        let has_ended = |info: &TaskInfo| info.status.has_ended();
        if left.is_zero() || !matches!(&known, Ok(Some(info)) if !has_ended(info)) {
            break known;
        }
        match listener.wait(pause.min(left)) {
            Ok(true) => {}
            Ok(false) => pause = (pause * 2).min(LONGEST_PAUSE),
            Err(reason) => break Err(database.listen_error(reason)),
        }
    };
    // If this fails, the row expires.
    let _ = connection.with_write_lock(|conn| results::leave(conn, waiter));
    known
}
