//! Rates: how many jobs with the same key may start in a time.

use serde_json::{Map, Value};
use std::time::Duration;

/// Limits how many jobs with the same key start in a time, whatever number of workers there is.
///
/// ```
/// use windlass_enqueue::{NewJob, Rate};
///
/// // Ten pushes to acme start in a second, and up to twenty at once after a pause.
/// let rate = Rate::per_second(10).burst(20).key("api/acme");
/// let job = NewJob::of_class("push", r#"{"rows": 3}"#).rate(rate);
/// # let _ = job;
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "a rate does nothing until a job has it"]
#[non_exhaustive]
pub struct Rate {
    /// The number of starts in the period.
    pub number: u32,
    /// The period, of at most a day.
    pub period: Duration,
    /// The number of jobs that may start at once after a pause.
    pub burst: Option<u32>,
    /// The key. `None` is the class of the job.
    pub key: Option<String>,
    /// The number of starts that the job counts for.
    pub cost: u32,
}

impl Rate {
    fn per(number: u32, seconds: u64) -> Self {
        Rate {
            number,
            period: Duration::from_secs(seconds),
            burst: None,
            key: None,
            cost: 1,
        }
    }

    /// Creates a rate of so many starts a second.
    pub fn per_second(number: u32) -> Self {
        Rate::per(number, 1)
    }

    /// Creates a rate of so many starts a minute.
    pub fn per_minute(number: u32) -> Self {
        Rate::per(number, 60)
    }

    /// Creates a rate of so many starts an hour.
    pub fn per_hour(number: u32) -> Self {
        Rate::per(number, 3_600)
    }

    /// Creates a rate of so many starts a day.
    pub fn per_day(number: u32) -> Self {
        Rate::per(number, 86_400)
    }

    /// Sets how many may start at once after a pause. Default: the number of a tenth of a second, but at least 1 and the cost.
    pub fn burst(mut self, starts: u32) -> Self {
        self.burst = Some(starts);
        self
    }

    /// Sets the key, whose jobs share the rate, whatever their types are: 1 to 255 bytes without control characters.
    /// Default: the name of the job's type.
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Sets how many starts the job counts for, at least 1. Default: 1.
    pub fn cost(mut self, starts: u32) -> Self {
        self.cost = starts;
        self
    }

    /// Returns the rate as an element of the column.
    pub(crate) fn to_json(&self) -> Value {
        let period = u64::try_from(self.period.as_micros()).unwrap_or(u64::MAX);
        let parts = [
            ("number", Some(Value::from(self.number))),
            ("period", Some(Value::from(period))),
            ("burst", self.burst.map(Value::from)),
            ("key", self.key.as_deref().map(Value::from)),
            ("cost", (self.cost != 1).then(|| Value::from(self.cost))),
        ];
        let set = parts.into_iter();
        let set = set.filter_map(|(name, value)| Some((name.to_owned(), value?)));
        Value::Object(set.collect::<Map<String, Value>>())
    }
}
