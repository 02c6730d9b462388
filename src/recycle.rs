//! When a worker makes room for a new one.

use std::time::Duration;

/// When a worker process makes room for a new one: what jobs leave behind,
/// mostly memory, goes with it.
///
/// The worker claims no more, lets its jobs end, however long they take, and
/// ends as at a stop; its supervisor starts the next at once. That counts as
/// no crash, and no job runs twice for it.
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
    /// Never.
    pub fn new() -> Self {
        Self::default()
    }

    /// After how long, up to a tenth earlier or later, so that processes that
    /// were started together do not go together. At least a second. Default:
    /// never.
    pub fn after(mut self, age: Duration) -> Self {
        self.after = Some(age);
        self
    }

    /// After how many jobs. Default: any number.
    pub fn after_jobs(mut self, jobs: u64) -> Self {
        self.after_jobs = Some(jobs);
        self
    }

    /// When the process takes up more of the host's memory (its resident set)
    /// than this, in bytes. It is looked at about once a second, from the first
    /// job on; only Linux tells. Default: any amount.
    pub fn above_memory(mut self, bytes: u64) -> Self {
        self.above_memory = Some(bytes);
        self
    }

    /// Less would be nothing but starting.
    pub(crate) const SOONEST: Duration = Duration::from_secs(1);

    pub(crate) fn is_never(&self) -> bool {
        *self == Self::default()
    }
}
