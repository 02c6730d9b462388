//! What became of a job, for whoever enqueued it.

use crate::clock::{self, Backoff};
use crate::db::query::job_info::{self, Job, Kept};
use crate::db::table::attempts::{self, Attempt};
use crate::db::table::progress::Progress;
use crate::db::table::results;
use crate::db::{AsConn, Conn, Database, Refusal, own};
use crate::error::{Doing, Error, Result};
use crate::job::id::JobId;
use chrono::{DateTime, NaiveDateTime, Utc};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::time::{Duration, Instant};

/// The attempts at a job that did not succeed, the newest first; at most the
/// last 20.
///
/// ```
/// # use diesel::prelude::*;
/// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
/// # windlass::migrate(&mut conn).unwrap();
/// for attempt in windlass::attempts(&mut conn, windlass::JobId(1))? {
///     println!("{}. {}: {}", attempt.attempt, attempt.kind, attempt.message);
/// }
/// # Ok::<(), windlass::Error>(())
/// ```
///
/// # Errors
/// When the database does not answer or has no tables.
pub fn attempts<C: AsConn + ?Sized>(conn: &mut C, job: JobId) -> Result<Vec<Attempt>> {
    attempts::of_job(&mut own(conn), job.0).doing("list the attempts of the job")
}

/// A job by its id, or by its [unique id](crate::NewJob::unique_id): then the
/// one that was enqueued last with it, of those that are still known.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum JobKey {
    /// By its id.
    Id(JobId),
    /// By its unique id.
    UniqueId(String),
}

impl From<JobId> for JobKey {
    fn from(id: JobId) -> Self {
        JobKey::Id(id)
    }
}

impl From<&str> for JobKey {
    fn from(id: &str) -> Self {
        JobKey::UniqueId(id.to_owned())
    }
}

impl From<String> for JobKey {
    fn from(id: String) -> Self {
        JobKey::UniqueId(id)
    }
}

impl JobKey {
    /// The id of the job.
    pub(crate) fn resolve(&self, conn: &mut Conn<'_>) -> Result<Option<i64>> {
        match self {
            JobKey::Id(id) => Ok(Some(id.0)),
            JobKey::UniqueId(name) => {
                job_info::with_unique_id(conn, name).doing("look for the unique id")
            }
        }
    }
}

/// How far a job has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum TaskStatus {
    /// It waits, for its first attempt or for another.
    Queued,
    /// A process has it.
    Running,
    /// It has finished.
    Succeeded,
    /// It has failed for good.
    Failed,
    /// It has ended because somebody asked for that.
    Cancelled,
    /// It has ended by its own word, without having failed.
    Discarded,
}

impl TaskStatus {
    /// Whether nothing more will come of it by itself.
    pub fn has_ended(self) -> bool {
        !matches!(self, TaskStatus::Queued | TaskStatus::Running)
    }
}

/// A job as whoever enqueued it sees it.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
#[non_exhaustive]
pub struct TaskInfo {
    /// Its id.
    pub job_id: JobId,
    /// Its class.
    pub class_name: String,
    /// Its unique id, if it has one.
    pub unique_id: Option<String>,
    /// How far it has come.
    pub status: TaskStatus,
    /// When it ended, by the database's clock.
    pub finished_at: Option<DateTime<Utc>>,
    /// What it returned, for as long as that is kept; `None` for `()`. See
    /// [`result_as`](Self::result_as).
    pub result: Option<Value>,
    /// Why it failed or ended without success; of one that waits again, why
    /// its last attempt failed; of one that succeeded, why its result could
    /// not be kept.
    pub error: Option<String>,
    /// How often it has run since it was enqueued or retried, the run that is
    /// under way included; 0: never. A run counts whether it succeeded, failed,
    /// was cancelled, or ended with the death of its process. Runs that a stop
    /// has given back, and those that snoozed, do not count. Of a job whose row
    /// is deleted and which succeeded, crashes are not counted.
    pub attempt: u32,
    /// Not before when the next attempt comes, if one is to come.
    pub retry_at: Option<DateTime<Utc>>,
    /// How far it is by its own word, as of the last heartbeat.
    pub progress: Option<Progress>,
}

impl TaskInfo {
    /// What it returned, as the type it is of. `None`: it is not there.
    ///
    /// # Errors
    /// When it is of another type.
    pub fn result_as<T: DeserializeOwned>(&self) -> serde_json::Result<Option<T>> {
        self.result.clone().map(serde_json::from_value).transpose()
    }
}

/// What has become of a job. `None`: nothing is known of it; it never was, or
/// both its row and its result are gone.
///
/// ```
/// # use diesel::prelude::*;
/// # use windlass::NewJob;
/// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
/// # windlass::migrate(&mut conn).unwrap();
/// use windlass::TaskStatus;
///
/// let job = NewJob::of_class("import", "{}").unique_id("import/users").enqueue(&mut conn)?;
/// let info = windlass::task_info(&mut conn, "import/users")?.expect("it is known");
/// assert_eq!((info.job_id, info.status), (job.id, TaskStatus::Queued));
/// assert!(windlass::task_info(&mut conn, windlass::JobId(4711))?.is_none());
/// # Ok::<(), windlass::Error>(())
/// ```
///
/// # Errors
/// When the database does not answer or has no tables.
pub fn task_info<C: AsConn + ?Sized>(
    conn: &mut C,
    job: impl Into<JobKey>,
) -> Result<Option<TaskInfo>> {
    let mut conn = own(conn);
    match job.into().resolve(&mut conn)? {
        Some(id) => look(&mut conn, id),
        None => Ok(None),
    }
}

