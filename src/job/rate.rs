//! Rates: how many jobs with the same key may start in a time.

use crate::db::model::rate::{MOST_RATES, MOST_STARTS, NewRate, RatePace, SetPace, burst_of};
use crate::db::table::rates::StartRate;
use crate::error::Error;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Limits how many jobs with the same key start in a time, whatever number of workers there is.
///
/// Set it for a job type in [`Job::rate`](crate::Job::rate), or for one enqueue in
/// [`NewJob::rate`](crate::NewJob::rate). A job may have up to four rates, and waits until all of them let it through.
///
/// ```
/// use serde::{Deserialize, Serialize};
/// use windlass::limits::Rate;
/// use windlass::{Context, Job, JobResult};
///
/// #[derive(Serialize, Deserialize)]
/// struct Push {
///     tenant: String,
///     rows: u32,
/// }
///
/// impl Job for Push {
///     const NAME: &'static str = "push";
///     type State = ();
///     type Output = ();
///
///     /// Ten rows a second for each tenant, and up to twenty at once.
///     fn rate(&self) -> Option<Rate> {
///         let key = format!("api/{}", self.tenant);
///         Some(Rate::per_second(10).burst(20).key(key).cost(self.rows))
///     }
///
///     fn perform(self, _cx: &Context<'_, ()>) -> JobResult {
///         Ok(())
///     }
/// }
///
/// # use diesel::prelude::*;
/// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
/// # windlass::migrate(&mut conn).unwrap();
/// let push = Push { tenant: "acme".into(), rows: 3 };
/// push.enqueue(&mut conn)?;
/// # Ok::<(), windlass::Error>(())
/// ```
///
/// In any `w` seconds, jobs of a key start that cost at most `rate * w + burst` together. A start is the time at which the
/// database notes that a thread has begun the job, by the database's clock. Each start counts, whatever comes of it: a job
/// that is tried again waits and counts once more, and so does one whose process died.
///
/// Jobs of a key start by priority and then age. One that costs more than there is at present waits, and holds up those
/// behind it, so that it is never passed over for ever.
///
/// If jobs with the same key have different rates, that of the job whose turn it is applies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[must_use = "a rate does nothing until a job has it"]
pub struct Rate {
    number: u32,
    period: Duration,
    burst: Option<u32>,
    key: Option<String>,
    cost: u32,
}

const MINUTE: u64 = 60;

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
        Rate::per(number, MINUTE)
    }

    /// Creates a rate of so many starts an hour.
    pub fn per_hour(number: u32) -> Self {
        Rate::per(number, 60 * MINUTE)
    }

    /// Creates a rate of so many starts a day.
    pub fn per_day(number: u32) -> Self {
        Rate::per(number, 24 * 60 * MINUTE)
    }

    /// Sets how many may start at once after a pause. Default: the number of a tenth of a second, or the cost of the job if
    /// that is more: starts are spread evenly.
    ///
    /// A burst that is smaller than the number of a twentieth of a second slows the rate down: tokens are given out every
    /// 20 ms or more.
    pub fn burst(mut self, starts: u32) -> Self {
        self.burst = Some(starts);
        self
    }

    /// Sets the key, whose jobs share the rate, whatever their types are: 1 to 255 bytes without control characters.
    /// Default: the name of the job's type.
    ///
    /// The part before the first `/` is its group, for which a rate can be set at run time: `api/*`.
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Sets how many starts the job counts for, at least 1. Default: 1.
    pub fn cost(mut self, starts: u32) -> Self {
        self.cost = starts;
        self
    }

    /// Returns the key, if it has one of its own.
    #[doc(hidden)]
    pub fn own_key(&self) -> Option<&str> {
        self.key.as_deref()
    }

    /// Returns the pace to set at run time, or the reason why it is invalid.
    pub(crate) fn to_set(&self) -> Result<SetPace, String> {
        let pace = pace(self.number, self.period, self.burst, 1)?;
        Ok(SetPace {
            number: pace.number,
            period: pace.period,
            burst: self.burst.map(i64::from),
        })
    }

    pub(crate) fn has_other_key(&self, other: &Rate) -> bool {
        self.key != other.key
    }

    /// Returns the rate of a job of this class, or the reason why it is invalid.
    fn of_class(&self, class: &str) -> Result<NewRate, String> {
        let key = self.key.clone().unwrap_or_else(|| class.to_owned());
        check_key(&key)?;
        let pace = pace(self.number, self.period, self.burst, self.cost)?;
        let cost = i64::from(self.cost);
        if cost == 0 {
            return Err(format!(
                "its cost for the rate `{key}` is 0; leave the rate out instead"
            ));
        }
        if cost > pace.burst {
            return Err(format!(
                "it costs {cost} starts of the rate `{key}`, which allows {} at once, so it could never start; raise the \
                 burst, or split the job",
                pace.burst
            ));
        }
        Ok(NewRate { key, pace, cost })
    }
}

