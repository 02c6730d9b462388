//! Retries failed jobs spread over time.

use crate::admin::changed::Changed;
use crate::admin::jobs::Jobs;
use crate::db::transition::operate::retry::{self, AtMostOnce, RetrySpread};
use crate::db::{AsConn, own};
use crate::error::{Doing, Error, Result};
use std::fmt;
use std::ops::ControlFlow;
use std::str::FromStr;
use std::time::Duration;

/// How many jobs are retried in a time: `50/s`, `100/min`, `20/h`.
///
/// ```
/// let rate: windlass::RetryRate = "100/min".parse()?;
/// assert_eq!(rate.time_for(200).as_secs(), 120);
/// # Ok::<(), windlass::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryRate {
    jobs: u32,
    per: Duration,
}

impl RetryRate {
    /// Returns the rate of this many jobs in this time.
    ///
    /// # Errors
    /// If one of them is zero, or it is more than a million jobs a second.
    pub fn new(jobs: u32, per: Duration) -> Result<Self> {
        let rate = RetryRate { jobs, per };
        if jobs == 0 || per < Duration::from_micros(jobs.into()) {
            return Err(Error::Settings(
                "a rate needs at least one job, and at most a million jobs a second".to_owned(),
            ));
        }
        Ok(rate)
    }

    /// Returns the time that so many jobs take.
    pub fn time_for(self, jobs: u64) -> Duration {
        let micros = self.per.as_micros().saturating_mul(jobs.into()) / u128::from(self.jobs);
        Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
    }
}

impl FromStr for RetryRate {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = || {
            Error::Settings(format!(
                "`{}` is not a rate: write how many jobs in a second, a minute or an hour, as `50/s`, \
                 `100/min` or `20/h`",
                text.chars()
                    .take(80)
                    .flat_map(char::escape_default)
                    .collect::<String>()
            ))
        };
        let (jobs, unit) = text.trim().split_once('/').ok_or_else(wrong)?;
        let seconds = match unit.trim() {
            "s" | "sec" | "second" => 1,
            "m" | "min" | "minute" => 60,
            "h" | "hour" => 3600,
            _ => return Err(wrong()),
        };
        let jobs = jobs.trim().parse().map_err(|_| wrong())?;
        RetryRate::new(jobs, Duration::from_secs(seconds))
    }
}

impl fmt::Display for RetryRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.jobs, humantime::format_duration(self.per))
    }
}

impl Jobs {
    /// Retries the failed jobs of this selection, spread over time: the first is due at once, each
    /// further one a little later, by the database's clock. Until then they are scheduled jobs, which
    /// need a dispatcher. All have their attempts available again.
    ///
    /// The jobs are changed in batches of 500, each in one transaction. After each, `progress` gets
    /// the totals; on [`ControlFlow::Break`] the other jobs stay as they are.
    ///
    /// # Errors
    /// If the database does not answer or has no tables; completed batches stay changed.
    pub fn retry_at_rate<C: AsConn + ?Sized>(
        &self,
        conn: &mut C,
        rate: RetryRate,
        even_at_most_once: bool,
        progress: impl FnMut(&Changed) -> ControlFlow<()>,
    ) -> Result<Changed> {
        let mut conn = own(conn);
        let start = crate::db::table::recurring_tasks::now(&mut conn).doing("read the time")?;
        let mut due = 0;
        self.failed_only()
            .each_batch(&mut conn, progress, |conn, _, jobs| {
                let spread = RetrySpread {
                    start,
                    before: due,
                    time_for: &|jobs| rate.time_for(jobs),
                };
                let even = AtMostOnce::retry_if(even_at_most_once);
                let retried = retry::retry_spread(conn, jobs, even, &spread).doing("retry jobs")?;
                due += retried.ready.len() as u64;
                Ok(Changed::of_retry(&retried, jobs.len() as u64))
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read() {
        for (text, seconds) in [("50/s", 20), (" 100 / min ", 600), ("20/h", 180_000)] {
            let rate: RetryRate = text.parse().unwrap();
            assert_eq!(rate.time_for(1000), Duration::from_secs(seconds), "{text}");
        }
        for text in [
            "",
            "50",
            "50/",
            "/s",
            "0/s",
            "-1/s",
            "1.5/s",
            "5/day",
            "2000000/s",
            "5/s/s",
        ] {
            assert!(text.parse::<RetryRate>().is_err(), "{text}");
        }
    }
}
