//! A recurring task as its row has it, and what firing one takes and returns.

use crate::db::model::new_row::NewRow;
use chrono::NaiveDateTime;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Integer, Nullable, Text, Timestamp};
use serde::{Deserialize, Serialize};

/// What becomes of a tick while the task's job before it has not ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Overlap {
    /// It is fired: jobs of the task may run at the same time. The default.
    #[default]
    Allow,
    /// It is dropped.
    Skip,
    /// It waits for the end of that job. Only one waits: the latest.
    QueueOne,
}

/// Ticks of one task, to be fired together.
#[derive(Debug)]
pub(crate) struct Firing<'a> {
    /// As it was when the ticks were computed.
    pub(crate) task: &'a Row,
    /// With their jobs, in order; one that waited comes first.
    pub(crate) ticks: &'a [(NaiveDateTime, NewRow)],
    /// The first tick after those, and after what is not fired at all.
    pub(crate) next_run_at: NaiveDateTime,
    pub(crate) overlap: Overlap,
}

/// What firing came to.
#[derive(Debug, Default)]
pub(crate) struct Fired {
    /// Ticks that have a job now.
    pub(crate) jobs: Vec<(NaiveDateTime, i64)>,
    /// Ticks that were dropped for the job before them.
    pub(crate) dropped: Vec<NaiveDateTime>,
    /// The tick that waits for the job before it.
    pub(crate) queued: Option<NaiveDateTime>,
}

/// One task of ours, or the key of a Rails app's.
#[derive(Debug, Clone, QueryableByName)]
pub(crate) struct Row {
    #[diesel(sql_type = BigInt)]
    pub(crate) id: i64,
    #[diesel(sql_type = Text)]
    pub(crate) key: String,
    #[diesel(sql_type = Text)]
    pub(crate) schedule: String,
    #[diesel(sql_type = Text)]
    pub(crate) time_zone: String,
    #[diesel(sql_type = Text)]
    pub(crate) class_name: String,
    #[diesel(sql_type = Text)]
    pub(crate) arguments: String,
    #[diesel(sql_type = Text)]
    pub(crate) queue_name: String,
    #[diesel(sql_type = Integer)]
    pub(crate) priority: i32,
    #[diesel(sql_type = Nullable<Text>)]
    pub(crate) description: Option<String>,
    #[diesel(sql_type = Text)]
    pub(crate) options: String,
    /// `None`: a Rails app's, or no time that a calendar has.
    #[diesel(sql_type = Nullable<Timestamp>)]
    pub(crate) next_run_at: Option<NaiveDateTime>,
    #[diesel(sql_type = Nullable<Timestamp>)]
    pub(crate) last_run_at: Option<NaiveDateTime>,
    #[diesel(sql_type = Nullable<Timestamp>)]
    pub(crate) queued_run_at: Option<NaiveDateTime>,
    #[diesel(sql_type = Nullable<Text>)]
    pub(crate) open_jobs: Option<String>,
    #[diesel(sql_type = Nullable<Timestamp>)]
    pub(crate) paused_at: Option<NaiveDateTime>,
    #[diesel(sql_type = Nullable<Timestamp>)]
    pub(crate) declared_at: Option<NaiveDateTime>,
    #[diesel(sql_type = Nullable<BigInt>)]
    pub(crate) revision: Option<i64>,
    #[diesel(sql_type = BigInt)]
    pub(crate) lock_version: i64,
    /// The database's clock when the row was read.
    #[diesel(sql_type = Timestamp)]
    pub(crate) now: NaiveDateTime,
}

/// What somebody wants a task to be.
#[derive(Debug, Clone)]
pub(crate) struct Definition {
    pub(crate) key: String,
    pub(crate) schedule: String,
    pub(crate) time_zone: String,
    pub(crate) class_name: String,
    pub(crate) arguments: String,
    pub(crate) queue_name: String,
    pub(crate) priority: i32,
    pub(crate) description: Option<String>,
    pub(crate) options: String,
    /// The revision of the program whose code or configuration has it;
    /// `None`: it is scheduled at run time.
    pub(crate) revision: Option<i64>,
}

/// What scheduling came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scheduled {
    /// It stands as wanted, and is due then.
    Done(NaiveDateTime),
    /// A Rails app has a task of this key.
    Foreign,
    /// A program's code or configuration has a task of this key.
    Declared,
    /// A task of this key was scheduled at run time.
    AtRunTime,
    /// A program of a higher revision has declared it: its word counts.
    Newer,
}

/// The first tick after a moment of the database's clock.
pub(crate) type Next<'a> = &'a dyn Fn(NaiveDateTime) -> NaiveDateTime;
