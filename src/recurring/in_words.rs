//! Schedules in English.

use crate::clock;
use crate::recurring::cron::{Cron, ValueSet, listed};
use std::time::Duration;

/// The most times of day that are listed one by one.
const MOST_TIMES: u32 = 6;

const WEEKDAYS: [&str; 7] = [
    "Sunday",
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
];

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// Returns the times of a cron schedule: `At 09:00 from Monday to Friday`.
///
/// No two schedules with different times have the same words.
pub(crate) fn of_cron(cron: &Cron) -> String {
    let times = TimesOfDay {
        seconds: ValueSet::new(cron.seconds, 0, 59),
        minutes: ValueSet::new(cron.minutes, 0, 59),
        hours: ValueSet::new(cron.hours, 0, 23),
    };
    let (text, is_at_times) = times.words();
    match (days(cron), is_at_times) {
        (Some(days), _) => format!("{text} {days}"),
        (None, true) => format!("{text} every day"),
        (None, false) => text,
    }
}

/// Returns whether the words are the same in every time zone.
pub(crate) fn needs_no_zone(cron: &Cron) -> bool {
    ValueSet::new(cron.hours, 0, 23).is_all() && days(cron).is_none()
}

/// Returns an interval: `Every 5 minutes`.
pub(crate) fn of_interval(seconds: i64) -> String {
    let text = clock::in_units(Duration::from_secs(seconds.unsigned_abs()));
    let units = [
        ("d", "day"),
        ("h", "hour"),
        ("m", "minute"),
        ("s", "second"),
    ];
    let parts = text.split(' ').filter_map(|part| {
        let (unit, name) = units.iter().find(|(unit, _)| part.ends_with(unit))?;
        let count = part.strip_suffix(unit)?;
        Some(match count {
            "1" => (true, format!("1 {name}"), *name),
            _ => (false, format!("{count} {name}s"), *name),
        })
    });
    let parts: Vec<(bool, String, &str)> = parts.collect();
    match parts.as_slice() {
        [(true, _, name)] => format!("Every {name}"),
        parts => {
            let counted = parts.iter().map(|(_, counted, _)| counted.as_str());
            format!("Every {}", counted.collect::<Vec<_>>().join(" "))
        }
    }
}

/// The times of one day.
struct TimesOfDay {
    seconds: ValueSet,
    minutes: ValueSet,
    hours: ValueSet,
}

impl TimesOfDay {
    /// Returns them in words, and whether these are single times: `At 09:00`.
    fn words(&self) -> (String, bool) {
        if let Some(times) = self.listed() {
            return (format!("At {times}"), true);
        }
        let repeated = match self.seconds.single() {
            Some(0) => self.every_minutes().or_else(|| self.every_hours()),
            _ => self.every_seconds(),
        };
        match repeated {
            Some(text) => (text, false),
            None => (self.fields(), false),
        }
    }

    /// Returns `02:00 and 14:00` if there are few.
    fn listed(&self) -> Option<String> {
        let second = self.seconds.single()?;
        if self.hours.is_all() || self.minutes.count() * self.hours.count() > MOST_TIMES {
            return None;
        }
        let clock = |hour: u32, minute: u32| match second {
            0 => format!("{hour:02}:{minute:02}"),
            second => format!("{hour:02}:{minute:02}:{second:02}"),
        };
        let times = self
            .hours
            .values()
            .flat_map(|hour| self.minutes.values().map(move |minute| clock(hour, minute)));
        Some(listed(&times.collect::<Vec<_>>()))
    }

    fn every_seconds(&self) -> Option<String> {
        let step = self.seconds.step()?;
        if !self.minutes.is_all() {
            return None;
        }
        let every = every(step, "second");
        let last = 60 - step;
        self.within_hours(&every, ":00:00", &format!(":59:{last:02}"))
    }

