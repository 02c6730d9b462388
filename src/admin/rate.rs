//! The rate at which failed jobs are retried.

use crate::clock;
use crate::error::{Error, Result};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// A rate at which jobs are retried: `50/s`, `100/min`, `20/h`, `1000/10m`.
///
/// ```
/// let rate: windlass::failed::RetryRate = "100/min".parse()?;
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
