//! When a recurring task is due: cron text or an interval, in a time zone.
//!
//! Zones are `chrono-tz`'s. The cron fields and the walk along the calendar
//! are few lines of our own: the crates for it read texts that the rules here
//! refuse (`1,,2`, `MONTUE`), take `*/2` among the days for no asterisk, and
//! drop or double what a change of the clock touches.

use crate::error::{Error, Result};
use crate::recurring::cron::Cron;
use crate::recurring::zone;
use chrono::{DateTime, NaiveDateTime, Utc};
use chrono_tz::Tz;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// When a recurring task is due.
///
/// | text | due |
/// |---|---|
/// | `30 3 * * *` | five fields: minute, hour, day of month, month, day of week (0-7, 0 and 7 are Sunday); every day at 3:30 |
/// | `0 30 3 ? * 2-6` | six fields: second first, day of week 1-7 from Sunday to Saturday; Monday to Friday at 3:30 |
/// | `@daily` | also `@yearly`, `@annually`, `@monthly`, `@weekly`, `@midnight`, `@hourly` |
/// | `every 45s` | every 45 seconds; also `every 5m`, `every 1h 30m`, `every 2 days` |
///
/// A field is `*`, a number, a range `1-5`, either of them with a step, `*/10`
/// or `8-18/2`, or several of these with commas between them. `8/5` means from
/// 8 on, every 5. Months and days of the week have names too: `JAN`, `sun`.
/// Where both a day of the month and a day of the week are given, either of
/// them will do; a field that begins with `*` gives none. Of six fields, one
/// of these two may be `?`, which is the same as `*`.
///
/// A time zone may follow: `0 3 * * * Europe/Berlin`. What happens when its
/// clocks change:
///
/// - Where the hour is given (`30 2 * * *`, `0 9-17 * * *`), every time of the
///   clock counts once. What the clock jumps over is due when it has jumped,
///   once, however much it was. What comes twice is due the first time.
/// - Where the hour is `*` or `*/n`, or names all 24, elapsed time counts:
///   `*/15 * * * *` is due every quarter of an hour, whatever the clock does.
///
/// Intervals count from 1970-01-01 00:00 UTC, and so are the same for all
/// schedulers; no zone and no clock change matters to them.
///
/// ```
/// use windlass::Schedule;
///
/// let nightly: Schedule = "30 3 * * MON-FRI Europe/Berlin".parse()?;
/// let friday = "2026-11-20T12:00:00Z".parse().unwrap();
/// let next = nightly.next_after(friday).unwrap();
/// assert_eq!(next.to_string(), "2026-11-23 02:30:00 UTC");
/// # Ok::<(), windlass::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule {
    text: String,
    timing: Timing,
    zone: Option<Tz>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Timing {
    Cron(Cron),
    /// Seconds.
    Every(i64),
}

impl FromStr for Schedule {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::read(text.trim()).map_err(|reason| Error::Schedule {
            text: text
                .chars()
                .take(80)
                .flat_map(char::escape_default)
                .collect(),
            reason,
        })
    }
}

impl Schedule {
    /// The same, in the time zone of this name: `Europe/Berlin`, `UTC`. It
    /// replaces one that the text has named.
    ///
    /// # Errors
    /// When there is no such time zone.
    pub fn in_time_zone(mut self, name: &str) -> Result<Self> {
        self.zone = Some(time_zone(name)?);
        Ok(self)
    }

