//! The policy of a job, with the names and the meaning of the policy of the crate `windlass`.

use std::time::Duration;

/// The rules by which a job is run: attempts, timeouts, delivery, uniqueness and the time for which its result is kept.
///
/// A value that is not set is taken from the worker's job type. Every value is stored with the job.
///
/// ```
/// use std::time::Duration;
/// use windlass_enqueue::{Backoff, Policy};
///
/// let policy = Policy::new().max_attempts(5).backoff(Backoff::Exponential {
///     first: Duration::from_secs(10),
///     cap: Duration::from_secs(3600),
/// });
/// assert_eq!(policy.max_attempts, Some(5));
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[must_use = "a policy does nothing until a job type or an enqueue has it"]
#[non_exhaustive]
pub struct Policy {
    /// The number of attempts.
    pub max_attempts: Option<u32>,
    /// The number of times that the process may die during the job.
    pub max_crashes: Option<u32>,
    /// The number of times that the job may start.
    pub delivery: Option<Delivery>,
    /// The delay before the next attempt.
    pub backoff: Option<Backoff>,
    /// The time that one run may take.
    pub timeout: Option<Duration>,
    /// The time within which the job must start.
    pub expires_in: Option<Duration>,
    /// The time within which the job is tried again.
    pub retry_for: Option<Duration>,
    /// The time for which the result is kept.
    pub keep_result: Option<Duration>,
    /// The time for which the job holds its unique id.
    pub unique_scope: Option<UniqueScope>,
    /// The effect of an enqueue whose unique id another job holds.
    pub on_conflict: Option<OnConflict>,
}

impl Policy {
    /// Creates a policy without any values.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets how many attempts the job has before it fails permanently, at least 1. Default: 1.
    ///
    /// Runs that a stop or a crash cut short do not count.
    pub fn max_attempts(mut self, attempts: u32) -> Self {
        self.max_attempts = Some(attempts.max(1));
        self
    }

    /// Sets how many times the process may die during the job before the job fails. Default: 3.
    pub fn max_crashes(mut self, crashes: u32) -> Self {
        self.max_crashes = Some(crashes);
        self
    }

    /// Sets how many times the job may start. Default: at least once.
    pub fn delivery(mut self, delivery: Delivery) -> Self {
        self.delivery = Some(delivery);
        self
    }

    /// Sets the delay before the next attempt. Default: an exponential back-off from 10 s up to 1 h.
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.backoff = Some(backoff);
        self
    }

    /// Sets how long one run may take, counted from the start of the job's code. Default: no limit.
    ///
    /// `Duration::MAX` removes the timeout of the job type.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Discards a job that has not started so long after it is due. Default: it waits forever.
    ///
    /// The database refuses zero.
    pub fn expires_in(mut self, time: Duration) -> Self {
        self.expires_in = Some(time);
        self
    }

    /// Sets until how long after a job is due it is tried again. Default: only the number of attempts counts.
    ///
    /// The database refuses zero.
    pub fn retry_for(mut self, time: Duration) -> Self {
        self.retry_for = Some(time);
        self
    }

    /// Sets how long the job's return value and outcome can be read. Default: 5 min, for jobs that return a value or
    /// have a unique id.
    pub fn keep_result(mut self, time: Duration) -> Self {
        self.keep_result = Some(time);
        self
    }

    /// Sets how long a job with a unique id holds it. Default: until it has finished or failed permanently.
    pub fn unique_scope(mut self, scope: UniqueScope) -> Self {
        self.unique_scope = Some(scope);
        self
    }

    /// Sets what happens to an enqueue if another job holds the unique id. Default: it returns the existing job.
    pub fn on_conflict(mut self, policy: OnConflict) -> Self {
        self.on_conflict = Some(policy);
        self
    }
}

/// The delivery guarantee of a job: how many times it may start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Delivery {
    /// The job runs until the outcome of one run is stored in the database.
    ///
    /// A run that was cut short is repeated, so effects outside the database may happen twice.
    #[default]
    AtLeastOnce,
    /// The job runs once or not at all. It fails, to be checked by hand, if the outcome of its run is unknown.
    AtMostOnce,
}

/// The delay before the next attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Backoff {
    /// The same delay after every attempt.
    Fixed(Duration),
    /// A delay that starts at `first` and doubles with every attempt, up to `cap`.
    ///
    /// Each delay is a random time between half and all of that.
    Exponential {
        /// The delay after the first attempt.
        first: Duration,
        /// The longest delay.
        cap: Duration,
    },
}

/// The time for which a job holds its unique id.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum UniqueScope {
    /// Until a worker has claimed it: one job may run while the next waits.
    WhileWaiting,
    /// Until it has finished, failed permanently, or was cancelled or discarded.
    #[default]
    UntilFinished,
    /// Until its result expires, see [`Policy::keep_result`](Policy::keep_result()).
    UntilResultExpires,
}

impl UniqueScope {
    pub(crate) fn word(self) -> &'static str {
        match self {
            UniqueScope::WhileWaiting => "while_waiting",
            UniqueScope::UntilFinished => "until_finished",
            UniqueScope::UntilResultExpires => "until_result_expires",
        }
    }
}

/// The effect of an enqueue whose unique id another job holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum OnConflict {
    /// Leaves the existing job as it is and returns it.
    #[default]
    Existing,
    /// Refuses: the statement fails.
    Refuse,
    /// Replaces a waiting job's arguments, time and everything else with those of the new one.
    ///
    /// If the existing job runs already, the new one runs after it.
    Replace,
    /// If the existing job runs already, runs the new one after it, once for any number of requests. If it waits,
    /// changes nothing.
    RunAgain,
}

impl OnConflict {
    pub(crate) fn word(self) -> &'static str {
        match self {
            OnConflict::Existing => "existing",
            OnConflict::Refuse => "refuse",
            OnConflict::Replace => "replace",
            OnConflict::RunAgain => "run_again",
        }
    }
}

/// The outcome of a batch on which a job that waits for it runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum On {
    /// All of its jobs have succeeded.
    #[default]
    Success,
    /// All of its jobs have ended, and one of them has failed or was cancelled.
    Failure,
    /// All of its jobs have ended.
    Finish,
}
