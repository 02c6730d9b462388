//! What the span of a run needs to know of its job.

use crate::db::model::claim::Claimed;
use crate::db::model::extras::Traceparent;

/// What the span of a run needs, beside what the run itself does.
#[derive(Debug, Clone, Copy, Default)]
#[cfg_attr(
    not(feature = "otel"),
    allow(dead_code, reason = "only spans read all of it")
)]
pub(crate) struct RunTrace {
    /// The trace context of the enqueue.
    pub(crate) origin: Option<Traceparent>,
    /// Whether the job was due at once, and this is its first run.
    pub(crate) follows_enqueue: bool,
    /// Whether the span contains the messages of errors.
    pub(crate) exports_messages: bool,
}

impl RunTrace {
    pub(crate) fn of(job: &Claimed, exports_messages: bool) -> Self {
        RunTrace {
            origin: Traceparent::parse(&job.traceparent),
            follows_enqueue: job.attempts == 0
                && !job.has_run
                && job.scheduled_at.is_none_or(|at| at <= job.created_at),
            exports_messages,
        }
    }
}