    /// The name of its time zone; `None`: it has none of its own, and UTC or
    /// the program's counts.
    pub fn time_zone(&self) -> Option<&'static str> {
        self.zone.map(Tz::name)
    }

    /// In this zone, if it has none of its own.
    pub(crate) fn or_in(mut self, zone: Tz) -> Self {
        self.zone.get_or_insert(zone);
        self
    }

    /// The text without the time zone.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The first time after `time` at which it is due. `None`: not before the
    /// year 9999.
    pub fn next_after(&self, time: DateTime<Utc>) -> Option<DateTime<Utc>> {
        self.after(time.naive_utc()).map(|tick| tick.and_utc())
    }

    /// All times after `time` at which it is due, in order.
    pub fn upcoming(&self, time: DateTime<Utc>) -> impl Iterator<Item = DateTime<Utc>> + '_ {
        let next = move |tick: &DateTime<Utc>| self.next_after(*tick);
        std::iter::successors(self.next_after(time), next)
    }

    /// The same in UTC without saying so.
    pub(crate) fn after(&self, time: NaiveDateTime) -> Option<NaiveDateTime> {
        let zone = self.zone.unwrap_or(Tz::UTC);
        let tick = match &self.timing {
            Timing::Every(seconds) => {
                let count = time.and_utc().timestamp().div_euclid(*seconds) + 1;
                DateTime::from_timestamp(count.checked_mul(*seconds)?, 0)?.naive_utc()
            }
            Timing::Cron(cron) => zone::next(cron, zone, time)?,
        };
        use chrono::Datelike as _;
        Some(tick).filter(|tick| tick.year() <= 9999)
    }

    /// The first tick at `time` or after it.
    pub(crate) fn from(&self, time: NaiveDateTime) -> Option<NaiveDateTime> {
        self.after(time.checked_sub_signed(chrono::TimeDelta::microseconds(1))?)
    }

    /// The last tick between `from` and `until`, both of them included.
    pub(crate) fn last_between(
        &self,
        from: NaiveDateTime,
        until: NaiveDateTime,
    ) -> Option<NaiveDateTime> {
        let first = |low| self.from(low).filter(|tick| *tick <= until);
        // Back from the end, as a long time may have passed since `from`.
        let mut width = chrono::TimeDelta::minutes(1);
        let mut last = loop {
            let low = until
                .checked_sub_signed(width)
                .map_or(from, |low| low.max(from));
            match first(low) {
                Some(tick) => break tick,
                None if low == from => return None,
                None => width = width.checked_mul(2)?,
            }
        };
        let mut high = until;
        while high - last > chrono::TimeDelta::seconds(1) {
            let middle = last + (high - last) / 2;
            match first(middle) {
                Some(tick) if tick <= high => last = tick,
                _ => high = middle,
            }
        }
        Some(first(high).unwrap_or(last))
    }

    fn read(text: &str) -> Result<Self, String> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let (words, zone) = match words.split_last() {
            Some((last, rest)) if !rest.is_empty() => match zone_at_the_end(last)? {
                Some(zone) => (rest, Some(zone)),
                None => (&words[..], None),
            },
            _ => (&words[..], None),
        };
        let text = words.join(" ");
        let timing = match words {
            [] => return Err("it is empty".to_owned()),
            [every, rest @ ..] if every.trim_start_matches('@').eq_ignore_ascii_case("every") => {
                Timing::Every(interval(&rest.join(" "))?)
            }
            [name] if name.starts_with('@') => Timing::Cron(Cron::named(name)?),
            fields => Timing::Cron(Cron::of_fields(fields)?),
        };
        Ok(Schedule { text, timing, zone })
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)?;
        match self.zone {
            Some(zone) => write!(f, " {zone}"),
            None => Ok(()),
        }
    }
}

/// The zone of this name.
pub(crate) fn time_zone(name: &str) -> Result<Tz> {
    name.parse().map_err(|_| Error::Schedule {
        text: name
            .chars()
            .take(80)
            .flat_map(char::escape_default)
            .collect(),
        reason: "there is no such time zone; one is `UTC`, another `Europe/Berlin`".to_owned(),
    })
}

/// The last word, if it is the name of a zone.
fn zone_at_the_end(word: &str) -> Result<Option<Tz>, String> {
    if let Ok(zone) = word.parse() {
        return Ok(Some(zone));
    }
    // No step begins with a letter, so a name was meant.
    let is_name = word
        .split_once('/')
        .is_some_and(|(_, after)| after.starts_with(|c: char| c.is_ascii_alphabetic()));
    if is_name {
        return Err(format!("there is no time zone `{}`", word.escape_default()));
    }
    Ok(None)
}

