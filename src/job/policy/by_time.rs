//! Priorities that are times.

use crate::job::policy::Policy;
use std::time::Duration;

impl Policy {
    /// Makes the priority the time from which the job waits, minus `ahead`: it runs before jobs that
    /// have waited for up to so much longer, and no others.
    ///
    /// Jobs with such priorities run in the order of these times, whatever their attempts and
    /// schedules. So every job runs eventually. `Duration::ZERO` gives plain order of time.
    ///
    /// The time is that of the enqueue by the database's clock, the time at which the job is due if
    /// it has one, or that of its tick for a recurring task. It is counted in seconds from 2020, so
    /// the number is much larger than usual priorities, and jobs with those run first. Use only one
    /// kind of priority in a queue.
    ///
    /// This is applied during the enqueue; a program-wide value has no effect. An enqueue that sets
    /// a [`priority`](crate::NewJob::priority) overrides it.
    pub fn ahead_by(mut self, ahead: Duration) -> Self {
        self.ahead_by = Some(i64::try_from(ahead.as_secs()).unwrap_or(i64::MAX));
        self
    }

    /// Makes the priority the time from which the job waits, plus `behind`: jobs that were enqueued
    /// up to so much later run before it. See [`ahead_by`](Self::ahead_by).
    ///
    /// ```
    /// # use windlass::Policy;
    /// use std::time::Duration;
    /// // Whatever else came within the last hour runs first.
    /// let policy = Policy::new().behind_by(Duration::from_secs(3600));
    /// # let _ = policy;
    /// ```
    pub fn behind_by(mut self, behind: Duration) -> Self {
        self.ahead_by = Some(i64::try_from(behind.as_secs()).map_or(i64::MIN, |seconds| -seconds));
        self
    }
}