impl From<windlass_enqueue::Rate> for Rate {
    fn from(shared: windlass_enqueue::Rate) -> Self {
        Rate {
            number: shared.number,
            period: shared.period,
            burst: shared.burst,
            key: shared.key,
            cost: shared.cost,
        }
    }
}

/// Reads a rate as operators write it: `10/s`, `100/m`, `20/h`, `1000/d`.
///
/// ```
/// use windlass::limits::Rate;
///
/// assert_eq!("10/s".parse::<Rate>()?, Rate::per_second(10));
/// assert!("10/x".parse::<Rate>().is_err());
/// # Ok::<(), windlass::Error>(())
/// ```
impl FromStr for Rate {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let wrong = || {
            let text: String = text.chars().take(80).flat_map(char::escape_debug).collect();
            Error::Settings(format!(
                "`{text}` is no rate: write how many starts in a second, a minute, an hour or a day, as `10/s`, `100/m`, \
                 `20/h` or `1000/d`"
            ))
        };
        let (number, unit) = text.trim().split_once('/').ok_or_else(wrong)?;
        let number: u32 = number.trim().parse().map_err(|_| wrong())?;
        match unit.trim() {
            "s" | "sec" | "second" => Ok(Rate::per_second(number)),
            "m" | "min" | "minute" => Ok(Rate::per_minute(number)),
            "h" | "hour" => Ok(Rate::per_hour(number)),
            "d" | "day" => Ok(Rate::per_day(number)),
            _ => Err(wrong()),
        }
    }
}

/// Writes `10/s, 20 at once`, without the key and the cost.
impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let period = i64::try_from(self.period.as_micros()).unwrap_or(i64::MAX);
        let set = SetPace {
            number: self.number.into(),
            period,
            burst: self.burst.map(i64::from),
        };
        StartRate::from(set).fmt(f)
    }
}

/// Checks the key of a rate.
pub(crate) fn check_key(key: &str) -> Result<(), String> {
    match key.is_empty() || key.len() > 255 || key.chars().any(char::is_control) {
        true => {
            Err("the key of its rate must have 1 to 255 bytes and no control character".to_owned())
        }
        false => Ok(()),
    }
}

/// Returns a pace, or the reason why it is invalid.
pub(crate) fn pace(
    number: u32,
    period: Duration,
    burst: Option<u32>,
    cost: u32,
) -> Result<RatePace, String> {
    let (number, micros) = (i64::from(number), i64::try_from(period.as_micros()));
    let period = micros.unwrap_or(i64::MAX);
    let own = burst_of(number, period).max(i64::from(cost));
    let burst = burst.map_or(own, i64::from);
    if number == 0 || burst == 0 || period == 0 {
        return Err(
            "its rate allows no start, so it could never run; pause its queue instead".to_owned(),
        );
    }
    if number > MOST_STARTS || burst > MOST_STARTS {
        return Err(format!(
            "its rate is above {MOST_STARTS} starts; leave it out instead"
        ));
    }
    Ok(RatePace {
        number,
        period,
        burst,
    })
}

/// Returns the rates of a job of this class, or the reason why they are invalid.
pub(crate) fn of_class(rates: &[Rate], class: &str) -> Result<Vec<NewRate>, String> {
    if rates.len() > MOST_RATES {
        return Err(format!(
            "it has {} rates; a job has at most {MOST_RATES}",
            rates.len()
        ));
    }
    let rates: Vec<NewRate> = rates
        .iter()
        .map(|rate| rate.of_class(class))
        .collect::<Result<_, _>>()?;
    for (place, rate) in rates.iter().enumerate() {
        if rates[..place].iter().any(|other| other.key == rate.key) {
            return Err(format!("two of its rates have the key `{}`", rate.key));
        }
    }
    Ok(rates)
}

// --- Rates as programs outside of Rust name them ---

/// The periods that have a name, in microseconds. Another one is an integer of them, up to the longest.
pub(crate) const PERIODS: [(&str, u64); 4] = [
    ("second", 1_000_000),
    ("minute", 60_000_000),
    ("hour", 3_600_000_000),
    ("day", LONGEST),
];

/// The longest period, in microseconds.
pub(crate) const LONGEST: u64 = 86_400_000_000;

/// A rate in an option of a job.
#[derive(Deserialize)]
#[serde(expecting = "a rate, an object with a number and a period")]
struct NamedRate {
    number: u32,
    #[serde(deserialize_with = "period")]
    period: Duration,
    burst: Option<u32>,
    key: Option<String>,
    cost: Option<u32>,
    /// With this, serde reads no list as a rate.
    #[serde(flatten)]
    others: Map<String, Value>,
}

/// Reads the option `rates` of a job.
pub(crate) fn named<'de, D: Deserializer<'de>>(input: D) -> Result<Option<Vec<Rate>>, D::Error> {
    let Some(named) = Option::<Vec<NamedRate>>::deserialize(input)? else {
        return Ok(None);
    };
    let mut rates = Vec::with_capacity(named.len());
    for rate in named {
        if let Some((name, _)) = rate.others.iter().next() {
            let name = name.escape_default();
            return Err(D::Error::custom(format!("a rate has no `{name}`")));
        }
        rates.push(Rate {
            number: rate.number,
            period: rate.period,
            burst: rate.burst,
            key: rate.key,
            cost: rate.cost.unwrap_or(1),
        });
    }
    Ok(Some(rates))
}