/// Whole seconds, at least one.
fn interval(text: &str) -> Result<i64, String> {
    const WANTED: &str = "after `every` a time of at least a second is wanted, such as `45s`, `5m`, `1h 30m` or `2 days`";
    let units = text.split(|c: char| !c.is_ascii_alphabetic());
    for unit in units {
        if ["M", "month", "months", "y", "yr", "year", "years"].contains(&unit) {
            return Err(format!(
                "`{unit}` has no fixed length: write `@monthly` or five fields"
            ));
        }
    }
    let duration = humantime::parse_duration(text).map_err(|_| WANTED.to_owned())?;
    if duration.subsec_nanos() != 0 || duration < Duration::from_secs(1) {
        return Err(format!("{WANTED}, in whole seconds"));
    }
    i64::try_from(duration.as_secs())
        .ok()
        .filter(|seconds| *seconds <= 1_000 * 366 * 86_400)
        .ok_or_else(|| "an interval has at most 1000 years".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(text: &str, after: &str, count: usize) -> Vec<String> {
        let schedule: Schedule = text.parse().unwrap();
        let after: DateTime<Utc> = after.parse().unwrap();
        let ticks = schedule.upcoming(after).take(count);
        ticks
            .map(|tick| tick.format("%a %Y-%m-%d %H:%M:%S").to_string())
            .collect()
    }

    #[test]
    fn fields_are_read_by_the_rules_of_their_number() {
        let saturday = "2026-11-21T12:00:00Z";
        for (text, ticks) in [
            (
                "30 3 * * *",
                ["Sun 2026-11-22 03:30:00", "Mon 2026-11-23 03:30:00"],
            ),
            (
                "0 0 * * 0",
                ["Sun 2026-11-22 00:00:00", "Sun 2026-11-29 00:00:00"],
            ),
            (
                "0 0 * * 7",
                ["Sun 2026-11-22 00:00:00", "Sun 2026-11-29 00:00:00"],
            ),
            (
                "0 0 0 ? * 1",
                ["Sun 2026-11-22 00:00:00", "Sun 2026-11-29 00:00:00"],
            ),
            (
                "0 0 0 ? * 7",
                ["Sat 2026-11-28 00:00:00", "Sat 2026-12-05 00:00:00"],
            ),
            (
                "0 0 0 ? * fri-Mon",
                ["Sun 2026-11-22 00:00:00", "Mon 2026-11-23 00:00:00"],
            ),
            (
                "0 0 * * SAT-SUN",
                ["Sun 2026-11-22 00:00:00", "Sat 2026-11-28 00:00:00"],
            ),
            (
                "0 0 * * */2",
                ["Sun 2026-11-22 00:00:00", "Tue 2026-11-24 00:00:00"],
            ),
            (
                "0 0 0 * * */3",
                ["Sun 2026-11-22 00:00:00", "Wed 2026-11-25 00:00:00"],
            ),
            // Either day will do, unless one field begins with an asterisk.
            (
                "0 0 25 * MON",
                ["Mon 2026-11-23 00:00:00", "Wed 2026-11-25 00:00:00"],
            ),
            (
                "0 0 0 25 * MON",
                ["Mon 2026-11-23 00:00:00", "Wed 2026-11-25 00:00:00"],
            ),
            (
                "0 0 */2 * MON",
                ["Mon 2026-11-23 00:00:00", "Mon 2026-12-07 00:00:00"],
            ),
            (
                "0 0 29 feb *",
                ["Tue 2028-02-29 00:00:00", "Sun 2032-02-29 00:00:00"],
            ),
            (
                "*/20 8/10 * * *",
                ["Sat 2026-11-21 18:00:00", "Sat 2026-11-21 18:20:00"],
            ),
            (
                "5-7/2,9 12 * * *",
                ["Sat 2026-11-21 12:05:00", "Sat 2026-11-21 12:07:00"],
            ),
            (
                "15/30 0 12 ? * *",
                ["Sat 2026-11-21 12:00:15", "Sat 2026-11-21 12:00:45"],
            ),
            (
                "@daily",
                ["Sun 2026-11-22 00:00:00", "Mon 2026-11-23 00:00:00"],
            ),
            (
                "@Hourly Asia/Kolkata",
                ["Sat 2026-11-21 12:30:00", "Sat 2026-11-21 13:30:00"],
            ),
            (
                "every 45s",
                ["Sat 2026-11-21 12:00:45", "Sat 2026-11-21 12:01:30"],
            ),
            (
                "@every 1h 30m",
                ["Sat 2026-11-21 13:30:00", "Sat 2026-11-21 15:00:00"],
            ),
        ] {
            assert_eq!(next(text, saturday, 2), ticks, "{text}");
        }
    }

    #[test]
    fn what_no_rule_allows_is_refused() {
        for text in [
            "",
            "*",
            "* * * *",
            "0 0 0 1 1 ? 2026",
            "60 * * * *",
            "* 24 * * *",
            "0 0 0 * *",
            "0 0 * * 8",
            "0 0 0 * * 0",
            "0 0 ? * *",
            "0 0 0 ? * ?",
            "? 0 0 * * *",
            "*/0 * * * *",
            "*/60 * * * *",
            "1,,2 * * * *",
            "1, * * * *",
            "5-1 * * * *",
            "-1 * * * *",
            "+1 * * * *",
            "1- * * * *",
            "1/ * * * *",
            "0 0 30 2 *",
            "0 0 31 4,6 *",
            "0 0 L * *",
            "0 0 * * MONTUE",
            "0 0 * JANUARY *",
            "0 0 1#2 * *",
            "@reboot",
            "@dayly",
            "every",
            "every 0s",
            "every 500ms",
            "every 1500ms",
            "every 1month",
            "every 2000years",
            "every -5s",
            "every day",
            "0 3 * * * Europe/Berln",
            "0 3 * * * Berlin",
            "0 3 * * * UTC UTC",
        ] {
            let result = text.parse::<Schedule>();
            assert!(
                matches!(result, Err(Error::Schedule { .. })),
                "{text}: {result:?}"
            );
        }
        let error = "61 * * * *".parse::<Schedule>().unwrap_err().to_string();
        assert_eq!(
            error,
            "`61 * * * *` is no schedule: `61` is no minute, which is 0 to 59, a range of these or `*`, \
             and may have a step above zero"
        );
        let error = "10-5 * * * *".parse::<Schedule>().unwrap_err().to_string();
        assert!(error.contains("`10-5` runs backwards"), "{error}");
        assert!(error.contains("write `10-59,0-5`"), "{error}");
        assert!("10-59,0-5 * * * *".parse::<Schedule>().is_ok());
        let error = "1,,2 * * * *".parse::<Schedule>().unwrap_err().to_string();
        assert!(error.contains("before or after a comma"), "{error}");
    }

    #[test]
    fn the_text_says_it_all() {
        let schedule: Schedule = "  0 3 *  * * Europe/Berlin ".parse().unwrap();
        assert_eq!(schedule.to_string(), "0 3 * * * Europe/Berlin");
        assert_eq!(schedule.text(), "0 3 * * *");
        assert_eq!(schedule.time_zone(), Some("Europe/Berlin"));
        let utc = schedule.in_time_zone("UTC").unwrap();
        assert_eq!(utc.to_string(), "0 3 * * * UTC");
        assert!(utc.in_time_zone("Mars/Olympus").is_err());
    }

    #[test]
    fn the_last_tick_is_found_however_long_ago() {
        let time = |text: &str| NaiveDateTime::parse_from_str(text, "%Y-%m-%d %H:%M:%S").unwrap();
        let now = time("2026-11-21 12:00:30");
        for (text, last) in [
            ("* * * * * *", Some("2026-11-21 12:00:30")),
            ("* * * * *", Some("2026-11-21 12:00:00")),
            ("every 45s", Some("2026-11-21 12:00:00")),
            ("* * * 1 11 ?", Some("2026-11-01 23:59:59")),
            ("0 0 29 2 *", Some("2024-02-29 00:00:00")),
            ("0 0 1 1 *", Some("2026-01-01 00:00:00")),
            ("30 0 12 21 11 ?", None),
        ] {
            let schedule: Schedule = text.parse().unwrap();
            let from = match last {
                Some(_) => time("2023-01-01 00:00:00"),
                None => time("2026-11-21 12:00:31"),
            };
            let now = if last.is_none() { from } else { now };
            assert_eq!(schedule.last_between(from, now), last.map(time), "{text}");
        }
        let schedule: Schedule = "@daily".parse().unwrap();
        let midnight = time("2026-11-21 00:00:00");
        assert_eq!(schedule.last_between(midnight, now), Some(midnight));
        assert_eq!(
            schedule.last_between(time("2026-11-21 00:00:01"), now),
            None
        );
    }
}
