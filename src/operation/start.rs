//! Previews, starts and stops operations.

use crate::admin::change::{Change, PacedChange};
use crate::admin::jobs::{BoundedCount, Jobs};
use crate::admin::rate::RetryRate;
use crate::admin::walk::WalkBound;
use crate::db::model::audit::Actor;
use crate::db::table::operations::{self, NewOperationRow, OperationRow};
use crate::db::transition::audit;
use crate::db::{AsConn, own};
use crate::error::{Error, ErrorContext, Result};
use crate::operation::chunk::{OperationCounts, OperationPosition};
use chrono::{DateTime, NaiveDateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The most jobs that a preview counts.
const MOST_COUNTED: u64 = 10_000;

/// The most ids by which an operation selects its jobs, which are read with each chunk.
const MOST_IDS: usize = 10_000;

/// The most bytes of the id of a request.
const MOST_OF_REQUEST: usize = 100;

/// The jobs that a change would affect, fixed at one moment. An operation that is started with it
/// does not affect jobs that came later.
///
/// It can be stored as JSON, to ask for a confirmation in between.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Preview {
    /// The number of selected jobs, counted up to 10,000.
    pub count: u64,
    /// True if there are no more.
    pub is_exact: bool,
    bounds: Vec<WalkBound>,
}

impl Preview {
    /// Returns the number of selected jobs.
    pub fn counted(&self) -> BoundedCount {
        BoundedCount {
            count: self.count,
            is_exact: self.is_exact,
        }
    }
}

/// A change of many jobs that is about to be started in the background; see
/// [`Jobs::in_background`].
#[derive(Debug, Clone)]
#[must_use = "an operation does nothing until it is started"]
pub struct NewOperation {
    jobs: Jobs,
    paced: PacedChange,
    preview: Option<Preview>,
    request_id: Option<String>,
}

impl Jobs {
    /// Counts the selected jobs, and fixes which ones they are.
    ///
    /// # Errors
    /// If the database does not answer or has no tables.
    pub fn preview<C: AsConn + ?Sized>(&self, conn: &mut C) -> Result<Preview> {
        let bounds = self.walk_bounds(&mut own(conn)).during("read the jobs")?;
        let counted = self.count_up_to(conn, MOST_COUNTED)?;
        Ok(Preview {
            count: counted.count,
            is_exact: counted.is_exact,
            bounds,
        })
    }

    /// Changes the jobs in the background, as an [`Operation`].
    ///
    /// ```
    /// # use diesel::prelude::*;
    /// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
    /// # windlass::migrate(&mut conn).unwrap();
    /// use windlass::jobs::{Change, Jobs};
    ///
    /// let broken = Jobs::failed().class("import").by("ada");
    /// let preview = broken.preview(&mut conn)?;
    /// println!("{} jobs will be deleted", preview.count);
    /// let operation = broken
    ///     .in_background(Change::Discard)
    ///     .preview(preview)
    ///     .start(&mut conn)?;
    /// println!("operation {}", operation.id);
    /// # Ok::<(), windlass::Error>(())
    /// ```
    pub fn in_background(&self, change: Change) -> NewOperation {
        NewOperation {
            jobs: self.clone(),
            paced: PacedChange { change, rate: None },
            preview: None,
            request_id: None,
        }
    }
}

impl NewOperation {
    /// Affects only the jobs that were there at the preview. Default: those that are there at the start.
    pub fn preview(mut self, preview: Preview) -> Self {
        self.preview = Some(preview);
        self
    }

    /// Makes retried jobs due one after the other, as [`Jobs::retry_at_rate`] does.
    pub fn rate(mut self, rate: RetryRate) -> Self {
        self.paced.rate = Some(rate);
        self
    }

    /// Names the request that starts the operation, with an id of at most 100 bytes that no other request
    /// has. If an operation was started with the same id before, [`start`](Self::start) returns that one:
    /// a form that is sent twice starts one operation. Default: none.
    pub fn request_id(mut self, id: impl Into<String>) -> Self {
        self.request_id = Some(id.into());
        self
    }