    fn every_minutes(&self) -> Option<String> {
        let step = self.minutes.step()?;
        let last = 60 - step;
        self.within_hours(&every(step, "minute"), ":00", &format!(":{last:02}"))
    }

    /// Adds the hours to `Every 10 minutes`.
    fn within_hours(&self, every: &str, start: &str, end: &str) -> Option<String> {
        if self.hours.is_all() {
            return Some(every.to_owned());
        }
        Some(match self.hours.range() {
            Some((first, last)) => format!("{every} from {first:02}{start} to {last:02}{end}"),
            None => format!("{every} in {}", hours(&self.hours)),
        })
    }

    fn every_hours(&self) -> Option<String> {
        let minute = self.minutes.single()?;
        if let Some(step) = self.hours.step() {
            let every = every(step, "hour");
            return Some(match minute {
                0 => every,
                minute => format!("{every} at minute {minute}"),
            });
        }
        let (first, last) = self.hours.range()?;
        Some(format!(
            "Every hour from {first:02}:{minute:02} to {last:02}:{minute:02}"
        ))
    }

    /// Returns the fields one by one.
    fn fields(&self) -> String {
        let minutes = match self.minutes.is_all() {
            true => "every minute".to_owned(),
            false => named("minute", &self.minutes),
        };
        let hours = match self.hours.is_all() {
            true => "every hour".to_owned(),
            false => hours(&self.hours),
        };
        match self.seconds.single() {
            _ if self.seconds.is_all() => format!("Every second of {minutes} of {hours}"),
            Some(0) if self.minutes.is_all() => format!("Every minute of {hours}"),
            Some(0) => format!("At {minutes} of {hours}"),
            _ => format!(
                "At {} of {minutes} of {hours}",
                named("second", &self.seconds)
            ),
        }
    }
}

fn hours(hours: &ValueSet) -> String {
    named("hour", hours)
}

/// Returns `minute 5`, or `minutes 5, 7 and 10 to 20`.
fn named(unit: &str, values: &ValueSet) -> String {
    let plural = if values.count() == 1 { "" } else { "s" };
    format!(
        "{unit}{plural} {}",
        values.listed(|value| value.to_string())
    )
}

fn every(step: u32, unit: &str) -> String {
    match step {
        1 => format!("Every {unit}"),
        step => format!("Every {step} {unit}s"),
    }
}

/// Returns the days, unless it is every day.
fn days(cron: &Cron) -> Option<String> {
    let in_month = ValueSet::new(cron.days, 1, 31);
    let in_week = ValueSet::new(cron.weekdays, 0, 6);
    let months = ValueSet::new(cron.months, 1, 12);
    let of_months = match months.is_all() {
        true => "each month".to_owned(),
        false => months.listed(|month| MONTHS[month as usize - 1].to_owned()),
    };
    let dated = || format!("on {} of {of_months}", dates(&in_month));
    let in_months = match months.is_all() {
        true => String::new(),
        false => format!(" in {of_months}"),
    };
    // Either of the two is enough, and one of them is every day.
    if cron.either_day && (in_month.is_all() || in_week.is_all()) {
        return (!months.is_all()).then(|| format!("every day{in_months}"));
    }
    match (in_month.is_all(), in_week.is_all()) {
        (true, true) => (!months.is_all()).then(|| format!("every day{in_months}")),
        (false, true) => Some(dated()),
        (true, false) => Some(format!("{}{in_months}", weekdays(&in_week))),
        (false, false) if cron.either_day => Some(format!(
            "{}, and {}{in_months}",
            dated(),
            weekdays(&in_week)
        )),
        (false, false) => {
            let dates = dates(&in_month);
            Some(format!(
                "{} that are {dates} of {of_months}",
                weekdays(&in_week)
            ))
        }
    }
}

/// Returns `the 1st and 15th`.
fn dates(days: &ValueSet) -> String {
    format!("the {}", days.listed(ordinal))
}

