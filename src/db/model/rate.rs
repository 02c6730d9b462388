//! Rates of starts: how a job names them, and the bucket of tokens of a key.
//!
//! The bucket is that of the generic cell rate algorithm (ITU-T I.371, annex A): it holds at most `burst` tokens, fills at
//! the rate, and a start takes what it costs. So in a window of `w` seconds, no more than `rate * w + burst` jobs start. A
//! promotion makes a job ready only if the bucket has its tokens beside those of the jobs that are ready already and have
//! not started: whenever these start, the tokens are there. A promotion takes them when it first sees that the jobs have
//! started. That is not before the start: a bucket from which tokens are taken later never has more.

use serde::{Deserialize, Serialize};

/// A rate of a new job, as it is stored with the job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NewRate {
    pub(crate) key: String,
    #[serde(flatten)]
    pub(crate) pace: RatePace,
    /// The tokens that the job takes.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub(crate) cost: i64,
}

impl NewRate {
    /// Returns it with numbers that can be computed with, whatever was stored.
    pub(crate) fn checked(self) -> Self {
        let RatePace {
            number,
            period,
            burst,
        } = self.pace;
        NewRate {
            pace: RatePace {
                number: number.clamp(1, MOST_STARTS),
                period: period.clamp(1, LONGEST_PERIOD),
                burst: burst.clamp(1, MOST_STARTS),
            },
            cost: self.cost.clamp(1, MOST_STARTS),
            ..self
        }
    }
}

/// A day, in microseconds.
const LONGEST_PERIOD: i64 = 86_400_000_000;

fn one() -> i64 {
    1
}

#[allow(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_one(cost: &i64) -> bool {
    *cost == 1
}

/// So many starts in a period, and so many at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RatePace {
    pub(crate) number: i64,
    /// In microseconds.
    pub(crate) period: i64,
    pub(crate) burst: i64,
}

impl RatePace {
    /// The pace of a key that was closed before a job had it: its bucket is full, whatever the pace of that job is.
    pub(crate) const LOOSE: RatePace = RatePace {
        number: MOST_STARTS,
        period: 1,
        burst: MOST_STARTS,
    };
}

/// A pace that was set at run time. Without a burst it has that of a job's rate: see [`burst_of`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SetPace {
    pub(crate) number: i64,
    /// In microseconds.
    pub(crate) period: i64,
    pub(crate) burst: Option<i64>,
}

impl SetPace {
    /// Returns the pace for a job of this cost, with numbers that can be computed with, whatever was stored.
    pub(crate) fn for_cost(self, cost: i64) -> RatePace {
        let number = self.number.clamp(1, MOST_STARTS);
        let period = self.period.clamp(1, LONGEST_PERIOD);
        let burst = self
            .burst
            .unwrap_or_else(|| burst_of(number, period).max(cost));
        RatePace {
            number,
            period,
            burst: burst.clamp(1, MOST_STARTS),
        }
    }
}

/// Returns the burst of a rate that names none: the starts of a tenth of a second, and at least 1.
pub(crate) fn burst_of(number: i64, period: i64) -> i64 {
    (number * 100_000 / period.max(1)).max(1)
}

/// The most starts of a period, and of a burst: the products below stay in 64 bits.
pub(crate) const MOST_STARTS: i64 = 10_000_000;

/// The most rates of one job.
pub(crate) const MOST_RATES: usize = 4;

// --- The bucket of a key ---

/// Jobs that a promotion has made ready, and that have not started, as far as was seen: the time of the promotion, the
/// tokens that each takes, and their ids.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PromisedJobs(pub(crate) i64, pub(crate) i64, pub(crate) Vec<i64>);

impl PromisedJobs {
    /// Returns the tokens that they take together, whatever was stored.
    fn tokens(&self) -> i64 {
        let each = self.1.clamp(0, MOST_STARTS);
        each.saturating_mul(self.2.len() as i64)
    }

    /// Returns the tokens of all.
    pub(crate) fn all(jobs: &[PromisedJobs]) -> i64 {
        jobs.iter()
            .fold(0, |sum: i64, jobs| sum.saturating_add(jobs.tokens()))
    }
}

/// The tokens of a key. Times are microseconds of the database's clock without its steps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RateBucket {
    pub(crate) pace: RatePace,
    /// The tokens that are there, in parts: [`RatePace::period`] parts are a token.
    pub(crate) level: i64,
    /// The time of the level.
    pub(crate) counted_at: i64,
}

impl RateBucket {
    /// Returns a full bucket.
    pub(crate) fn full(pace: RatePace, now: i64) -> Self {
        RateBucket {
            pace,
            level: pace.parts(pace.burst),
            counted_at: now,
        }
    }

