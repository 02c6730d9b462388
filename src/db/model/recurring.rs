//! The row of a recurring task, and what firing it takes and returns.

use crate::db::model::new_row::NewRow;
use chrono::NaiveDateTime;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Bool, Integer, Nullable, Text, Timestamp};
use serde::{Deserialize, Serialize};

/// The policy for a tick that comes before the task's previous job has ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Overlap {
    /// It fires: jobs of the task may run at the same time. The default.
    #[default]
    Allow,
    /// It is skipped.
    Skip,
    /// It waits for the end of that job. Only one tick waits: the latest.
    QueueOne,
}

/// A tick to fire, with its job.
#[derive(Debug)]
pub(crate) struct DueTick {
    pub(crate) at: NaiveDateTime,
    pub(crate) job: NewRow,
}

/// A tick whose job was enqueued.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EnqueuedTick {
    pub(crate) at: NaiveDateTime,
    pub(crate) job_id: i64,
}

/// Ticks of one task to fire together.
#[derive(Debug)]
pub(crate) struct Firing<'a> {
    /// The task as it was when the ticks were computed.
    pub(crate) task: &'a RecurringTaskRow,
    /// In order; a tick that waited comes first.
    pub(crate) ticks: &'a [DueTick],
    /// The first tick after those, and after the ones that are not fired.
    pub(crate) next_run_at: NaiveDateTime,
    pub(crate) overlap: Overlap,
}

/// The result of firing.
#[derive(Debug, Default)]
pub(crate) struct Fired {
    /// Ticks with their new jobs.
    pub(crate) jobs: Vec<EnqueuedTick>,
    /// Ticks skipped because of the previous job.
    pub(crate) dropped: Vec<NaiveDateTime>,
    /// The tick that waits for the previous job.
    pub(crate) queued: Option<NaiveDateTime>,
}

/// A recurring task of Windlass, or the key of a Rails app's.
#[doc(hidden)]
#[derive(Debug, Clone, QueryableByName)]
pub struct RecurringTaskRow {
    #[diesel(sql_type = BigInt)]
    pub(crate) id: i64,
    #[diesel(sql_type = Text)]
    pub key: String,
    #[diesel(sql_type = Text)]
    pub schedule: String,
    #[diesel(sql_type = Text)]
    pub time_zone: String,
    #[diesel(sql_type = Text)]
    pub class_name: String,
    #[diesel(sql_type = Text)]
    pub(crate) arguments: String,
    #[diesel(sql_type = Text)]
    pub queue_name: String,
    #[diesel(sql_type = Integer)]
    pub(crate) priority: i32,
    #[diesel(sql_type = Nullable<Text>)]
    pub description: Option<String>,
    #[diesel(sql_type = Text)]
    pub(crate) options: String,
    /// `None` for a Rails app's task, and if it is not a calendar time.
    #[diesel(sql_type = Nullable<Timestamp>)]
    pub next_run_at: Option<NaiveDateTime>,
    #[diesel(sql_type = Nullable<Timestamp>)]
    pub last_run_at: Option<NaiveDateTime>,
    #[diesel(sql_type = Nullable<Timestamp>)]
    pub(crate) queued_run_at: Option<NaiveDateTime>,
    #[diesel(sql_type = Nullable<Text>)]
    pub(crate) open_jobs: Option<String>,
    #[diesel(sql_type = Nullable<Timestamp>)]
    pub paused_at: Option<NaiveDateTime>,
    #[diesel(sql_type = Nullable<Timestamp>)]
    pub(crate) declared_at: Option<NaiveDateTime>,
    #[diesel(sql_type = Nullable<BigInt>)]
    pub(crate) revision: Option<i64>,
    #[diesel(sql_type = BigInt)]
    pub(crate) row_version: i64,
    /// The deployments whose start it has had, as JSON.
    #[diesel(sql_type = Nullable<Text>)]
    pub(crate) starts: Option<String>,
    /// The database's clock when the row was read.
    #[diesel(sql_type = Timestamp)]
    pub now: NaiveDateTime,
    /// True if a program has declared it, and no running scheduler declares it.
    #[diesel(sql_type = Bool)]
    pub(crate) is_unlisted: bool,
    /// True if it is unlisted and schedulers run.
    #[diesel(sql_type = Bool)]
    pub is_undeclared: bool,
}

/// The definition of a task to schedule.
#[derive(Debug, Clone)]
pub struct Definition {
    pub(crate) key: String,
    pub(crate) schedule: String,
    /// The schedule with its time zone, as Ruby reads it.
    pub(crate) in_ruby: String,
    pub(crate) time_zone: String,
    pub(crate) class_name: String,
    pub(crate) arguments: String,
    pub(crate) queue_name: String,
    pub(crate) priority: i32,
    pub(crate) description: Option<String>,
    pub(crate) options: String,
    /// The revision of the program whose code or configuration declares it. `None` if it is
    /// scheduled at run time.
    pub(crate) revision: Option<i64>,
    /// The deployment whose start is a tick of it; `None` if its ticks come from a schedule.
    pub(crate) start: Option<String>,
}

/// The result of scheduling.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scheduled {
    /// It is stored, and due at this time.
    Done(NaiveDateTime),
    /// A Rails app has a task of this key.
    Foreign,
    /// A program's code or configuration has a task of this key.
    Declared,
    /// A task of this key was scheduled at run time.
    AtRunTime,
    /// A program of a higher revision has declared it, which takes precedence.
    Newer,
    /// Its next tick could not be computed, so nothing was stored.
    Untimed,
}

/// Returns the first tick after a time of the database's clock; `None` if it cannot be computed.
pub(crate) type NextTick<'a> = &'a dyn Fn(NaiveDateTime) -> Option<NaiveDateTime>;
