//! Operations on recurring tasks: schedule, list, pause, run.

use crate::db::model::audit::Actor;
use crate::db::model::decision::JobState;
use crate::db::model::recurring::{Definition, RecurringTaskRow, Scheduled};
use crate::db::query::ticks;
use crate::db::table::{recurring_executions, recurring_tasks};
use crate::db::{AsConn, own};
use crate::error::{Error, ErrorContext, Result};
use crate::job::JobId;
use crate::job::options::humane;
use crate::recurring::options::TaskOptions;
use crate::recurring::task::RecurringTask;
use crate::recurring::time_zone::Zone;
use crate::recurring::timing::{NEVER, Timings};
use chrono::{DateTime, NaiveDateTime, TimeDelta, Utc};
use std::cell::RefCell;
use std::time::Duration;

/// The state of a recurring task. Times are by the database's clock.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct RecurringStatus {
    /// Its key.
    pub key: String,
    /// Its schedule, without the time zone.
    pub schedule: String,
    /// The time zone of its schedule.
    pub time_zone: String,
    /// The class of its jobs.
    pub class_name: String,
    /// The queue of its jobs.
    pub queue_name: String,
    /// The priority of its jobs; a smaller number is more important.
    pub priority: i32,
    /// Its description.
    pub description: Option<String>,
    /// The next tick; `None` while it is paused, if no scheduler declares it any more, and if there is none.
    pub next_run_at: Option<DateTime<Utc>>,
    /// The last tick that had a job.
    pub last_run_at: Option<DateTime<Utc>>,
    /// The tick that waits until the previous job has ended.
    pub queued_run_at: Option<DateTime<Utc>>,
    /// The time at which it was paused; `None` if it is not.
    pub paused_at: Option<DateTime<Utc>>,
    /// The longest delay of the job of each tick.
    #[serde(serialize_with = "humane::option::serialize")]
    pub jitter: Option<Duration>,
    /// The first time at which it may be due.
    pub from: Option<DateTime<Utc>>,
    /// The time from which on it is no longer due.
    pub until: Option<DateTime<Utc>>,
    /// The time at which a scheduler of a program that declares it last confirmed it; `None` if it was
    /// scheduled at run time.
    pub declared_at: Option<DateTime<Utc>>,
    /// The time of its deletion, if schedulers run and none of them declares it any more. `None` for every other task.
    pub deleted_at: Option<DateTime<Utc>>,
}

impl From<RecurringTaskRow> for RecurringStatus {
    fn from(row: RecurringTaskRow) -> Self {
        let utc = |time: Option<NaiveDateTime>| time.map(|time| time.and_utc());
        let options = TaskOptions::read(&row).unwrap_or_default();
        let next = row.next_run_at.filter(|next| *next < NEVER);
        RecurringStatus {
            next_run_at: utc(next).filter(|_| row.paused_at.is_none() && !row.is_undeclared),
            deleted_at: utc(deleted_at(&row)),
            jitter: options.jitter,
            from: options.window.from,
            until: options.window.until,
            last_run_at: utc(row.last_run_at),
            queued_run_at: utc(row.queued_run_at),
            paused_at: utc(row.paused_at),
            declared_at: utc(row.declared_at),
            key: row.key,
            schedule: row.schedule,
            time_zone: row.time_zone,
            class_name: row.class_name,
            queue_name: row.queue_name,
            priority: row.priority,
            description: row.description,
        }
    }
}

/// Schedules a task on the given connection, as part of its transaction if one is open, and returns
/// its next tick.
///
/// A task that was scheduled with this key is replaced. If its schedule is unchanged, its next tick
/// is kept; otherwise it starts with the first tick from now on, by the database's clock. A paused
/// task stays paused.
///
/// ```
/// # use diesel::prelude::*;
/// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
/// # windlass::migrate(&mut conn).unwrap();
/// use windlass::{RecurringTask, recurring};
///
/// let task = RecurringTask::of_class("nightly", "0 3 * * *", "clean_up", "{}")?;
/// let next = recurring::schedule(&mut conn, &task)?;
/// println!("it runs at {next}");
/// # Ok::<(), windlass::Error>(())
/// ```
///
/// # Errors
/// If a program declares a task with this key or a Rails app has one, a limit of its jobs is
/// exceeded, its class is [internal](crate::Job::INTERNAL) and was given by name, or a statement
/// fails.
pub fn schedule<C: AsConn + ?Sized>(conn: &mut C, task: &RecurringTask) -> Result<DateTime<Utc>> {
    Actor::default().schedule_task(conn, task)
}