    /// Stores the operation, with its row in the audit, and returns at once. A supervisor, `windlass web`
    /// or [`operations::run`](crate::operations::run) runs it.
    ///
    /// # Errors
    /// - If the value of the change is invalid, a [rate](Self::rate) is given and the change is not a
    ///   retry, or the jobs are selected by more than 10,000 ids.
    /// - If the database does not answer or has no tables.
    pub fn start<C: AsConn + ?Sized>(self, conn: &mut C) -> Result<Operation> {
        self.check()?;
        let jobs = match self.paced.change {
            Change::Retry { .. } => self.jobs.failed_only(),
            _ => self.jobs,
        };
        let followed = jobs.followed(self.paced.change == Change::Cancel);
        let follows = followed.is_some();
        let jobs = followed.unwrap_or(jobs);
        jobs.whole_batch(&mut own(conn))?;
        let preview = match self.preview {
            Some(preview) => preview,
            None => jobs.preview(conn)?,
        };
        let mut conn = own(conn);
        let bounds = jobs.walk_bounds(&mut conn).during("read the jobs")?;
        let bounds: Vec<WalkBound> = bounds
            .into_iter()
            .filter_map(|now| now.as_previewed(&preview.bounds, follows))
            .collect();
        let json = |value: serde_json::Result<String>| value.unwrap_or_default();
        let new = audit::start(
            &mut conn,
            &NewOperationRow {
                actor: &jobs.actor,
                action: self.paced.change.action().column(),
                parameters: &json(serde_json::to_string(&self.paced)),
                filter: &json(serde_json::to_string(&jobs)),
                bounds: &json(serde_json::to_string(&bounds)),
                place: &json(serde_json::to_string(&OperationPosition::start(jobs.limit))),
                total: i64::try_from(preview.count).ok(),
                total_is_exact: preview.is_exact,
                request_id: self.request_id.as_deref(),
            },
        );
        let id = new.during("start the operation")?;
        let started = operations::find(&mut conn, id).during("look the operation up")?;
        let started = started.map(Operation::from);
        started.ok_or(Error::NoSuchOperation { id })
    }

    fn check(&self) -> Result<()> {
        self.paced.change.check()?;
        let wrong = |text: &str| Err(Error::Settings(text.to_owned()));
        if self.paced.rate.is_some() && !matches!(self.paced.change, Change::Retry { .. }) {
            return wrong("only a retry has a rate at which the jobs become due");
        }
        let request_id = self.request_id.as_deref().unwrap_or("-");
        if request_id.is_empty() || request_id.len() > MOST_OF_REQUEST || request_id.contains('\0')
        {
            return wrong("the id of a request has 1 to 100 bytes and no NUL");
        }
        let ids = self.jobs.filter.ids.as_ref();
        if ids.is_some_and(|ids| ids.len() > MOST_IDS) {
            return wrong(
                "an operation selects its jobs by at most 10,000 ids: start several, or use `Jobs::change`",
            );
        }
        Ok(())
    }
}

impl WalkBound {
    /// Returns the executions that there are now and were there at a preview, and whether their jobs
    /// are followed from state to state.
    fn as_previewed(self, previewed: &[WalkBound], follows: bool) -> Option<Self> {
        let known = previewed.iter().find(|bound| bound.state == self.state)?;
        Some(WalkBound {
            up_to: self.up_to.min(known.up_to),
            newest: known.newest.filter(|_| follows),
            ..self
        })
    }
}

/// Stops an operation: no further chunk of it runs. Jobs that it has changed stay as they are. Returns
/// `false` if it had ended, or does not exist.
///
/// It waits for a chunk that is under way.
///
/// ```
/// # use diesel::prelude::*;
/// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
/// # windlass::migrate(&mut conn).unwrap();
/// use windlass::jobs::{Change, Jobs};
/// use windlass::operations;
///
/// let operation = Jobs::failed().in_background(Change::Discard).start(&mut conn)?;
/// assert!(operations::stop(&mut conn, operation.id)?);
/// # Ok::<(), windlass::Error>(())
/// ```
///
/// # Errors
/// If the database does not answer or has no tables.
pub fn stop_operation<C: AsConn + ?Sized>(conn: &mut C, id: i64) -> Result<bool> {
    Actor::default().stop_operation(conn, id)
}

impl Actor {
    /// Does what [`operations::stop`](crate::operations::stop) does.
    ///
    /// # Errors
    /// As for [`operations::stop`](crate::operations::stop).
    pub fn stop_operation<C: AsConn + ?Sized>(&self, conn: &mut C, id: i64) -> Result<bool> {
        audit::stop(&mut own(conn), self, id).during("stop the operation")
    }
}

// --- An operation, as it is shown ---

/// The state of an [`Operation`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OperationState {
    /// No chunk of it has run yet.
    Waiting,
    /// Some of its chunks have run.
    Running,
    /// It was stopped before its end.
    Stopped,
    /// It has run all its chunks.
    Done,
    /// Its next chunk cannot be run, for the reason in its error.
    Failed,
}

impl OperationState {
    fn of_column(text: &str) -> Self {
        match text {
            "waiting" => OperationState::Waiting,
            "stopped" => OperationState::Stopped,
            "done" => OperationState::Done,
            "failed" => OperationState::Failed,
            _ => OperationState::Running,
        }
    }

    /// Returns `true` if no further chunk of it will run.
    pub fn has_ended(self) -> bool {
        !matches!(self, OperationState::Waiting | OperationState::Running)
    }
}