    /// Changes the pace, and keeps the tokens that are there.
    pub(crate) fn change(&mut self, pace: RatePace) {
        if self.pace == pace {
            return;
        }
        let level = i128::from(self.level) * i128::from(pace.period);
        let level = level.div_euclid(i128::from(self.pace.period.max(1)));
        self.level = i64::try_from(level).unwrap_or(i64::MIN);
        self.level = self.level.min(pace.parts(pace.burst));
        self.pace = pace;
    }

    /// Fills it for the time since it was counted. A time before that, as two starts may be noted in another order, changes
    /// nothing.
    pub(crate) fn fill(&mut self, now: i64) {
        let passed = i128::from(now) - i128::from(self.counted_at);
        if passed <= 0 {
            return;
        }
        let filled = i128::from(self.level) + passed * i128::from(self.pace.number);
        let most = i128::from(self.pace.parts(self.pace.burst));
        self.level = i64::try_from(filled.min(most)).unwrap_or(i64::MAX);
        self.counted_at = now;
    }

    /// Takes the tokens of starts that were seen at this time.
    pub(crate) fn take(&mut self, seen_at: i64, cost: i64) {
        self.fill(seen_at);
        self.level = self.level.saturating_sub(self.pace.parts(cost));
    }

    /// Returns the tokens that are there beside those that are promised to jobs that have not started.
    pub(crate) fn room(&self, promised: i64) -> i64 {
        let level = self.level.div_euclid(self.pace.period.max(1));
        level.saturating_sub(promised).max(0)
    }

    /// Returns the microseconds until it has `wanted` tokens, or `None` if it never has as many.
    pub(crate) fn wait(&self, wanted: i64) -> Option<i64> {
        if wanted > self.pace.burst {
            return None;
        }
        let missing = i128::from(self.pace.parts(wanted)) - i128::from(self.level);
        let number = i128::from(self.pace.number.max(1));
        let wait = (missing.max(0) + number - 1) / number;
        i64::try_from(wait).ok()
    }
}

impl RatePace {
    fn parts(self, tokens: i64) -> i64 {
        tokens.saturating_mul(self.period)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000;

    fn pace(number: i64, burst: i64) -> RatePace {
        RatePace {
            number,
            period: SECOND,
            burst,
        }
    }

    #[test]
    fn a_bucket_fills_at_its_rate_and_no_further_than_its_burst() {
        let mut bucket = RateBucket::full(pace(10, 2), 0);
        assert_eq!((bucket.room(0), bucket.room(1), bucket.room(5)), (2, 1, 0));
        bucket.take(0, 1);
        bucket.take(0, 1);
        assert_eq!((bucket.room(0), bucket.wait(1)), (0, Some(100_000)));
        bucket.fill(99_999);
        assert_eq!((bucket.room(0), bucket.wait(1)), (0, Some(1)));
        bucket.fill(100_000);
        assert_eq!(bucket.room(0), 1);
        bucket.fill(100 * SECOND);
        assert_eq!((bucket.room(0), bucket.wait(3)), (2, None));
        // The clock went back: nothing is gained.
        bucket.take(0, 2);
        bucket.fill(50 * SECOND);
        assert_eq!(bucket.room(0), 0);
    }

    #[test]
    fn another_pace_keeps_the_tokens() {
        let mut bucket = RateBucket::full(pace(10, 8), 0);
        bucket.take(0, 4);
        bucket.change(RatePace {
            number: 3,
            period: 60 * SECOND,
            burst: 6,
        });
        assert_eq!((bucket.room(0), bucket.wait(5)), (4, Some(20 * SECOND)));
        bucket.change(pace(10, 2));
        assert_eq!(bucket.room(0), 2);
    }

    /// Whatever is promised and whenever it starts: no window has too many starts.
    #[test]
    fn no_window_has_too_many_starts() {
        let mut random = fastrand::Rng::with_seed(46);
        for _ in 0..200 {
            let pace = pace(random.i64(1..50), random.i64(1..8));
            let mut bucket = RateBucket::full(pace, 0);
            let (mut now, mut promised) = (0, 0_i64);
            let (mut noted, mut starts): (Vec<i64>, Vec<i64>) = (Vec::new(), Vec::new());
            for _ in 0..300 {
                now += random.i64(0..300_000);
                if random.bool() && promised > 0 {
                    promised -= 1;
                    noted.push(now);
                    starts.push(now);
                    continue;
                }
                // A promotion learns of the starts since the last one.
                let unnoted = random.usize(0..=noted.len());
                let waiting = promised + unnoted as i64;
                let seen = noted.drain(unnoted..).count() as i64;
                bucket.take(now, seen);
                bucket.fill(now);
                promised += random.i64(0..=bucket.room(waiting));
            }
            for (first, from) in starts.iter().enumerate() {
                for (last, to) in starts.iter().enumerate().skip(first) {
                    let count = (last - first + 1) as i64;
                    let most = (to - from) * pace.number + pace.parts(pace.burst);
                    assert!(
                        pace.parts(count) <= most,
                        "{pace:?}: {count} in {}",
                        to - from
                    );
                }
            }
        }
    }
}
