//! The schedule of a recurring task: cron text or an interval, in a time zone.
//!
//! The cron fields and the calendar search are implemented here in
//! a few lines. Existing crates accept texts that are rejected here (`1,,2`, `MONTUE`), and do not
//! treat `*/2` among the days as an asterisk. They also drop or repeat times that a clock change
//! affects.

use crate::error::{Error, Result};
use crate::queue::check_name;
use crate::recurring::cron::{self, Cron};
use crate::recurring::in_words;
use crate::recurring::time_zone::{self, Zone};
use chrono::{DateTime, NaiveDateTime, Utc};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// The schedule of a recurring task.
///
/// | text | due |
/// |---|---|
/// | `30 3 * * *` | five fields: minute, hour, day of month, month, day of week (0-7, 0 and 7 are Sunday); every day at 3:30 |
/// | `0 30 3 ? * 2-6` | six fields: second first, day of week 1-7 from Sunday to Saturday; Monday to Friday at 3:30 |
/// | `@daily` | also `@yearly`, `@annually`, `@monthly`, `@weekly`, `@midnight`, `@hourly` |
/// | `@start` | once for each deployment, when its first scheduler starts; see [`Scheduler::deployment`](crate::Scheduler::deployment) |
/// | `@timing NAME` | when a [`Timing`](crate::recurring::Timing) of the program says |
/// | `every 45s` | every 45 seconds; also `every 5m`, `every 1h 30m`, `every 2 days` |
///
/// A field is `*`, a number or a range `1-5`. A step may follow, as in `*/10` or `8-18/2`; `8/5`
/// means every 5 from 8 on. Several of these may be separated by commas. Months and days of the
/// week also have names: `JAN`, `sun`.
///
/// If both a day of the month and a day of the week are given, a day that matches either is enough.
/// A field that starts with `*` does not count as given. In six fields, one of these two may be
/// `?`, which means the same as `*`.
///
/// A time zone may follow: `0 3 * * * Europe/Berlin`. When its clocks change:
///
/// - If the hour is given (`30 2 * * *`, `0 9-17 * * *`), every clock time counts once. If the
///   clock skips one or more due times, the task is due once, right after the change. If a time
///   occurs twice, the task is due the first time.
/// - If the hour is `*` or `*/n`, or lists all 24, elapsed time counts: `*/15 * * * *` is due every
///   15 minutes, whatever the clock shows.
///
/// Intervals count from 1970-01-01 00:00 UTC, so they are the same for all schedulers and
/// independent of time zones and clock changes.
///
/// ```
/// use windlass::recurring::Schedule;
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
    rule: TickRule,
    zone: Option<Zone>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum TickRule {
    Cron(Cron),
    /// Seconds.
    Every(i64),
    /// The start of a deployment.
    Start,
    /// The timing of a program, by its name.
    Named(String),
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
    /// Sets the time zone by name, such as `Europe/Berlin` or `UTC`. It replaces a time zone in the
    /// text.
    ///
    /// # Errors
    /// If there is no such time zone.
    pub fn in_time_zone(mut self, name: &str) -> Result<Self> {
        self.zone = Some(time_zone(name)?);
        Ok(self)
    }

    /// Returns the name of its time zone. Returns `None` if it has none, and uses the scheduler's,
    /// which is UTC by default.
    pub fn time_zone(&self) -> Option<&'static str> {
        self.zone.map(Zone::name)
    }

    /// Sets the time zone, if it has none of its own.
    pub(crate) fn or_in(mut self, zone: Zone) -> Self {
        self.zone.get_or_insert(zone);
        self
    }

    /// Returns the text without the time zone.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns its times in English, with its time zone.
    ///
    /// Two schedules with different times have different words, except for `@timing`.
    ///
    /// ```
    /// use windlass::recurring::Schedule;
    ///
    /// let weekdays: Schedule = "0 9 * * MON-FRI Europe/Berlin".parse()?;
    /// assert_eq!(weekdays.in_words(), "At 09:00 from Monday to Friday, Europe/Berlin");
    /// let often: Schedule = "every 5m".parse()?;
    /// assert_eq!(often.in_words(), "Every 5 minutes");
    /// # Ok::<(), windlass::Error>(())
    /// ```
    pub fn in_words(&self) -> String {
        match &self.rule {
            TickRule::Start => "When a new deployment starts".to_owned(),
            TickRule::Named(name) => format!("At the times of the program's timing {name}"),
            TickRule::Every(seconds) => in_words::of_interval(*seconds),
            TickRule::Cron(cron) => match self.time_zone().unwrap_or("UTC") {
                "UTC" if in_words::needs_no_zone(cron) => in_words::of_cron(cron),
                zone => format!("{}, {zone}", in_words::of_cron(cron)),
            },
        }
    }

    /// Returns a text from which Ruby's `fugit` computes the same times, as far as it can.
    ///
    /// It knows nothing of deployments and of timings: for these it gets a line that it can read.
    pub(crate) fn in_ruby(&self) -> String {
        match &self.rule {
            TickRule::Start | TickRule::Named(_) => cron::UNKNOWN.to_owned(),
            TickRule::Every(seconds) => cron::of_interval(*seconds),
            TickRule::Cron(cron) => cron::of_cron(cron, self.time_zone().unwrap_or("UTC")),
        }
    }

    /// Returns the first due time after `time`. Returns `None` if there is none before the year
    /// 9999, and for `@start` and `@timing`, whose times are not in the text.
    pub fn next_after(&self, time: DateTime<Utc>) -> Option<DateTime<Utc>> {
        self.after(time.naive_utc()).map(|tick| tick.and_utc())
    }

    /// Returns all due times after `time`, in order.
    pub fn upcoming(&self, time: DateTime<Utc>) -> impl Iterator<Item = DateTime<Utc>> + '_ {
        let next = move |tick: &DateTime<Utc>| self.next_after(*tick);
        std::iter::successors(self.next_after(time), next)
    }

    /// Does the same with times in UTC that carry no zone.
    pub(crate) fn after(&self, time: NaiveDateTime) -> Option<NaiveDateTime> {
        let zone = self.zone.unwrap_or(Zone::UTC);
        let tick = match &self.rule {
            TickRule::Start | TickRule::Named(_) => return None,
            TickRule::Every(seconds) => {
                let count = time.and_utc().timestamp().div_euclid(*seconds) + 1;
                DateTime::from_timestamp(count.checked_mul(*seconds)?, 0)?.naive_utc()
            }
            TickRule::Cron(cron) => time_zone::next(cron, zone, time)?,
        };
        use chrono::Datelike as _;
        Some(tick).filter(|tick| tick.year() <= 9999)
    }

    /// Returns whether it is due at the start of a deployment.
    pub(crate) fn is_start(&self) -> bool {
        self.rule == TickRule::Start
    }

    /// Returns the name of the timing that computes its due times, if a program does.
    #[doc(hidden)]
    pub fn named(&self) -> Option<&str> {
        match &self.rule {
            TickRule::Named(name) => Some(name),
            _ => None,
        }
    }

    /// Returns the first tick at `time` or after it.
    pub(crate) fn from(&self, time: NaiveDateTime) -> Option<NaiveDateTime> {
        self.after(time.checked_sub_signed(chrono::TimeDelta::microseconds(1))?)
    }

    /// Returns the last tick between `from` and `until`, both included.
    pub(crate) fn last_between(
        &self,
        from: NaiveDateTime,
        until: NaiveDateTime,
    ) -> Option<NaiveDateTime> {
        let first = |low| self.from(low).filter(|tick| *tick <= until);
        // The search goes back from the end, because `from` may be long ago.
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
            // The name of a timing may look like one of a zone.
            Some(_) if words.len() == 2 && words[0] == "@timing" => (&words[..], None),
            Some((last, rest)) if !rest.is_empty() => match zone_at_the_end(last)? {
                Some(zone) => (rest, Some(zone)),
                None => (&words[..], None),
            },
            _ => (&words[..], None),
        };
        let text = words.join(" ");
        let rule = match words {
            ["@start"] => TickRule::Start,
            ["@timing", name] => {
                check_name(name, "timing").map_err(|error| error.to_string())?;
                TickRule::Named((*name).to_owned())
            }
            ["@timing", ..] => return Err("`@timing` needs the name of a timing".to_owned()),
            [] => return Err("it is empty".to_owned()),
            [every, rest @ ..] if every.trim_start_matches('@').eq_ignore_ascii_case("every") => {
                TickRule::Every(interval(&rest.join(" "))?)
            }
            [name, rest @ ..] if name.starts_with('@') => {
                let cron = Cron::named(name)?;
                match rest.last() {
                    Some(zone) => return Err(no_zone(zone)),
                    None => TickRule::Cron(cron),
                }
            }
            fields => TickRule::Cron(Cron::of_fields(fields).map_err(|reason| {
                match fields.split_last() {
                    // Without it the text is a schedule, so it was meant to be a zone.
                    Some((last, rest)) if Cron::of_fields(rest).is_ok() && is_word(last) => {
                        no_zone(last)
                    }
                    _ => reason,
                }
            })?),
        };
        Ok(Schedule { text, rule, zone })
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