fn period<'de, D: Deserializer<'de>>(input: D) -> Result<Duration, D::Error> {
    let value = Value::deserialize(input)?;
    let named = PERIODS.iter().find(|(name, _)| value == *name);
    let micros = named.map(|(_, micros)| *micros).or_else(|| value.as_u64());
    match micros {
        Some(micros) if (1..=LONGEST).contains(&micros) => Ok(Duration::from_micros(micros)),
        _ => Err(D::Error::custom(format!(
            "the period of a rate must be second, minute, hour or day, or an integer of microseconds from 1 to {LONGEST}"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_has_a_key_and_a_burst() {
        let rate = |rate: Rate| rate.of_class("push").unwrap();
        let plain = rate(Rate::per_second(10));
        assert_eq!((&*plain.key, plain.pace.burst, plain.cost), ("push", 1, 1));
        assert_eq!(rate(Rate::per_second(5_000)).pace.burst, 500);
        assert_eq!(rate(Rate::per_day(1_000)).pace.burst, 1);
        assert_eq!(rate(Rate::per_hour(9).cost(3)).pace.burst, 3);
        let own = rate(Rate::per_minute(6).burst(4).key("api/acme"));
        assert_eq!((&*own.key, own.pace.burst), ("api/acme", 4));
        assert_eq!(own.pace.period, 60_000_000);
    }

    #[test]
    fn an_option_names_rates() {
        let read = |text: &str| named(&mut serde_json::Deserializer::from_str(text));
        assert_eq!(read("null").unwrap(), None);
        let all = r#"[{"number": 9, "period": "minute", "burst": 4, "key": "a", "cost": 2}, {"number": 5, "period": 250}]"#;
        let odd = Rate {
            period: Duration::from_micros(250),
            ..Rate::per_second(5)
        };
        let full = Rate::per_minute(9).burst(4).key("a").cost(2);
        assert_eq!(read(all).unwrap(), Some(vec![full, odd]));
        for (text, word) in [
            ("[[9, \"minute\"]]", "an object with a number"),
            (r#"[{"number": 9}]"#, "period"),
            (r#"[{"number": 9, "period": "week"}]"#, "microseconds"),
            (r#"[{"number": 9, "period": 0}]"#, "microseconds"),
            (r#"[{"number": 9, "period": 86400000001}]"#, "microseconds"),
            (r#"[{"number": 9, "period": 1.5}]"#, "microseconds"),
            (r#"[{"number": 9, "period": 1, "burts": 2}]"#, "no `burts`"),
            (r#"[{"number": 9, "number": 1, "period": 1}]"#, "duplicate"),
            (r#"[{"number": -1, "period": 1}]"#, "u32"),
        ] {
            let error = read(text).unwrap_err().to_string();
            assert!(error.contains(word), "{text}: {error}");
        }
    }

    #[test]
    fn rates_are_read_as_operators_write_them() {
        for (text, rate) in [
            ("10/s", Rate::per_second(10)),
            (" 100 / min ", Rate::per_minute(100)),
            ("20/h", Rate::per_hour(20)),
            ("1000/d", Rate::per_day(1_000)),
        ] {
            assert_eq!(text.parse::<Rate>().unwrap(), rate, "{text}");
        }
        for text in [
            "",
            "10",
            "/s",
            "10/x",
            "-1/s",
            "1.5/s",
            "4294967296/s",
            "1/s/s",
            "\u{1f}/s",
        ] {
            let error = text.parse::<Rate>().unwrap_err().to_string();
            assert!(error.contains("is no rate"), "{error}");
            assert!(!error.contains('\u{1f}'), "{error}");
        }
    }

    #[test]
    fn a_rate_that_lets_nothing_through_is_refused() {
        let key = |key: &str| Rate::per_second(1).key(key);
        for (rates, word) in [
            (vec![Rate::per_second(0)], "no start"),
            (vec![Rate::per_second(1).burst(0)], "no start"),
            (vec![Rate::per_second(u32::MAX)], "above"),
            (vec![Rate::per_second(1).cost(0)], "leave the rate out"),
            (vec![Rate::per_second(1).burst(2).cost(3)], "never start"),
            (vec![key("")], "255 bytes"),
            (vec![key(&"x".repeat(256))], "255 bytes"),
            (vec![key("a\u{1f}b")], "control character"),
            (vec![key("a"), key("a")], "two of its rates"),
            (["a", "b", "c", "d", "e"].map(key).to_vec(), "at most 4"),
        ] {
            let error = of_class(&rates, "push").unwrap_err();
            assert!(error.contains(word), "{error}");
        }
    }
}
