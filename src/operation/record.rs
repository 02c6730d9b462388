//! An operation, as it is shown.

use crate::admin::changed::Changed;
use crate::admin::jobs::{BoundedCount, Jobs};
use crate::db::table::operators::operations::{self, OperationRow};
use crate::db::{AsConn, own};
use crate::error::{Doing, Result};
use crate::operation::walk::{WalkBound, WalkPlace};
use chrono::{DateTime, NaiveDateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The state of an [`Operation`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum OperationState {
    /// No batch of it has run yet.
    Waiting,
    /// Some of its batches have run.
    Running,
    /// It was stopped before its end.
    Stopped,
    /// It has run all its batches.
    Done,
    /// Its next batch cannot be run, for the reason in its error.
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

    /// Returns `true` if no further batch of it will run.
    pub fn has_ended(self) -> bool {
        !matches!(self, OperationState::Waiting | OperationState::Running)
    }
}

/// A change of many jobs that runs in the background, a batch of 500 jobs at a time.
///
/// Any process runs the next batch: a supervisor, `windlass web`, or a program that calls
/// [`run_operations`](crate::run_operations). If that process dies, another one goes on, and no batch
/// is applied twice.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Operation {
    /// Its id.
    pub id: i64,
    /// What it does, as in the audit: `jobs.retry`.
    pub action: String,
    /// What it sets.
    pub parameters: Value,
    /// The jobs that it changes, as far as they were there when it was started.
    pub filter: Value,
    /// Its state.
    pub state: OperationState,
    /// How many jobs it was to change, counted up to 10,000 when it was started. `None` if they were
    /// not counted.
    pub total: Option<BoundedCount>,
    /// How much of it is done, from 0 to 1.
    pub fraction: f64,
    /// How many jobs it has tried to change.
    pub looked_at: i64,
    /// How many jobs it has changed. For a cancel, this includes running jobs that were asked to stop.
    pub changed: i64,
    /// What became of the jobs that it has tried to change.
    pub counts: OperationCounts,
    /// Why the database refused to change a job, or the next batch cannot be run.
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
    /// When it was started by its actor. All times are by the database's clock.
    pub created_at: DateTime<Utc>,
    /// When its first batch ran.
    pub started_at: Option<DateTime<Utc>>,
    /// When its last batch ran.
    pub moved_at: DateTime<Utc>,
    /// When it ended.
    pub ended_at: Option<DateTime<Utc>>,
    /// Seconds since its last batch.
    pub still_seconds: f64,
}

/// What became of the jobs of an operation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct OperationCounts {
    /// What became of those that the database accepted.
    #[serde(flatten)]
    pub done: Changed,
    /// How many jobs were left because the database refused to change them, or other transactions held
    /// them locked.
    pub refused: u64,
}

impl From<OperationRow> for Operation {
    fn from(row: OperationRow) -> Self {
        let utc = |time: NaiveDateTime| time.and_utc();
        let value = |text: String| serde_json::from_str(&text).unwrap_or(Value::String(text));
        let place: WalkPlace = serde_json::from_str(&row.place).unwrap_or_default();
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
                _ => place.fraction(&bounds),
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
/// for operation in windlass::operations(&mut conn, None, 20)? {
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
    let rows = operations::list(&mut own(conn), before, limit).doing("list the operations")?;
    Ok(rows.into_iter().map(Operation::from).collect())
}

/// Returns an operation by its id. Returns `None` if there is none, or its row was deleted 30 days after
/// its end.
///
/// # Errors
/// If the database does not answer or has no tables.
pub fn operation<C: AsConn + ?Sized>(conn: &mut C, id: i64) -> Result<Option<Operation>> {
    let row = operations::find(&mut own(conn), id).doing("look the operation up")?;
    Ok(row.map(Operation::from))
}
