//! What a claim is: its fence, what to claim, and what was claimed.

use crate::db::conn::lossy::Lossy;
use chrono::NaiveDateTime;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Bool, Integer, Nullable, Text, Timestamp};

/// Who may end a claim: its id, and the process that holds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fence {
    pub(crate) process_id: i64,
    pub(crate) claim_id: i64,
}

/// What becomes of the row of a job that has finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Finished {
    /// It stays, with its time.
    Keep,
    /// It goes.
    Delete,
}

#[derive(QueryableByName)]
pub(crate) struct Ended {
    #[diesel(sql_type = BigInt)]
    pub(crate) claim_id: i64,
    #[diesel(sql_type = BigInt)]
    pub(crate) job_id: i64,
    /// Somebody had asked for it; a job that has finished does not care.
    #[diesel(sql_type = Bool)]
    pub(crate) cancelled: bool,
    /// The key of which it held a slot.
    #[diesel(sql_type = Nullable<Text>)]
    pub(crate) concurrency_key: Option<String>,
}

/// From which queues a worker takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Queues {
    /// All, by priority and age across them.
    All,
    /// These in this order; by priority and age within each.
    Named(Vec<String>),
}

/// What to claim, and for whom.
#[derive(Debug)]
pub(crate) struct Want<'a> {
    pub(crate) process_id: i64,
    pub(crate) queues: &'a Queues,
    /// Rows of other classes are left for a worker that knows them. Rows made
    /// by Rails name no class here and are taken.
    pub(crate) classes: &'a [String],
    pub(crate) limit: usize,
    /// More than there are idle threads: those that must not be noted as begun
    /// too early are not.
    pub(crate) ahead: bool,
    /// Where to begin to look, for each queue in order, or for all together.
    /// Missing ones begin at the beginning.
    pub(crate) from: &'a [Mark],
    /// The id after which to look for wanted keys.
    pub(crate) wanted_after: i64,
}

/// A place in the order of ready executions.
///
/// Postgres leaves what was taken in the index until the next vacuum, and
/// whoever begins at the beginning has to pass all of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Mark {
    pub(crate) priority: i32,
    pub(crate) job_id: i64,
}

impl Mark {
    /// Before all others.
    pub(crate) const BEGINNING: Mark = Mark {
        priority: i32::MIN,
        job_id: i64::MIN,
    };
}

/// What came of it.
#[derive(Debug)]
pub(crate) enum Claims {
    /// The process holds these now.
    Held {
        /// The most important first.
        jobs: Vec<Claimed>,
        /// Blocked jobs are to be promoted, see [`super::blocked::promote`].
        is_wanted: bool,
    },
    /// The process is no longer registered, or draining: nothing was taken.
    Unregistered,
}

/// A job that a process holds.
#[derive(Debug, Clone, QueryableByName)]
pub(crate) struct Claimed {
    /// The fence: every change to the job names it.
    #[diesel(sql_type = BigInt)]
    pub(crate) claim_id: i64,
    /// Noted as begun: a thread may have it at once.
    #[diesel(sql_type = Bool)]
    pub(crate) begun: bool,
    #[diesel(sql_type = BigInt)]
    pub(crate) job_id: i64,
    #[diesel(sql_type = Text, deserialize_as = Lossy)]
    pub(crate) queue_name: String,
    #[diesel(sql_type = Text, deserialize_as = Lossy)]
    pub(crate) class_name: String,
    #[diesel(sql_type = Text, deserialize_as = Lossy)]
    pub(crate) arguments: String,
    #[diesel(sql_type = Integer)]
    pub(crate) priority: i32,
    #[diesel(sql_type = Integer)]
    pub(crate) attempts: i32,
    #[diesel(sql_type = Bool)]
    pub(crate) at_most_once: bool,
    #[diesel(sql_type = Timestamp)]
    pub(crate) created_at: NaiveDateTime,
    #[diesel(sql_type = Nullable<Timestamp>)]
    pub(crate) scheduled_at: Option<NaiveDateTime>,
    #[diesel(sql_type = Nullable<Integer>)]
    pub(crate) max_attempts: Option<i32>,
    #[diesel(sql_type = Nullable<Text>)]
    pub(crate) policy: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    pub(crate) unique_id: Option<String>,
    /// It holds a slot of its concurrency key.
    #[diesel(sql_type = Bool)]
    pub(crate) is_limited: bool,
    /// Blocked jobs of whatever key are to be promoted.
    #[diesel(sql_type = Bool)]
    pub(crate) is_wanted: bool,
    /// Others were picked as well, and blocked as they have a limit.
    #[diesel(sql_type = Bool)]
    pub(crate) has_blocked: bool,
}
