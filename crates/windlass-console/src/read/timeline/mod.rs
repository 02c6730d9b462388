//! The timeline of a job: what happened, what it waited for, what it does now, and what comes next.
//!
//! It is put together from what is stored: the attempts that did not succeed, the executions, and
//! the lines that runs logged. How long a job was blocked between two attempts is not stored.

mod events;

use chrono::NaiveDateTime;
use windlass::internal::db::query::job_view::JobView;
use windlass::jobs::JobDetails;

pub(crate) use crate::read::timeline::events::{BarKind, BarPart, EntryKind, Mark, TimelineEntry};

/// The timeline of a job.
#[derive(Debug, Clone, Default)]
pub(crate) struct Timeline {
    pub(crate) entries: Vec<TimelineEntry>,
    pub(crate) bar: Vec<BarPart>,
    pub(crate) start: Option<NaiveDateTime>,
    pub(crate) end: Option<NaiveDateTime>,
}

impl Timeline {
    /// Returns the timeline of a job, as it is at `now`.
    pub(crate) fn of(details: &JobDetails, job: &JobView, now: NaiveDateTime) -> Self {
        let entries = events::entries(details, job, now);
        let bar = events::parts(&entries, now);
        let times = || entries.iter().filter_map(|entry| entry.at);
        let is_open = entries
            .iter()
            .any(|entry| matches!(entry.kind, EntryKind::Now(_)));
        let end = match is_open {
            true => Some(now),
            false => events::end(&entries),
        };
        Timeline {
            start: times().min(),
            end,
            bar,
            entries,
        }
    }
}