/// The job first: where its row is gone, its result was there before.
pub(crate) fn look(conn: &mut Conn<'_>, id: i64) -> Result<Option<TaskInfo>> {
    let doing = "look the job up";
    let job = job_info::job(conn, id).doing(doing)?;
    let is_open = job
        .as_ref()
        .is_some_and(|job| job.finished_at.is_none() && !job.has_failed());
    // A result that an earlier end has left says nothing of a job that goes on.
    let kept = if is_open {
        None
    } else {
        job_info::kept(conn, id).doing(doing)?
    };
    Ok(match (job, kept) {
        (Some(job), kept) => Some(of_job(job, kept)),
        (None, Some(kept)) => Some(of_kept(id, kept)),
        (None, None) => None,
    })
}

fn of_job(job: Job, kept: Option<Kept>) -> TaskInfo {
    let status = status(&job);
    let used = u32::try_from(job.attempts).unwrap_or(0);
    let in_utc = |time: NaiveDateTime| time.and_utc();
    let (result, problem) = kept.map_or((None, None), |kept| (kept.result, kept.error));
    TaskInfo {
        job_id: JobId(job.job_id),
        status,
        finished_at: job.finished_at.or(job.failed_at).map(in_utc),
        result: result.and_then(|text| serde_json::from_str(&text).ok()),
        error: if status == TaskStatus::Succeeded {
            problem
        } else {
            job.error()
        },
        attempt: u32::try_from(job.runs).unwrap_or(u32::MAX),
        retry_at: job.scheduled_at.filter(|_| used > 0).map(in_utc),
        progress: job.progress(),
        class_name: job.class_name,
        unique_id: job.unique_id,
    }
}

fn status(job: &Job) -> TaskStatus {
    if job.has_failed() {
        TaskStatus::Failed
    } else if job.finished_at.is_some() {
        // Attempts that did not succeed may come before one that did.
        match job.last_outcome.as_deref() {
            Some("cancelled") => TaskStatus::Cancelled,
            Some("discarded") => TaskStatus::Discarded,
            _ => TaskStatus::Succeeded,
        }
    } else if job.is_claimed {
        TaskStatus::Running
    } else {
        TaskStatus::Queued
    }
}

fn of_kept(id: i64, kept: Kept) -> TaskInfo {
    TaskInfo {
        job_id: JobId(id),
        class_name: kept.class_name,
        unique_id: kept.unique_id,
        status: match kept.outcome.as_str() {
            "succeeded" => TaskStatus::Succeeded,
            "cancelled" => TaskStatus::Cancelled,
            "discarded" => TaskStatus::Discarded,
            _ => TaskStatus::Failed,
        },
        finished_at: Some(kept.finished_at.and_utc()),
        result: kept
            .result
            .and_then(|text| serde_json::from_str(&text).ok()),
        error: kept.error,
        attempt: u32::try_from(kept.attempt).unwrap_or(0),
        retry_at: None,
        progress: None,
    }
}

/// How long a waiter is known beyond its time: should it die, nobody notifies
/// it for long.
const GRACE: Duration = Duration::from_secs(60);

/// How long a database that is away is waited for.
const AWAY: Duration = Duration::from_secs(300);

/// When to look first without having heard of anything, and then after each
/// time twice as long, up to the longest pause: a job whose end was under way
/// when the wait began has notified nobody.
const FIRST_LOOK: Duration = Duration::from_millis(20);

const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// Waits until a job has ended, or until the time is over, and tells what has
/// become of it by then: [`TaskStatus::has_ended`] says which.
///
/// `None`: nothing is known of it (any more); a job that returns `()` and whose row does not
/// stay leaves no trace, unless [`Policy::keep_result`] asks for one.
///
/// It wakes up at the end of the job: by NOTIFY on Postgres, where it listens
/// on a connection of its own, and by the commit on SQLite. It must not wait
/// within the transaction that enqueues the job.
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
/// While the database is away, it waits for it as well, up to 5 minutes.
///
/// # Errors
/// When the database cannot be opened within that time, a statement fails, or there are no tables.
pub fn wait_for(
    database: &Database,
    job: impl Into<JobKey>,
    timeout: Duration,
) -> Result<Option<TaskInfo>> {
    let (job, deadline) = (job.into(), clock::deadline(timeout));
    let give_up = deadline.min(clock::deadline(AWAY));
    let mut backoff = Backoff::up_to(LONGEST_PAUSE);
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

fn is_away(error: &Error) -> bool {
    match error {
        Error::Connect { .. } => true,
        Error::Query { source, .. } => Refusal::of(source) == Refusal::Trouble,
        _ => false,
    }
}

/// The same on one connection.
fn wait_until(database: &Database, job: &JobKey, deadline: Instant) -> Result<Option<TaskInfo>> {
    let mut connection = database.connect()?;
    let info = match task_info(&mut connection, job.clone())? {
        Some(info) if !info.status.has_ended() => info,
        known => return Ok(known),
    };
    let id = info.job_id.0;
    // Heard of from here on: first the listener, then the row that asks for a
    // notification, and then the next look.
    let mut listener = database.listen_on(&[&results::channel(id)])?;
    let left = deadline.saturating_duration_since(clock::instant());
    let waiter = connection
        .write(|conn| results::wait(conn, id, left.saturating_add(GRACE)))
        .doing("say who waits for the job")?;
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
            Err(reason) => break Err(database.deaf(reason)),
        }
    };
    // It expires if this fails.
    let _ = connection.write(|conn| results::leave(conn, waiter));
    known
}
