//! How long what has ended is kept.

use std::time::Duration;

/// How long a supervisor keeps jobs that have ended.
///
/// It clears the tables in small batches with pauses between them, so that
/// work goes on meanwhile, however much there is to clear. Several
/// supervisors may do so at once; the shortest retention of theirs counts. The
/// finished jobs of a Rails app in the same tables are left to that app, unless
/// [`jobs_of_ruby`](Self::jobs_of_ruby) says otherwise.
///
/// ```
/// use std::time::Duration;
/// use windlass::Retention;
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
    pub(crate) finished_for: Option<Duration>,
    pub(crate) finished_at_most: Option<u64>,
    pub(crate) failed_for: Option<Duration>,
    pub(crate) jobs_of_ruby: bool,
    pub(crate) every: Duration,
}

impl Default for Retention {
    fn default() -> Self {
        Self::new()
    }
}

impl Retention {
    /// Finished jobs stay for a day, failed ones for ever.
    pub fn new() -> Self {
        Retention {
            finished_for: Some(Duration::from_secs(24 * 3600)),
            finished_at_most: None,
            failed_for: None,
            jobs_of_ruby: false,
            every: Duration::from_secs(60),
        }
    }

    /// Everything stays for ever; results still expire.
    pub fn forever() -> Self {
        Retention {
            finished_for: None,
            ..Self::new()
        }
    }

    /// For how long finished jobs stay. Default: a day. For jobs that are not
    /// to stay at all, see [`Policy::keep_finished`](crate::Policy::keep_finished)
    /// and [`Worker::keep_finished`](crate::Worker::keep_finished), which cost
    /// less.
    pub fn finished_for(mut self, age: Duration) -> Self {
        self.finished_for = Some(age);
        self
    }

    /// How many finished jobs stay at most: those that were enqueued last.
    /// Default: any number.
    pub fn finished_at_most(mut self, jobs: u64) -> Self {
        self.finished_at_most = Some(jobs);
        self
    }

    /// For how long failed jobs stay, counted from their failure. Default: for
    /// ever, as somebody should look at them.
    pub fn failed_for(mut self, age: Duration) -> Self {
        self.failed_for = Some(age);
        self
    }

    /// Whether [`finished_for`](Self::finished_for) and
    /// [`finished_at_most`](Self::finished_at_most) also count for jobs that
    /// Active Job enqueued and Solid Queue finished. Default: no, as the Rails
    /// app has a retention of its own. Jobs that Ruby enqueued and Windlass
    /// finished are cleared like all others.
    pub fn jobs_of_ruby(mut self, clear: bool) -> Self {
        self.jobs_of_ruby = clear;
        self
    }

    /// How often to look for what is to go; not zero, with which a supervisor
    /// refuses to start. Default: once a minute.
    pub fn every(mut self, interval: Duration) -> Self {
        self.every = interval;
        self
    }
}
