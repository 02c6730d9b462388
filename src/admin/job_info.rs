//! The outcome of a job, for the caller that enqueued it.

use crate::clock::{self, RetryDelay};
use crate::db::model::decision::JobState;
use crate::db::query::job_view::{self, JobView, StoredResult, TextLimits};
use crate::db::table::claimed::Progress;
use crate::db::table::results;
use crate::db::{AsConn, Conn, Database, Refusal, own};
use crate::error::{Error, ErrorContext, Result};
use crate::job::JobId;
use chrono::{DateTime, NaiveDateTime, Utc};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Identifies a job by its id or by its [unique id](crate::NewJob::unique_id).
///
/// If several stored jobs had the unique id, it means the one enqueued last.
///
/// ```
/// use windlass::jobs::JobKey;
/// use windlass::JobId;
///
/// assert_eq!(JobKey::from(JobId(7)), JobKey::Id(JobId(7)));
/// assert_eq!(JobKey::from("import/users"), JobKey::UniqueId("import/users".to_owned()));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum JobKey {
    /// The job with this id.
    Id(JobId),
    /// The job with this unique id.
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
    /// Returns the id of the job.
    pub(crate) fn resolve(&self, conn: &mut Conn<'_>) -> Result<Option<i64>> {
        match self {
            JobKey::Id(id) => Ok(Some(id.0)),
            JobKey::UniqueId(name) => {
                job_view::with_unique_id(conn, name).during("look for the unique id")
            }
        }
    }
}

/// The progress or outcome of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskStatus {
    /// It waits for its first or another attempt.
    Queued,
    /// A process holds it.
    Running,
    /// It has finished.
    Succeeded,
    /// It has failed permanently.
    Failed,
    /// It was cancelled.
    Cancelled,
    /// It was discarded: it ended without success, but has not failed.
    Discarded,
}

impl TaskStatus {
    /// Returns `true` if the job will not change any more by itself.
    pub fn has_ended(self) -> bool {
        !matches!(self, TaskStatus::Queued | TaskStatus::Running)
    }
}

/// A job, as seen by the caller that enqueued it.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
#[non_exhaustive]
pub struct TaskInfo {
    /// Its id.
    pub job_id: JobId,
    /// Its class.
    pub class_name: String,
    /// Its unique id, if it has one.
    pub unique_id: Option<String>,
    /// Its progress or outcome.
    pub status: TaskStatus,
    /// The time at which it ended, by the database's clock.
    pub finished_at: Option<DateTime<Utc>>,
    /// The value it returned, while that is kept; `None` for `()`. See
    /// [`result_as`](Self::result_as).
    pub result: Option<Value>,
    /// Why the job failed or ended without success. For a waiting job, why its last attempt failed.
    /// For a job that succeeded, why its result could not be kept.
    pub error: Option<String>,
    /// The number of runs since it was enqueued or retried, including the current one; 0 if it has
    /// never run.
    ///
    /// A run counts if it succeeded, failed, was cancelled or ended with the death of its process.
    /// Runs released by a stop and runs that snoozed do not count. If the row of a successful job
    /// was deleted, its crashes are not counted.
    pub attempt: u32,
    /// The time before which the next attempt does not start, if there is one.
    pub retry_at: Option<DateTime<Utc>>,
    /// The progress it reported, as of the last heartbeat.
    pub progress: Option<Progress>,
    /// Its tags, while its row is kept.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// Its queue, while its row is kept.
    #[doc(hidden)]
    #[serde(skip)]
    pub queue_name: Option<String>,
    /// True if [`public`](Self::public) contains the result.
    #[serde(skip)]
    pub(crate) shows_result: bool,
}

impl TaskInfo {
    /// Returns the job's result as type `T`, or `None` if there is none.
    ///
    /// # Errors
    /// If the result is of another type.
    pub fn result_as<T: DeserializeOwned>(&self) -> serde_json::Result<Option<T>> {
        self.result.clone().map(serde_json::from_value).transpose()
    }
}

/// Returns the status of a job. Returns `None` if nothing is stored: it never existed, or both its
/// row and its result were deleted.
///
/// ```
/// # use diesel::prelude::*;
/// # use windlass::NewJob;
/// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
/// # windlass::migrate(&mut conn).unwrap();
/// use windlass::jobs::TaskStatus;
///
/// let job = NewJob::of_class("import", "{}").unique_id("import/users").enqueue(&mut conn)?;
/// let info = windlass::jobs::status(&mut conn, "import/users")?.expect("it is known");
/// assert_eq!((info.job_id, info.status), (job.id, TaskStatus::Queued));
/// assert!(windlass::jobs::status(&mut conn, windlass::JobId(4711))?.is_none());
/// # Ok::<(), windlass::Error>(())
/// ```
///
/// # Errors
/// If the database does not answer or has no tables.
pub fn task_info<C: AsConn + ?Sized>(
    conn: &mut C,
    job: impl Into<JobKey>,
) -> Result<Option<TaskInfo>> {
    let mut conn = own(conn);
    match job.into().resolve(&mut conn)? {
        Some(id) => read_one(&mut conn, id),
        None => Ok(None),
    }
}

