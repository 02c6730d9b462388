//! A line of a timeline.

use crate::admin::explain::word::Words;
use chrono::NaiveDateTime;

/// A state, for the mark beside an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mark {
    Ready,
    Scheduled,
    Running,
    Blocked,
    Failed,
    Finished,
    Discarded,
}

/// What an entry is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EntryKind {
    /// Something that happened.
    Event(Mark),
    /// The time until the next event.
    Wait,
    /// What the job does now.
    Now(Mark),
    /// What happens next.
    Next,
}

/// A line of the timeline.
#[derive(Debug, Clone)]
pub(crate) struct TimelineEntry {
    pub(crate) kind: EntryKind,
    pub(crate) at: Option<NaiveDateTime>,
    pub(crate) what: String,
    /// How long it took, or has taken until now.
    pub(crate) seconds: Option<f64>,
    pub(crate) how: Words,
    /// Several lines more: a backtrace, for example.
    pub(crate) details: Option<String>,
}
