//! The tables of batches, of events, and of the jobs that wait for batches, jobs and events.

pub(crate) mod batches;
pub(crate) mod edges;
pub(crate) mod events;
pub(crate) mod joins;
pub(crate) mod members;
pub(crate) mod parents;
pub(crate) mod undos;
pub(crate) mod waits;

/// The concurrency key of executions that wait for jobs and batches. See
/// [`UNIQUE_SUCCESSOR`](crate::db::table::unique_jobs::UNIQUE_SUCCESSOR).
pub(crate) const WAITS_FOR_PARENTS: &str = "  ";

/// The concurrency key of executions that wait for an event.
pub(crate) const WAITS_FOR_EVENT: &str = "   ";
