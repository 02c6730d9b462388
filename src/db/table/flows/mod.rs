//! The tables of batches, of events, and of the jobs that wait for batches, jobs and events.

pub(crate) mod batches;
pub(crate) mod edges;
pub(crate) mod events;
pub(crate) mod joins;
pub(crate) mod members;
pub(crate) mod parents;
pub(crate) mod undos;
pub(crate) mod waits;

/// The concurrency key of executions that wait for jobs and batches. Ruby releases only keys of its own jobs.
pub(crate) const WAITS_FOR_PARENTS: &str = "windlass/after";

/// How the key of each request begins that a promotion look whether a batch is over; its id follows.
pub(crate) const BATCH: &str = "windlass/batch/";

/// How the key of each request begins that a promotion look whether the parents of a job are over; its id
/// follows.
pub(crate) const CHILD: &str = "windlass/after/";

/// Between the id of a batch, in such a request, and a number of jobs that were added to it.
pub(crate) const ADDED: &str = "/added/";

/// How the key of each request begins that a promotion look what waited for a job; its id follows.
pub(crate) const ENDED: &str = "windlass/ended/";

/// The concurrency key of executions that wait for an event.
pub(crate) const WAITS_FOR_EVENT: &str = "windlass/event";

/// How the key of each request begins that a promotion look which jobs wait for an event; its name follows.
pub(crate) const EVENT: &str = "windlass/event/";

/// How the key of each request begins that a promotion look whether the wait of a job is over; its id follows.
pub(crate) const WAIT: &str = "windlass/wait/";
