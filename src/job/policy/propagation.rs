//! How the span of a run belongs to the trace of the enqueue.

use serde::{Deserialize, Serialize};

/// How the span of a run belongs to the trace in which the job was enqueued.
///
/// This only matters in programs with the feature `otel`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum PropagationStyle {
    /// The span starts a trace of its own, with a link to the enqueue.
    #[default]
    Link,
    /// The span of the first run is a child of the enqueue, in the same trace and sampled with it.
    /// Later runs, and jobs that were enqueued for a later time, have a link: a trace should not
    /// be open for hours.
    Child,
}
