//! The retention of finished and failed jobs, events and the audit.

use std::time::Duration;

/// The limits up to which a supervisor keeps finished and failed jobs, events and the audit.
///
/// The supervisor deletes rows in small batches with pauses between them, so that workers continue
/// undisturbed. Several supervisors may do this at once; then the shortest retention applies.
///
/// Jobs that a Rails app finished in the same tables are left to that app, unless
/// [`jobs_of_ruby`](Self::jobs_of_ruby) is set.
///
/// ```
/// use std::time::Duration;
/// use windlass::processes::Retention;
///
/// let day = Duration::from_secs(24 * 3600);
/// let retention = Retention::new()
///     .finished_for(7 * day)
///     .finished_at_most(1_000_000)
///     .failed_for(90 * day);
/// # let _ = retention;
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "a retention is given to a supervisor"]
pub struct Retention {
    #[doc(hidden)]
    pub finished_for: Option<Duration>,
    #[doc(hidden)]
    pub finished_at_most: Option<u64>,
    #[doc(hidden)]
    pub failed_for: Option<Duration>,
    #[doc(hidden)]
    pub jobs_of_ruby: bool,
    #[doc(hidden)]
    pub audit_for: Option<Duration>,
    #[doc(hidden)]
    pub events_for: Option<Duration>,
    #[doc(hidden)]
    pub every: Duration,
}

impl Default for Retention {
    fn default() -> Self {
        Self::new()
    }
}

impl Retention {
    /// The least time for which the audit is kept: the database refuses to delete younger rows.
    pub const AUDIT_AT_LEAST: Duration = Duration::from_secs(30 * 24 * 3600);

    /// The time for which events are kept by default.
    pub(crate) const EVENTS: Duration = Duration::from_secs(30 * 24 * 3600);

    /// Creates the default: finished jobs are kept for one day, failed jobs permanently, the audit for
    /// 400 days, and events for 30 days.
    pub fn new() -> Self {
        Retention {
            finished_for: Some(Duration::from_secs(24 * 3600)),
            finished_at_most: None,
            failed_for: None,
            jobs_of_ruby: false,
            audit_for: Some(Duration::from_secs(400 * 24 * 3600)),
            events_for: Some(Self::EVENTS),
            every: Duration::from_secs(60),
        }
    }

    /// Keeps all jobs, events and the audit permanently; results still expire.
    pub fn forever() -> Self {
        Retention {
            finished_for: None,
            audit_for: None,
            events_for: None,
            ..Self::new()
        }
    }

    /// Sets how long finished jobs are kept. Default: 1 day.
    ///
    /// If jobs need not be kept at all, use [`Policy::keep_finished`](crate::Policy::keep_finished)
    /// or [`Worker::keep_finished`](crate::Worker::keep_finished), which cost less.
    pub fn finished_for(mut self, age: Duration) -> Self {
        self.finished_for = Some(age);
        self
    }

    /// Sets how many finished jobs are kept at most: the most recently enqueued. Default: no limit.
    pub fn finished_at_most(mut self, jobs: u64) -> Self {
        self.finished_at_most = Some(jobs);
        self
    }

    /// Sets how long failed jobs are kept, counted from their failure. Default: permanently, so
    /// that they can be inspected.
    pub fn failed_for(mut self, age: Duration) -> Self {
        self.failed_for = Some(age);
        self
    }

    /// Sets whether [`finished_for`](Self::finished_for) and
    /// [`finished_at_most`](Self::finished_at_most) also apply to jobs that Active Job enqueued and
    /// Solid Queue finished.
    ///
    /// Default: `false`, because the Rails app has its own retention. Jobs that Ruby enqueued and
    /// Windlass finished are always deleted like all others.
    pub fn jobs_of_ruby(mut self, clear: bool) -> Self {
        self.jobs_of_ruby = clear;
        self
    }

    /// Sets how long the rows of the audit are kept: at least
    /// [30 days](Self::AUDIT_AT_LEAST). Default: 400 days.
    ///
    /// A supervisor with a shorter time does not start.
    pub fn audit_for(mut self, age: Duration) -> Self {
        self.audit_for = Some(age);
        self
    }

    /// Sets how long [events](crate::events::emit) are kept after they were emitted. Default: 30 days.
    ///
    /// An event for which a job waits is kept longer. Give the workers the same time with
    /// [`Worker::longest_wait`](crate::Worker::longest_wait).
    pub fn events_for(mut self, age: Duration) -> Self {
        self.events_for = Some(age);
        self
    }

    /// Sets how often expired jobs are searched for. Default: 60 s.
    ///
    /// A supervisor with an interval of zero does not start.
    pub fn every(mut self, interval: Duration) -> Self {
        self.every = interval;
        self
    }
}
