//! The concurrency keys of executions that wait for something else than a slot.
//!
//! They have blanks only. No job has such a key: those of Windlass have a `/`, and Solid Queue treats a job with a
//! blank one as a job without limit, so that it releases none either.

/// The key of executions that wait for the job before them, with the same unique id.
pub(crate) const UNIQUE_SUCCESSOR: &str = " ";

/// The key of executions that wait for jobs and batches.
pub(crate) const WAITS_FOR_PARENTS: &str = "  ";

/// The key of executions that wait for an event.
pub(crate) const WAITS_FOR_EVENT: &str = "   ";

/// Returns whether jobs that are blocked under this key wait for other jobs, batches or events, and not for a slot.
pub(crate) fn waits_for_others(key: &str) -> bool {
    [UNIQUE_SUCCESSOR, WAITS_FOR_PARENTS, WAITS_FOR_EVENT].contains(&key)
}

/// Returns the condition for that.
pub(crate) fn waits_for_others_sql(key: &str) -> String {
    format!("({key} IN ('{UNIQUE_SUCCESSOR}', '{WAITS_FOR_PARENTS}', '{WAITS_FOR_EVENT}'))")
}
