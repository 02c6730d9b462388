//! The settings of a worker.

use crate::db::conn::listening;
use crate::db::model::claim::FinishedRow;
use crate::error::{Error, Result};
use crate::job::registry::Registry;
use crate::process::base::registration::Identity;
use crate::process::base::service::ServiceSettings;
use crate::process::worker::timeouts::ForcedExit;
use crate::queue::QueueSelector;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

/// The settings of a [`Worker`](crate::Worker).
#[derive(Debug, Clone)]
pub(crate) struct WorkerSetup {
    pub(crate) service: ServiceSettings,
    pub(crate) registry: Registry,
    pub(crate) queues: Vec<QueueSelector>,
    pub(crate) threads: usize,
    pub(crate) polling_interval: Duration,
    pub(crate) shutdown_timeout: Duration,
    pub(crate) finished: FinishedRow,
    /// The longest time-out of a wait for an event.
    pub(crate) longest_wait: Duration,
    pub(crate) recycle: Recycle,
    /// True if it ends when it finds no work.
    pub(crate) until_idle: bool,
}

impl WorkerSetup {
    /// Returns a channel of its own, in the group of those that take the same jobs.
    fn channel(&self) -> Option<String> {
        let mut kind = DefaultHasher::new();
        let queues = self.queues.iter().map(ToString::to_string);
        queues.collect::<Vec<_>>().hash(&mut kind);
        self.registry
            .classes()
            .collect::<BTreeSet<_>>()
            .hash(&mut kind);
        Some(listening::channel(kind.finish()))
    }

    /// Returns how to end the program for a job that overran its timeout, or `None` if the program
    /// is not the worker's to end.
    pub(crate) fn forced_exit(&self) -> Option<ForcedExit> {
        self.service
            .is_program
            .then(|| ForcedExit::new(self.shutdown_timeout))
    }

    /// Returns what its row contains.
    pub(crate) fn identity(&self) -> Identity {
        let metadata = serde_json::json!({
            "queues": self.queues.iter().map(ToString::to_string).collect::<Vec<_>>().join(","),
            "thread_pool_size": self.threads,
            "polling_interval": self.polling_interval.as_secs_f64(),
            "classes": self.registry.classes().take(MOST_CLASSES).collect::<Vec<_>>(),
            "more_classes": self.registry.classes().count() > MOST_CLASSES,
            "versions": self.registry.versions().take(MOST_CLASSES).collect::<BTreeMap<_, _>>(),
            "windlass": env!("CARGO_PKG_VERSION"),
        });
        Identity {
            kind: "Worker",
            metadata: metadata.to_string(),
            channel: self.channel(),
        }
    }
}

/// The most threads of a worker.
const MOST_THREADS: usize = 10_000;

/// # Errors
/// Returns an error unless a worker can have this many threads.
pub(crate) fn check_threads(threads: usize) -> Result<()> {
    if threads == 0 {
        return Err(Error::Settings(
            "a worker needs at least one thread".to_owned(),
        ));
    }
    if threads > MOST_THREADS {
        return Err(Error::Settings(format!(
            "a worker cannot have {threads} threads: the most are {MOST_THREADS}; start more workers"
        )));
    }
    Ok(())
}

/// # Errors
/// Returns an error if there are none.
pub(crate) fn check_queues(queues: &[QueueSelector]) -> Result<()> {
    if queues.is_empty() {
        return Err(Error::Settings(
            "a worker needs at least one queue; `*` serves all".to_owned(),
        ));
    }
    Ok(())
}

/// The most classes that a worker names in its row, where `windlass explain` reads them.
const MOST_CLASSES: usize = 500;

// --- The limits after which a worker process is replaced ---

/// The limits after which a worker process is replaced by a new one, to free what jobs leave
/// behind, mostly memory.
///
/// The worker stops claiming, waits for its jobs to finish without a time limit, and exits as at a
/// normal stop. Its supervisor starts the replacement immediately. This does not count as a crash,
/// and no job runs twice because of it.
///
/// ```
/// use std::time::Duration;
/// use windlass::processes::Recycle;
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
    #[doc(hidden)]
    pub after: Option<Duration>,
    #[doc(hidden)]
    pub after_jobs: Option<u64>,
    #[doc(hidden)]
    pub above_memory: Option<u64>,
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
    #[doc(hidden)]
    pub const SOONEST: Duration = Duration::from_secs(1);

    pub(crate) fn is_never(&self) -> bool {
        *self == Self::default()
    }
}
