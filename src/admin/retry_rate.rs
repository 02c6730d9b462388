//! Retries failed jobs spread over time.

use crate::admin::bulk::change::Change;
use crate::admin::changed::Changed;
use crate::admin::jobs::Jobs;
use crate::clock;
use crate::db::transition::operate::{self, AtMostOnce, RetrySpread};
use crate::db::{AsConn, Conn, own};
use crate::error::{Doing, Error, Result};
use chrono::NaiveDateTime;
use diesel::QueryResult;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::json;
use std::fmt;
use std::ops::ControlFlow;
use std::str::FromStr;
use std::time::Duration;

/// How many jobs are retried in a time: `50/s`, `100/min`, `20/h`, `1000/10m`.
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

    /// Retries jobs, so many after the first one, which is due at `start`.
    pub(crate) fn retry(
        self,
        conn: &mut Conn<'_>,
        jobs: &[i64],
        even_at_most_once: bool,
        start: NaiveDateTime,
        before: u64,
    ) -> QueryResult<Changed> {
        let spread = RetrySpread {
            start,
            before,
            time_for: &|jobs| self.time_for(jobs),
        };
        let even = AtMostOnce::retry_if(even_at_most_once);
        let retried = operate::retry_spread(conn, jobs, even, &spread)?;
        Ok(Changed::of_retry(&retried, jobs.len() as u64))
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
        let per = match unit.trim() {
            "s" | "sec" | "second" => Duration::from_secs(1),
            "m" | "min" | "minute" => Duration::from_secs(60),
            "h" | "hour" => Duration::from_secs(3600),
            time => humantime::parse_duration(time).map_err(|_| wrong())?,
        };
        let jobs = jobs.trim().parse().map_err(|_| wrong())?;
        RetryRate::new(jobs, per)
    }
}

impl fmt::Display for RetryRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.per.as_secs(), self.per.subsec_nanos()) {
            (1, 0) => write!(f, "{}/s", self.jobs),
            (60, 0) => write!(f, "{}/min", self.jobs),
            (3600, 0) => write!(f, "{}/h", self.jobs),
            _ => write!(f, "{}/{}", self.jobs, clock::in_units(self.per)),
        }
    }
}

impl Serialize for RetryRate {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for RetryRate {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        let text = String::deserialize(input)?;
        text.parse().map_err(de::Error::custom)
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
        let failed = self.failed_only();
        let retry = Change::Retry { even_at_most_once };
        let mut trail = failed.trail(retry.action()).parameters(
            json!({ "retry": { "even_at_most_once": even_at_most_once, "rate": rate } })
                .to_string(),
        );
        failed.each_batch(&mut conn, progress, |conn, _, jobs| {
            failed.name_batch(&mut trail, jobs);
            let done = trail.record(
                conn,
                |conn| rate.retry(conn, jobs, even_at_most_once, start, due),
                |done| retry.effect(done),
            );
            let done = done.doing(retry.doing())?;
            due += done.changed;
            Ok(done)
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
            assert_eq!(rate.to_string().parse::<RetryRate>().unwrap(), rate);
        }
        let rate = RetryRate::new(7, Duration::from_millis(90_500)).unwrap();
        assert_eq!(rate.to_string().parse::<RetryRate>().unwrap(), rate);
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