/// A change of many jobs that runs in the background, a chunk of 500 jobs at a time.
///
/// Any process runs the next chunk: a supervisor, `windlass web`, or a program that calls
/// [`operations::run`](crate::operations::run). If that process dies, another one goes on, and no chunk
/// is applied twice.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Operation {
    /// Its id.
    pub id: i64,
    /// Its action, as in the audit: `jobs.retry`.
    pub action: String,
    /// The values that it sets.
    pub parameters: Value,
    /// The jobs that it changes, as far as they were there when it was started.
    pub filter: Value,
    /// Its state.
    pub state: OperationState,
    /// The number of jobs that it was to change, counted up to 10,000 when it was started. `None` if they
    /// were not counted.
    pub total: Option<BoundedCount>,
    /// The part of it that is done, from 0 to 1.
    pub fraction: f64,
    /// The number of jobs that it has tried to change.
    pub looked_at: i64,
    /// The number of jobs that it has changed. For a cancel, this includes running jobs that were asked to
    /// stop.
    pub changed: i64,
    /// The outcomes of the jobs that it has tried to change.
    pub counts: OperationCounts,
    /// Why the database refused to change a job, or the next chunk cannot be run.
    pub error: Option<String>,
    /// The name of the actor.
    pub actor: String,
    /// The way by which it came: `page`, `cli`, `library` or `http`.
    pub via: String,
    /// The host or the address it came from.
    pub origin: Option<String>,
    /// The reason, if one was given.
    pub reason: Option<String>,
    /// The row of the audit about its start.
    pub audit_id: Option<i64>,
    /// The time at which its actor started it. All times are by the database's clock.
    pub created_at: DateTime<Utc>,
    /// The time at which its first chunk ran.
    pub started_at: Option<DateTime<Utc>>,
    /// The time at which its last chunk ran.
    pub moved_at: DateTime<Utc>,
    /// The time of its end.
    pub ended_at: Option<DateTime<Utc>>,
    /// Seconds since its last chunk.
    pub still_seconds: f64,
}

impl From<OperationRow> for Operation {
    fn from(row: OperationRow) -> Self {
        let utc = |time: NaiveDateTime| time.and_utc();
        let value = |text: String| serde_json::from_str(&text).unwrap_or(Value::String(text));
        let position: OperationPosition = serde_json::from_str(&row.place).unwrap_or_default();
        let bounds: Vec<WalkBound> = serde_json::from_str(&row.bounds).unwrap_or_default();
        let state = OperationState::of_column(&row.state);
        let total = row.total.map(|count| BoundedCount {
            count: u64::try_from(count).unwrap_or(0),
            is_exact: row.total_is_exact,
        });
        let still = (row.now - row.moved_at).to_std().unwrap_or_default();
        Operation {
            fraction: match state {
                OperationState::Done => 1.0,
                _ => position.walk.fraction(&bounds),
            },
            counts: serde_json::from_str(&row.counts).unwrap_or_default(),
            id: row.id,
            action: row.action,
            parameters: value(row.parameters),
            filter: value(row.filter),
            state,
            total,
            looked_at: row.looked_at,
            changed: row.changed,
            error: row.error,
            actor: row.actor,
            via: row.via,
            origin: row.origin,
            reason: row.reason,
            audit_id: row.audit_id,
            created_at: utc(row.created_at),
            started_at: row.started_at.map(utc),
            moved_at: utc(row.moved_at),
            ended_at: row.ended_at.map(utc),
            still_seconds: still.as_secs_f64(),
        }
    }
}

impl Operation {
    /// Returns the selection of its jobs. `None` if this version cannot read it.
    pub fn jobs(&self) -> Option<Jobs> {
        serde_json::from_value(self.filter.clone()).ok()
    }
}

/// Returns the newest operations, at most `limit`, before the id `before` if one is given.
///
/// ```
/// # use diesel::prelude::*;
/// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
/// # windlass::migrate(&mut conn).unwrap();
/// for operation in windlass::operations::list(&mut conn, None, 20)? {
///     println!("{} {}: {:?}", operation.id, operation.action, operation.state);
/// }
/// # Ok::<(), windlass::Error>(())
/// ```
///
/// # Errors
/// If the database does not answer or has no tables.
pub fn operations<C: AsConn + ?Sized>(
    conn: &mut C,
    before: Option<i64>,
    limit: u32,
) -> Result<Vec<Operation>> {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let rows =
        operations::list_operations(&mut own(conn), before, limit).during("list the operations")?;
    Ok(rows.into_iter().map(Operation::from).collect())
}

/// Returns an operation by its id. Returns `None` if there is none, or its row was deleted 30 days after
/// its end.
///
/// ```
/// # use diesel::prelude::*;
/// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
/// # windlass::migrate(&mut conn).unwrap();
/// use windlass::jobs::{Change, Jobs};
/// use windlass::operations::{self, OperationState};
///
/// let started = Jobs::failed().in_background(Change::Discard).start(&mut conn)?;
/// let operation = operations::find(&mut conn, started.id)?.expect("it is stored");
/// assert_eq!(operation.state, OperationState::Waiting);
/// # Ok::<(), windlass::Error>(())
/// ```
///
/// # Errors
/// If the database does not answer or has no tables.
pub fn operation<C: AsConn + ?Sized>(conn: &mut C, id: i64) -> Result<Option<Operation>> {
    let row = operations::find(&mut own(conn), id).during("look the operation up")?;
    Ok(row.map(Operation::from))
}