/// Returns the zone with this name.
pub(crate) fn time_zone(name: &str) -> Result<Zone> {
    name.parse().map_err(|reason| Error::Schedule {
        text: name
            .chars()
            .take(80)
            .flat_map(char::escape_default)
            .collect(),
        reason,
    })
}

/// Returns the zone if the last word is the name of one.
fn zone_at_the_end(word: &str) -> Result<Option<Zone>, String> {
    // A step does not start with a letter, so a name was intended.
    let is_name = || {
        word.split_once('/')
            .is_some_and(|(_, after)| is_word(after))
    };
    match Zone::find(word) {
        None if is_name() => Err(no_zone(word)),
        found => Ok(found),
    }
}

fn is_word(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic())
}

fn no_zone(name: &str) -> String {
    name.parse::<Zone>().err().unwrap_or_default()
}

/// Parses an interval in whole seconds, at least one.
fn interval(text: &str) -> Result<i64, String> {
    const WANTED: &str =
        "`every` needs a time of at least 1 s, such as `45s`, `5m`, `1h 30m` or `2 days`";
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
        .ok_or_else(|| "an interval may be at most 1000 years".to_owned())
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
            // Either day is enough, unless one field starts with an asterisk.
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
            "`61 * * * *` is not a valid schedule: `61` is not a minute, which is 0 to 59, a range of these or `*`, \
             and may have a step above zero"
        );
        let error = "0 24 * * *".parse::<Schedule>().unwrap_err().to_string();
        assert!(error.contains("`24` is not an hour"), "{error}");
        let error = "0 5-1 * * *".parse::<Schedule>().unwrap_err().to_string();
        assert!(
            error.contains("a range starts with the smaller hour;"),
            "{error}"
        );
        let error = "10-5 * * * *".parse::<Schedule>().unwrap_err().to_string();
        assert!(error.contains("`10-5` runs backwards"), "{error}");
        assert!(error.contains("write `10-59,0-5`"), "{error}");
        assert!("10-59,0-5 * * * *".parse::<Schedule>().is_ok());
        let error = "1,,2 * * * *".parse::<Schedule>().unwrap_err().to_string();
        assert!(error.contains("before or after a comma"), "{error}");
    }

    #[test]
    fn zones_that_do_not_exist_are_named() {
        for (text, zone) in [
            ("@daily CEST", "`CEST`; examples"),
            ("0 3 * * * CEST", "`CEST`; examples"),
            ("30 0 3 ? * MON CEST", "`CEST`; examples"),
            (
                "0 3 * * * berlin",
                "`berlin`; did you mean `Europe/Berlin`?",
            ),
            ("0 3 * * * Europe/Berln", "`Europe/Berln`; examples"),
        ] {
            let error = text.parse::<Schedule>().unwrap_err().to_string();
            let expected = format!("there is no time zone {zone}");
            assert!(error.contains(&expected), "{text}: {error}");
        }
        let schedule: Schedule = "@daily europe/berlin".parse().unwrap();
        assert_eq!(schedule.to_string(), "@daily Europe/Berlin");
        assert!(
            "0 0 0 * * MONTUE"
                .parse::<Schedule>()
                .is_err_and(|error| error.to_string().contains("day of"))
        );
    }

    #[test]
    fn days_that_are_decades_away_are_found() {
        for (text, after, ticks) in [
            // The first of March on a Sunday.
            (
                "0 0 1 3 */7",
                "2026-11-21T12:00:00Z",
                ["2037-03-01T00:00:00Z", "2043-03-01T00:00:00Z"],
            ),
            // And a leap day on one: 2100 has none.
            (
                "0 0 29 2 */7",
                "2026-11-21T12:00:00Z",
                ["2032-02-29T00:00:00Z", "2060-02-29T00:00:00Z"],
            ),
            (
                "0 0 29 2 */7",
                "2088-03-01T12:00:00Z",
                ["2128-02-29T00:00:00Z", "2156-02-29T00:00:00Z"],
            ),
            // By elapsed time, over many changes of the clock.
            (
                "0 * 29 2 */7 Europe/Berlin",
                "2032-03-01T00:00:00Z",
                ["2060-02-28T23:00:00Z", "2060-02-29T00:00:00Z"],
            ),
        ] {
            let schedule: Schedule = text.parse().unwrap();
            let after = after.parse().unwrap();
            let next: Vec<DateTime<Utc>> = schedule.upcoming(after).take(2).collect();
            let ticks = ticks.map(|tick| tick.parse::<DateTime<Utc>>().unwrap());
            assert_eq!(next, ticks, "{text}");
        }
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