/// Returns the definition of a task that is scheduled at run time.
pub(crate) fn at_run_time(task: &RecurringTask) -> Result<Definition> {
    if task.schedule().is_start() {
        return Err(Error::RecurringTask {
            key: task.key().to_owned(),
            reason: "has the schedule `@start`, which only a task that a program's code or configuration \
                     declares may have"
                .to_owned(),
        });
    }
    task.definition(None, Zone::UTC)
}

/// Returns a function that computes the next tick of a task, and keeps the error if it cannot.
pub(crate) fn next_or_failed<'a>(
    task: &'a RecurringTask,
    zone: Zone,
    timings: &'a Timings,
    failed: &'a RefCell<Option<Error>>,
) -> impl Fn(NaiveDateTime) -> Option<NaiveDateTime> + 'a {
    move |time| match task.next_tick(zone, timings, time) {
        Ok(next) => Some(next),
        Err(error) => {
            failed.replace(Some(error));
            None
        }
    }
}

/// Returns why a task could not be scheduled or declared.
pub(crate) fn refusal(key: &str, scheduled: Scheduled, failed: Option<Error>) -> Error {
    if let Some(error) = failed {
        return error;
    }
    let reason = match scheduled {
        Scheduled::Declared => {
            "is declared by a program's code or configuration: change it there, or use another key"
        }
        Scheduled::AtRunTime => {
            "was scheduled at run time: unschedule it before a program declares it, or use another key"
        }
        Scheduled::Newer => "was declared by a program with a higher revision, which has priority",
        Scheduled::Foreign | Scheduled::Done(_) | Scheduled::Untimed => {
            "belongs to a Rails app: use another key"
        }
    };
    Error::RecurringTask {
        key: key.to_owned(),
        reason: reason.to_owned(),
    }
}

/// Removes a task; its jobs stay. Returns `false` if there is no such task.
///
/// A declared task is created again when a scheduler declares it again, within an hour. To stop it
/// permanently, use [`pause`].
///
/// ```
/// # use diesel::prelude::*;
/// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
/// # windlass::migrate(&mut conn).unwrap();
/// use windlass::{RecurringTask, recurring};
///
/// let task = RecurringTask::of_class("nightly", "0 3 * * *", "clean_up", "{}")?;
/// recurring::schedule(&mut conn, &task)?;
/// assert!(recurring::unschedule(&mut conn, "nightly")?);
/// assert!(!recurring::unschedule(&mut conn, "nightly")?, "there is no such task any more");
/// # Ok::<(), windlass::Error>(())
/// ```
///
/// # Errors
/// If the statement fails.
pub fn unschedule<C: AsConn + ?Sized>(conn: &mut C, key: &str) -> Result<bool> {
    Actor::default().unschedule_task(conn, key)
}

/// Enqueues the task's job immediately, even if the task is paused or one of its jobs is running.
///
/// The schedule is not affected, except that [`Overlap`](crate::recurring::Overlap) also applies to this job.
///
/// ```
/// # use diesel::prelude::*;
/// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
/// # windlass::migrate(&mut conn).unwrap();
/// use windlass::{RecurringTask, recurring};
///
/// let task = RecurringTask::of_class("nightly", "0 3 * * *", "clean_up", "{}")?;
/// recurring::schedule(&mut conn, &task)?;
/// let job = recurring::run_now(&mut conn, "nightly")?;
/// println!("job {job} runs in addition");
/// # Ok::<(), windlass::Error>(())
/// ```
///
/// # Errors
/// If there is no such task, or a statement fails.
pub fn run_now<C: AsConn + ?Sized>(conn: &mut C, key: &str) -> Result<JobId> {
    Actor::default().run_task(conn, key)
}

