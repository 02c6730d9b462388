//! The delays between attempts, and the time limits for the start of a job and for its retries.

use crate::db::model::new_row::NewExpiry;
use crate::job::policy::millis;
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The delay before the next attempt.
///
/// ```
/// use std::time::Duration;
/// use windlass::{Backoff, Policy};
///
/// let policy = Policy::new().max_attempts(5).backoff(Backoff::Fixed(Duration::from_secs(30)));
/// # let _ = policy;
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Backoff {
    /// The same delay after every attempt.
    Fixed(#[serde(with = "crate::job::policy::millis")] Duration),
    /// A delay that starts at `first` and doubles with every attempt, up to `cap`.
    ///
    /// Each delay is a random time between half and all of that, so that jobs which failed together
    /// are not retried together.
    Exponential {
        /// The delay after the first attempt.
        #[serde(with = "crate::job::policy::millis")]
        first: Duration,
        /// The longest delay.
        #[serde(with = "crate::job::policy::millis")]
        cap: Duration,
    },
}

impl Default for Backoff {
    /// Returns an exponential back-off from 10 s up to 1 h.
    fn default() -> Self {
        Backoff::Exponential {
            first: Duration::from_secs(10),
            cap: Duration::from_secs(3600),
        }
    }
}

impl Backoff {
    /// Returns the delay after this attempt, starting at 1.
    pub(crate) fn after(self, attempt: u32) -> Duration {
        match self {
            Backoff::Fixed(delay) => delay,
            Backoff::Exponential { first, cap } => {
                let doubled = 2_u32.saturating_pow(attempt.saturating_sub(1));
                let whole = first.saturating_mul(doubled).min(cap);
                whole.mul_f64(0.5 + 0.5 * fastrand::f64())
            }
        }
    }
}

// --- Limits in time as they are stored ---

/// By when a job has to have started.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Expiry {
    /// So long after it is due.
    In(#[serde(with = "millis")] Duration),
    At(DateTime<Utc>),
}

/// Until when a job may be tried again.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RetryLimit {
    /// So long after it is due.
    For(#[serde(with = "millis")] Duration),
    Until(DateTime<Utc>),
}

impl Expiry {
    /// Returns it as the row of a job has it.
    pub(crate) fn to_store(self) -> NewExpiry {
        match self {
            Expiry::In(time) => NewExpiry::In(time),
            Expiry::At(time) => NewExpiry::At(time.naive_utc()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn delays_double_up_to_the_cap() {
        let backoff = Backoff::Exponential {
            first: SECOND,
            cap: 10 * SECOND,
        };
        for (attempt, whole) in [(1, 1), (2, 2), (3, 4), (5, 10), (u32::MAX, 10)] {
            let delay = backoff.after(attempt);
            assert!(
                delay >= whole * SECOND / 2 && delay <= whole * SECOND,
                "{attempt}: {delay:?}"
            );
        }
    }
}
