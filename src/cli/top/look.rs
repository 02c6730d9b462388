//! What one look at the database found.

use crate::admin::doctor::scope::Finding;
use crate::admin::groups::FailedGroups;
use crate::admin::now::{Member, QueueNow};
use crate::db::query::load::fleet::HeldJob;
use crate::db::query::load::totals::{CappedCount, StateTotals};
use chrono::NaiveDateTime;
use std::time::Instant;

/// A part of a look.
#[derive(Debug, Clone)]
pub(crate) enum LookPart<T> {
    Read(T),
    /// It was not read within its time limit.
    Late,
    /// It failed, for this reason.
    Failed(String),
}

impl<T> LookPart<T> {
    pub(crate) fn value(&self) -> Option<&T> {
        match self {
            LookPart::Read(value) => Some(value),
            LookPart::Late | LookPart::Failed(_) => None,
        }
    }

    /// Returns why the part is missing.
    pub(crate) fn problem(&self) -> Option<String> {
        match self {
            LookPart::Read(_) => None,
            LookPart::Late => Some("not read within 1 s".to_owned()),
            LookPart::Failed(reason) => Some(reason.clone()),
        }
    }
}

/// What was read at one moment.
#[derive(Debug, Clone)]
pub(crate) struct TopLook {
    /// When it started.
    pub(crate) at: Instant,
    /// The database's time.
    pub(crate) now: NaiveDateTime,
    pub(crate) totals: LookPart<StateTotals>,
    pub(crate) queues: LookPart<QueueLines>,
    pub(crate) fleet: LookPart<FleetLines>,
    pub(crate) curves: LookPart<HourCurves>,
    pub(crate) failures: LookPart<FailedGroups>,
}

/// The queues, the worst first.
#[derive(Debug, Clone, Default)]
pub(crate) struct QueueLines {
    pub(crate) lines: Vec<TopQueue>,
    /// Whether there are more.
    pub(crate) is_more: bool,
}

/// A queue.
#[derive(Debug, Clone)]
pub(crate) struct TopQueue {
    pub(crate) queue: QueueNow,
    pub(crate) running: CappedCount,
    /// Finished jobs per minute.
    pub(crate) finished: f64,
    /// Permanently failed jobs per minute.
    pub(crate) failed: f64,
}

/// The processes, each with the jobs that it holds.
#[derive(Debug, Clone, Default)]
pub(crate) struct FleetLines {
    pub(crate) members: Vec<(Member, Vec<HeldJob>)>,
    /// Whether there are more processes.
    pub(crate) is_more: bool,
    /// The threads of living workers, and how many of them run a job.
    pub(crate) threads: (u64, u64),
}

/// The last 60 minutes, the oldest first; the last one has not ended.
#[derive(Debug, Clone, Default)]
pub(crate) struct HourCurves {
    pub(crate) finished: Vec<u64>,
    pub(crate) failed: Vec<u64>,
    /// In milliseconds, the time that 99 % of the jobs waited at most. `None` where none started.
    pub(crate) waits: Vec<Option<u64>>,
    /// Per minute, over the last five minutes.
    pub(crate) finished_now: f64,
    pub(crate) failed_now: f64,
}

/// The findings of `doctor`, and when it looked.
#[derive(Debug, Clone)]
pub(crate) struct TopFindings {
    pub(crate) at: Instant,
    pub(crate) findings: LookPart<Vec<Finding>>,
}
