//! How long to wait between attempts.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// How long to wait before the next attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Backoff {
    /// The same time after every attempt.
    Fixed(#[serde(with = "crate::job::millis")] Duration),
    /// `first` after the first attempt, twice as long after every further
    /// one, up to `cap`. Each delay is between half and the whole of that, so
    /// that jobs which failed together do not come back together.
    Exponential {
        /// After the first attempt.
        #[serde(with = "crate::job::millis")]
        first: Duration,
        /// The longest delay.
        #[serde(with = "crate::job::millis")]
        cap: Duration,
    },
}

impl Default for Backoff {
    /// Exponential, from 10 seconds up to an hour.
    fn default() -> Self {
        Backoff::Exponential {
            first: Duration::from_secs(10),
            cap: Duration::from_secs(3600),
        }
    }
}

impl Backoff {
    /// The delay after this attempt; 1 is the first.
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