fn weekdays(days: &ValueSet) -> String {
    // The week of a calendar starts on Monday.
    let sunday_last = ValueSet::new(days.bits() >> 1 | (days.bits() & 1) << 6, 0, 6);
    let name = |day: u32| WEEKDAYS[(day as usize + 1) % 7];
    match sunday_last.range() {
        Some((first, last)) if last > first + 1 => {
            format!("from {} to {}", name(first), name(last))
        }
        _ => {
            let names: Vec<String> = sunday_last
                .values()
                .map(|day| format!("{}s", name(day)))
                .collect();
            format!("on {}", listed(&names))
        }
    }
}

fn ordinal(day: u32) -> String {
    let end = match (day % 10, day / 10) {
        (1, 0 | 2 | 3) => "st",
        (2, 0 | 2) => "nd",
        (3, 0 | 2) => "rd",
        _ => "th",
    };
    format!("{day}{end}")
}

#[cfg(test)]
mod tests {
    use crate::recurring::schedule::Schedule;
    use std::collections::HashMap;

    fn words(text: &str) -> String {
        text.parse::<Schedule>().unwrap().in_words()
    }

    #[test]
    fn schedules_are_put_into_english() {
        for (text, wanted) in [
            ("0 2 * * *", "At 02:00 every day, UTC"),
            (
                "30 3 * * * Europe/Berlin",
                "At 03:30 every day, Europe/Berlin",
            ),
            ("0 9 * * MON Asia/Tokyo", "At 09:00 on Mondays, Asia/Tokyo"),
            (
                "0 9 * * 1-5 Europe/Berlin",
                "At 09:00 from Monday to Friday, Europe/Berlin",
            ),
            ("0 9 * * SAT-SUN", "At 09:00 on Saturdays and Sundays, UTC"),
            (
                "0 9 * * FRI-MON",
                "At 09:00 on Mondays, Fridays, Saturdays and Sundays, UTC",
            ),
            ("0 9 * * FRI-SUN", "At 09:00 from Friday to Sunday, UTC"),
            ("0 9 * * 0,3", "At 09:00 on Wednesdays and Sundays, UTC"),
            ("0 6 1 * *", "At 06:00 on the 1st of each month, UTC"),
            (
                "0 6 1,15 * *",
                "At 06:00 on the 1st and 15th of each month, UTC",
            ),
            (
                "0 6 1-7 2,3 *",
                "At 06:00 on the 1st to 7th of February and March, UTC",
            ),
            (
                "0 6 22,23,31 * *",
                "At 06:00 on the 22nd, 23rd and 31st of each month, UTC",
            ),
            ("0 6 * 1-3 *", "At 06:00 every day in January to March, UTC"),
            (
                "0 0 13 * FRI",
                "At 00:00 on the 13th of each month, and on Fridays, UTC",
            ),
            (
                "0 0 */2 12 FRI",
                "At 00:00 on Fridays that are the 1st, 3rd, 5th, 7th, 9th, 11th, 13th, 15th, 17th, \
                 19th, 21st, 23rd, 25th, 27th, 29th and 31st of December, UTC",
            ),
            ("0 2,14 * * *", "At 02:00 and 14:00 every day, UTC"),
            (
                "0,30 9-11 * * *",
                "At 09:00, 09:30, 10:00, 10:30, 11:00 and 11:30 every day, UTC",
            ),
            ("30 0 12 * * ?", "At 12:00:30 every day, UTC"),
            ("* * * * *", "Every minute"),
            ("*/5 * * * *", "Every 5 minutes"),
            ("*/5 * * * * Asia/Kolkata", "Every 5 minutes, Asia/Kolkata"),
            ("0 * * * *", "Every hour"),
            ("5 * * * *", "Every hour at minute 5"),
            ("0 */2 * * *", "Every 2 hours, UTC"),
            (
                "15 */6 * * *",
                "At 00:15, 06:15, 12:15 and 18:15 every day, UTC",
            ),
            ("15 */3 * * *", "Every 3 hours at minute 15, UTC"),
            ("0 8-18 * * *", "Every hour from 08:00 to 18:00, UTC"),
            (
                "*/10 8-18 * * MON-FRI Europe/Berlin",
                "Every 10 minutes from 08:00 to 18:50 from Monday to Friday, Europe/Berlin",
            ),
            ("* 8-18 * * *", "Every minute from 08:00 to 18:59, UTC"),
            ("* 8,20 * * *", "Every minute in hours 8 and 20, UTC"),
            (
                "*/7 * * * *",
                "At minutes 0, 7, 14, 21, 28, 35, 42, 49 and 56 of every hour",
            ),
            ("3,5 * * * *", "At minutes 3 and 5 of every hour"),
            (
                "3 8-10,14,16,18,20,22 * * *",
                "At minute 3 of hours 8 to 10, 14, 16, 18, 20 and 22, UTC",
            ),
            ("* * * * * *", "Every second"),
            ("*/10 * * * * *", "Every 10 seconds"),
            (
                "*/10 * 8-9 * * ?",
                "Every 10 seconds from 08:00:00 to 09:59:50, UTC",
            ),
            (
                "5,50 * * * * *",
                "At seconds 5 and 50 of every minute of every hour",
            ),
            ("* 5 * * * *", "Every second of minute 5 of every hour"),
            ("@daily", "At 00:00 every day, UTC"),
            ("@hourly", "Every hour"),
            ("@weekly", "At 00:00 on Sundays, UTC"),
            ("@yearly", "At 00:00 on the 1st of January, UTC"),
            ("@start", "When a new deployment starts"),
            (
                "@timing lunar",
                "At the times of the program's timing lunar",
            ),
            ("every 45s", "Every 45 seconds"),
            ("every 1s", "Every second"),
            ("every 1h", "Every hour"),
            ("every 90m", "Every 1 hour 30 minutes"),
            ("every 2 days", "Every 2 days"),
        ] {
            assert_eq!(words(text), wanted, "{text}");
        }
    }