/// Returns the status of a job.
pub fn read_one(conn: &mut Conn<'_>, id: i64) -> Result<Option<TaskInfo>> {
    let mut found = read(conn, &[id], TextLimits::OUTCOME)?;
    Ok(found.remove(&id).map(|(task, _)| task))
}

/// Reads jobs, each with its view if it has a row. The views are read first: if a row was deleted, its result was
/// written before.
pub fn read(
    conn: &mut Conn<'_>,
    ids: &[i64],
    texts: TextLimits,
) -> Result<BTreeMap<i64, (TaskInfo, Option<JobView>)>> {
    const ACTION: &str = "look the job up";
    let views = job_view::jobs(conn, ids, texts).during(ACTION)?;
    // A result of an earlier run does not apply to a job that continues.
    let is_open = |id: &i64| {
        let mut views = views.iter();
        views.any(|view| view.job_id == *id && !status(view).has_ended())
    };
    let ended: Vec<i64> = ids.iter().copied().filter(|id| !is_open(id)).collect();
    let results = job_view::results(conn, &ended, texts).during(ACTION)?;
    let mut results: BTreeMap<i64, StoredResult> = results
        .into_iter()
        .map(|result| (result.job_id, result))
        .collect();
    let mut found = BTreeMap::new();
    for view in views {
        let task = of_view(&view, results.remove(&view.job_id));
        found.insert(view.job_id, (task, Some(view)));
    }
    let alone = results.into_iter();
    found.extend(alone.map(|(id, result)| (id, (of_result(result), None))));
    Ok(found)
}

fn of_view(job: &JobView, kept: Option<StoredResult>) -> TaskInfo {
    let status = status(job);
    let in_utc = |time: NaiveDateTime| time.and_utc();
    let (result, problem) = kept.map_or((None, None), |kept| (kept.result, kept.error));
    TaskInfo {
        job_id: JobId(job.job_id),
        status,
        finished_at: job.finished_at.or(job.failed_at).map(in_utc),
        result: result.and_then(|text| serde_json::from_str(&text).ok()),
        error: match status {
            TaskStatus::Succeeded => problem,
            _ => job.error(),
        },
        attempt: u32::try_from(job.runs).unwrap_or(u32::MAX),
        retry_at: job.due_at.filter(|_| job.attempts > 0).map(in_utc),
        progress: job.note().progress,
        tags: job.extras().tags,
        shows_result: false,
        class_name: job.class_name.clone(),
        queue_name: Some(job.queue_name.clone()),
        unique_id: job.unique_id.clone(),
    }
}

fn status(job: &JobView) -> TaskStatus {
    match job.state() {
        Some(JobState::Failed) => TaskStatus::Failed,
        Some(JobState::Finished) => TaskStatus::Succeeded,
        Some(JobState::Cancelled) => TaskStatus::Cancelled,
        Some(JobState::Discarded) => TaskStatus::Discarded,
        Some(JobState::Claimed) => TaskStatus::Running,
        Some(JobState::Ready | JobState::Scheduled | JobState::Blocked) | None => {
            TaskStatus::Queued
        }
    }
}

fn of_result(kept: StoredResult) -> TaskInfo {
    TaskInfo {
        job_id: JobId(kept.job_id),
        class_name: kept.class_name,
        unique_id: kept.unique_id,
        status: match &*kept.outcome {
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
        tags: Vec::new(),
        queue_name: None,
        shows_result: false,
    }
}

// --- Waiting for the outcome of a job ---

/// The time for which a waiter stays registered after its deadline. If it dies, notifications for
/// it stop after this time.
pub(crate) const GRACE: Duration = Duration::from_secs(60);

/// The longest wait for an unavailable database.
pub(crate) const AWAY: Duration = Duration::from_secs(300);

/// The pause before the first check without a notification; each further pause is twice as long, up
/// to the longest. A job that was just ending when the wait started has sent no notification.
pub(crate) const FIRST_PAUSE: Duration = Duration::from_millis(20);

pub(crate) const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// Waits until a job has ended, or until the timeout, and returns its status at that time.
///
/// [`TaskStatus::has_ended`](crate::jobs::TaskStatus::has_ended) distinguishes the two cases.
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
/// match windlass::jobs::wait_for(&database, job.id, Duration::from_secs(10))? {
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

/// Does what [`wait_for`] does, on one connection.
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
        .with_write_lock(|conn| results::register_waiter(conn, id, left.saturating_add(GRACE)))
        .during("register the waiter for the job")?;
    let mut pause = FIRST_PAUSE;
    let known = loop {
        let known = read_one(&mut own(&mut connection), id);
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