/// Pauses a task: no ticks are fired until [`resume`].
///
/// ```
/// # use diesel::prelude::*;
/// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
/// # windlass::migrate(&mut conn).unwrap();
/// use windlass::{RecurringTask, recurring};
///
/// let task = RecurringTask::of_class("nightly", "0 3 * * *", "clean_up", "{}")?;
/// recurring::schedule(&mut conn, &task)?;
/// recurring::pause(&mut conn, "nightly")?;
/// assert!(recurring::list(&mut conn)?[0].paused_at.is_some());
/// # Ok::<(), windlass::Error>(())
/// ```
///
/// # Errors
/// If there is no such task, or the statement fails.
pub fn pause<C: AsConn + ?Sized>(conn: &mut C, key: &str) -> Result<()> {
    Actor::default().pause_task(conn, key)
}

/// Resumes a task, starting with the next tick. Ticks during the pause are skipped; they do not
/// count as missed. Those of a program's own [`Timing`](crate::recurring::Timing) do.
///
/// ```
/// # use diesel::prelude::*;
/// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
/// # windlass::migrate(&mut conn).unwrap();
/// use windlass::{RecurringTask, recurring};
///
/// let task = RecurringTask::of_class("nightly", "0 3 * * *", "clean_up", "{}")?;
/// recurring::schedule(&mut conn, &task)?;
/// recurring::pause(&mut conn, "nightly")?;
/// recurring::resume(&mut conn, "nightly")?;
/// assert!(recurring::list(&mut conn)?[0].paused_at.is_none());
/// # Ok::<(), windlass::Error>(())
/// ```
///
/// # Errors
/// If there is no such task, or a statement fails.
pub fn resume<C: AsConn + ?Sized>(conn: &mut C, key: &str) -> Result<()> {
    Actor::default().resume_task(conn, key)
}

/// Returns all tasks, by key, without those of a Rails app.
///
/// ```
/// # use diesel::prelude::*;
/// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
/// # windlass::migrate(&mut conn).unwrap();
/// for task in windlass::recurring::list(&mut conn)? {
///     println!("{} {}: next at {:?}", task.key, task.schedule, task.next_run_at);
/// }
/// # Ok::<(), windlass::Error>(())
/// ```
///
/// # Errors
/// If the database does not answer or has no tables.
pub fn list<C: AsConn + ?Sized>(conn: &mut C) -> Result<Vec<RecurringStatus>> {
    let rows =
        recurring_tasks::list_tasks(&mut own(conn), None).during("list the recurring tasks")?;
    Ok(rows.into_iter().map(RecurringStatus::from).collect())
}

/// Returns the next `count` ticks of a task by the database's clock, as if it were not paused, and
/// without its jitter.
///
/// There are none after the task's `until`, none for `@start`, and none if no scheduler declares the task any more. Only the next one is known if a
/// program's own [`Timing`](crate::recurring::Timing) computes them.
///
/// ```
/// # use diesel::prelude::*;
/// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
/// # windlass::migrate(&mut conn).unwrap();
/// use windlass::{RecurringTask, recurring};
///
/// let task = RecurringTask::of_class("nightly", "0 3 * * *", "clean_up", "{}")?;
/// recurring::schedule(&mut conn, &task)?;
/// assert_eq!(recurring::upcoming(&mut conn, "nightly", 7)?.len(), 7);
/// # Ok::<(), windlass::Error>(())
/// ```
///
/// # Errors
/// If there is no such task, or the database does not answer.
pub fn upcoming<C: AsConn + ?Sized>(
    conn: &mut C,
    key: &str,
    count: usize,
) -> Result<Vec<DateTime<Utc>>> {
    let mut conn = own(conn);
    let rows =
        recurring_tasks::list_tasks(&mut conn, Some(key)).during("read the recurring task")?;
    let row = rows.first().ok_or_else(|| unknown(key))?;
    if row.is_undeclared {
        return Ok(Vec::new());
    }
    let from = row.now.max(row.last_run_at.unwrap_or(row.now));
    let task = RecurringTask::read(row)?;
    if task.schedule.named().is_some() {
        let next = row.next_run_at.filter(|next| *next < NEVER);
        return Ok(next
            .map(|next| next.and_utc())
            .into_iter()
            .take(count)
            .collect());
    }
    Ok(task
        .times_in(Zone::UTC)
        .upcoming(from)
        .take(count)
        .collect())
}