    /// Returns a field as a person might write it.
    fn field(first: u32, last: u32) -> String {
        let value = || fastrand::u32(first..=last);
        match fastrand::u32(0..6) {
            0 | 1 => "*".to_owned(),
            2 => value().to_string(),
            3 => format!("*/{}", fastrand::u32(1..=last.min(20))),
            4 => {
                let (one, other) = (value(), value());
                format!("{}-{}", one.min(other), one.max(other))
            }
            _ => format!("{},{},{}", value(), value(), value()),
        }
    }

    #[test]
    fn the_same_words_mean_the_same_times() {
        fastrand::seed(7);
        let after = "2026-01-01T00:00:00Z".parse().unwrap();
        let ticks = |text: &str| -> Vec<String> {
            let schedule: Schedule = text.parse().unwrap();
            let ticks = schedule.upcoming(after).take(200);
            ticks.map(|tick| tick.to_string()).collect()
        };
        let mut known: HashMap<String, String> = HashMap::new();
        let mut same = 0;
        for _ in 0..20_000 {
            let second = match fastrand::bool() {
                true => "0".to_owned(),
                false => field(0, 59),
            };
            let rest = [
                field(0, 59),
                field(0, 23),
                field(1, 31),
                field(1, 12),
                field(1, 7),
            ];
            let text = format!("{second} {}", rest.join(" "));
            let Ok(schedule) = text.parse::<Schedule>() else {
                continue;
            };
            let words = schedule.in_words();
            assert!(words.len() < 1_000, "{text}: {words}");
            let other = known.entry(words).or_insert_with(|| text.clone());
            if *other != text {
                same += 1;
                assert_eq!(ticks(other), ticks(&text), "{text} and {other}");
            }
        }
        assert!(same > 50, "{same}");
    }
}
