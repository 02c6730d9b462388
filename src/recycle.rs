//! When a worker process is replaced by a new one.

use std::time::Duration;

/// When a worker process is replaced by a new one, to free what jobs leave behind, mostly memory.
///
/// The worker stops claiming, waits for its jobs to finish without a time limit, and exits as at a
/// normal stop. Its supervisor starts the replacement immediately. This does not count as a crash,
/// and no job runs twice because of it.
///
/// ```
/// use std::time::Duration;
/// use windlass::Recycle;
///
/// let recycle = Recycle::new()
///     .after(Duration::from_secs(6 * 3600))
///     .after_jobs(100_000)
///     .above_memory(512 << 20);
/// # let _ = recycle;
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[must_use = "it is given to a worker"]
pub struct Recycle {
    pub(crate) after: Option<Duration>,
    pub(crate) after_jobs: Option<u64>,
    pub(crate) above_memory: Option<u64>,
}

impl Recycle {
    /// Creates settings under which a worker is never replaced.
    pub fn new() -> Self {
        Self::default()
    }

    /// Replaces the process after this time, at least 1 s. Default: never.
    ///
    /// The time varies by up to a tenth either way, so that processes started together are not
    /// replaced together.
    pub fn after(mut self, age: Duration) -> Self {
        self.after = Some(age);
        self
    }

    /// Replaces the process after this many jobs. Default: no limit.
    pub fn after_jobs(mut self, jobs: u64) -> Self {
        self.after_jobs = Some(jobs);
        self
    }

    /// Replaces the process when its resident set exceeds this many bytes. Default: no limit.
    ///
    /// The memory is checked about once a second, once the worker has run a job. Linux only.
    pub fn above_memory(mut self, bytes: u64) -> Self {
        self.above_memory = Some(bytes);
        self
    }

    /// With a shorter age, a worker would do nothing but start.
    pub(crate) const SOONEST: Duration = Duration::from_secs(1);

    pub(crate) fn is_never(&self) -> bool {
        *self == Self::default()
    }
}