/// Returns when a task is deleted that no scheduler declares any more.
pub fn deleted_at(row: &RecurringTaskRow) -> Option<NaiveDateTime> {
    let declared_at = row.declared_at.filter(|_| row.is_undeclared)?;
    declared_at.checked_add_signed(TimeDelta::from_std(recurring_tasks::KEPT).ok()?)
}

/// Returns the current time, by the database's clock.
pub fn now<C: AsConn + ?Sized>(conn: &mut C) -> Result<DateTime<Utc>> {
    let now = recurring_tasks::now(&mut own(conn)).during("read the time")?;
    Ok(now.and_utc())
}

/// Returns the latest ticks of a task that had a job, newest first, with their jobs.
///
/// Ticks older than seven days, and those whose job was deleted, are not included.
///
/// ```
/// # use diesel::prelude::*;
/// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
/// # windlass::migrate(&mut conn).unwrap();
/// for (tick, job) in windlass::recurring::history(&mut conn, "weekly_report", 10)? {
///     println!("{tick}: job {job}");
/// }
/// # Ok::<(), windlass::Error>(())
/// ```
///
/// # Errors
/// If the database does not answer or has no tables.
pub fn history<C: AsConn + ?Sized>(
    conn: &mut C,
    key: &str,
    count: usize,
) -> Result<Vec<(DateTime<Utc>, JobId)>> {
    let count = i64::try_from(count).unwrap_or(i64::MAX);
    let ticks = recurring_executions::history(&mut own(conn), key, count)
        .during("read the history of the recurring task")?;
    let ticks = ticks.into_iter();
    Ok(ticks
        .map(|tick| (tick.run_at.and_utc(), JobId(tick.job_id)))
        .collect())
}

#[doc(hidden)]
pub fn unknown(key: &str) -> Error {
    Error::RecurringTask {
        key: key
            .chars()
            .take(80)
            .flat_map(char::escape_default)
            .collect(),
        reason: "does not exist: `windlass recurring list` shows all tasks".to_owned(),
    }
}

// --- The past ticks of a task ---

/// A tick that had a job, and what became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct TickStatus {
    /// The time of the tick.
    pub tick: DateTime<Utc>,
    /// Its job.
    pub job_id: JobId,
    /// The current state of its job.
    pub state: JobState,
    /// The time at which its job ended; `None` if it has not, or has failed.
    pub finished_at: Option<DateTime<Utc>>,
}

/// Returns the latest ticks of a task that had a job, newest first, with the states of their jobs.
///
/// Ticks older than seven days, and those whose job was deleted, are not included.
///
/// ```
/// # use diesel::prelude::*;
/// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
/// # windlass::migrate(&mut conn).unwrap();
/// for tick in windlass::recurring::ticks(&mut conn, "weekly_report", 10)? {
///     println!("{}: job {} is {:?}", tick.tick, tick.job_id, tick.state);
/// }
/// # Ok::<(), windlass::Error>(())
/// ```
///
/// # Errors
/// If the database does not answer or has no tables.
pub fn ticks<C: AsConn + ?Sized>(conn: &mut C, key: &str, count: usize) -> Result<Vec<TickStatus>> {
    let count = i64::try_from(count).unwrap_or(i64::MAX);
    let rows = ticks::list_ticks(&mut own(conn), key, count)
        .during("read the history of the recurring task")?;
    let ticks = rows.into_iter().map(|row| TickStatus {
        tick: row.run_at.and_utc(),
        job_id: JobId(row.job_id),
        state: match row.state.as_str() {
            "claimed" => JobState::Claimed,
            "scheduled" => JobState::Scheduled,
            "blocked" => JobState::Blocked,
            "ready" => JobState::Ready,
            "failed" => JobState::Failed,
            "cancelled" => JobState::Cancelled,
            "discarded" => JobState::Discarded,
            _ => JobState::Finished,
        },
        finished_at: row.finished_at.map(|time| time.and_utc()),
    });
    Ok(ticks.collect())
}
