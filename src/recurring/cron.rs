//! Five or six cron fields, and the search in a calendar without time zones.

use chrono::{Datelike, Months, NaiveDate, NaiveDateTime, NaiveTime, Timelike};

/// The values of each field as bits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cron {
    pub(crate) seconds: u64,
    pub(crate) minutes: u64,
    pub(crate) hours: u64,
    pub(crate) days: u64,
    pub(crate) months: u64,
    /// Bit 0 is Sunday.
    pub(crate) weekdays: u64,
    /// True if a day of the month or of the week is enough; otherwise both must match.
    pub(crate) either_day: bool,
    /// True if elapsed time counts, not the clock's.
    pub(crate) every_hour: bool,
}

/// The range of a field.
struct Field {
    name: &'static str,
    first: u32,
    last: u32,
    /// In order, starting with `first`.
    names: &'static [&'static str],
    /// True if ranges may wrap around: `FRI-MON`.
    is_round: bool,
}

const MONTHS: [&str; 12] = [
    "JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC",
];

const WEEKDAYS: [&str; 7] = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];

const SECOND: Field = Field::new("second", 0, 59);

const MINUTE: Field = Field::new("minute", 0, 59);

const HOUR: Field = Field::new("hour", 0, 23);

const DAY: Field = Field::new("day of the month", 1, 31);

const MONTH: Field = Field {
    names: &MONTHS,
    ..Field::new("month", 1, 12)
};

/// In five fields: Sunday is 0, and 7.
const UNIX_WEEKDAY: Field = Field {
    names: &WEEKDAYS,
    is_round: true,
    ..Field::new("day of the week", 0, 7)
};

/// In six fields: from Sunday to Saturday.
const WEEKDAY: Field = Field {
    names: &WEEKDAYS,
    is_round: true,
    ..Field::new("day of the week (1 is Sunday, 7 Saturday)", 1, 7)
};

/// In months. A February 29 falls on a given day of the week every 28 years, and after 40 where a century has no leap year.
const HORIZON: u32 = 41 * 12;

impl Cron {
    /// Parses `@daily` and similar words.
    pub(crate) fn named(name: &str) -> Result<Self, String> {
        let fields = match name.to_ascii_lowercase().as_str() {
            "@yearly" | "@annually" => ["0", "0", "1", "1", "*"],
            "@monthly" => ["0", "0", "1", "*", "*"],
            "@weekly" => ["0", "0", "*", "*", "0"],
            "@daily" | "@midnight" => ["0", "0", "*", "*", "*"],
            "@hourly" => ["0", "*", "*", "*", "*"],
            _ => {
                return Err(
                    "the words with `@` are @yearly, @annually, @monthly, @weekly, @daily, \
                     @midnight, @hourly and @start, and `@timing NAME`"
                        .to_owned(),
                );
            }
        };
        Self::of_fields(&fields)
    }

    pub(crate) fn of_fields(fields: &[&str]) -> Result<Self, String> {
        let (second, rest, weekday, shift) = match fields {
            rest if rest.len() == 5 => ("0", rest, UNIX_WEEKDAY, 0),
            [second, rest @ ..] if rest.len() == 5 => (*second, rest, WEEKDAY, 1),
            other => {
                return Err(format!(
                    "it has {} fields instead of five (minute, hour, day of month, month, day of week) or \
                     six (second first); `@daily` and `every 45s` are understood too",
                    other.len()
                ));
            }
        };
        let (hour, day, week) = (rest[1], rest[2], rest[4]);
        let is_any = |field: &str| field == "?";
        if shift == 0 && (is_any(day) || is_any(week)) {
            return Err("`?` is only allowed in six fields; in five, write `*`".to_owned());
        }
        if is_any(day) && is_any(week) {
            return Err(
                "`?` is allowed for the day of the month or of the week, not for both".to_owned(),
            );
        }
        let days_of = |field: Field, text: &str| match text {
            "?" => field.read("*"),
            text => field.read(text),
        };
        let weekdays = days_of(weekday, week)? >> shift;
        let gives_none = |text: &str| text.starts_with(['*', '?']);
        let hours = HOUR.read(hour)?;
        let cron = Cron {
            seconds: SECOND.read(second)?,
            minutes: MINUTE.read(rest[0])?,
            hours,
            days: days_of(DAY, day)?,
            months: MONTH.read(rest[3])?,
            weekdays: (weekdays | (weekdays >> 7)) & 0x7f,
            either_day: !gives_none(day) && !gives_none(week),
            every_hour: hour.contains('*') || hours.count_ones() == 24,
        };
        let some_day = NaiveDate::from_ymd_opt(2001, 1, 1).unwrap_or_default();
        match cron.next(some_day.and_time(NaiveTime::MIN)) {
            Some(_) => Ok(cron),
            None => Err("there is no such day".to_owned()),
        }
    }

    /// Returns the first matching time at `time` or after it.
    pub(crate) fn next(&self, time: NaiveDateTime) -> Option<NaiveDateTime> {
        let from = match time.nanosecond() {
            0 => time,
            _ => time.with_nanosecond(0)? + chrono::TimeDelta::seconds(1),
        };
        if self.has_day(from.date())
            && let Some(found) = self.time_from(from.time())
        {
            return Some(from.date().and_time(found));
        }
        let first = self.time_from(NaiveTime::MIN)?;
        self.day_after(from.date()).map(|day| day.and_time(first))
    }

    /// Returns the first matching day after this one, in the months that match.
    fn day_after(&self, day: NaiveDate) -> Option<NaiveDate> {
        let mut day = day.succ_opt()?;
        let mut months = 0;
        while months <= HORIZON {
            if self.has_day(day) {
                return Some(day);
            }
            let next = match has(self.months, day.month()) {
                true => day.succ_opt()?,
                false => day.with_day(1)?.checked_add_months(Months::new(1))?,
            };
            months += u32::from(next.month() != day.month());
            day = next;
        }
        None
    }

    fn has_day(&self, day: NaiveDate) -> bool {
        let in_month = has(self.days, day.day());
        let in_week = has(self.weekdays, day.weekday().num_days_from_sunday());
        let is_day = match self.either_day {
            true => in_month || in_week,
            false => in_month && in_week,
        };
        is_day && has(self.months, day.month())
    }

    fn time_from(&self, from: NaiveTime) -> Option<NaiveTime> {
        let (hour, minute) = (from.hour(), from.minute());
        if has(self.hours, hour) {
            if has(self.minutes, minute)
                && let Some(second) = first(self.seconds, from.second())
            {
                return NaiveTime::from_hms_opt(hour, minute, second);
            }
            if let Some(minute) = first(self.minutes, minute + 1) {
                return NaiveTime::from_hms_opt(hour, minute, first(self.seconds, 0)?);
            }
        }
        let hour = first(self.hours, hour + 1)?;
        NaiveTime::from_hms_opt(hour, first(self.minutes, 0)?, first(self.seconds, 0)?)
    }
}

fn has(bits: u64, value: u32) -> bool {
    bits >> value & 1 == 1
}

/// Returns the smallest value that is at least `from`.
fn first(bits: u64, from: u32) -> Option<u32> {
    let rest = bits.checked_shr(from).filter(|rest| *rest != 0)?;
    Some(from + rest.trailing_zeros())
}

impl Field {
    const fn new(name: &'static str, first: u32, last: u32) -> Self {
        Field {
            name,
            first,
            last,
            names: &[],
            is_round: false,
        }
    }

    /// Parses the values of a field.
    fn read(&self, text: &str) -> Result<u64, String> {
        text.split(',').try_fold(0, |bits, item| {
            self.item(item)
                .map(|more| bits | more)
                .ok_or_else(|| self.refuse(item))
        })
    }

    /// Returns its name with the article.
    fn one(&self) -> String {
        let article = if self.name == HOUR.name { "an" } else { "a" };
        format!("{article} {}", self.name)
    }

    fn refuse(&self, item: &str) -> String {
        if item.is_empty() {
            return format!("{} is missing before or after a comma", self.one());
        }
        let range = item.split('/').next().unwrap_or_default();
        if let Some((low, high)) = range.split_once('-')
            && let (Some(first), Some(last)) = (self.value(low), self.value(high))
            && last < first
            && !self.is_round
        {
            return format!(
                "`{}` runs backwards: a range starts with the smaller {}; write `{low}-{},{}-{high}` to go past the end",
                item.escape_default(),
                self.name,
                self.last,
                self.first
            );
        }
        format!(
            "`{}` is not {}, which is {} to {}, a range of these or `*`, and may have a step above zero",
            item.escape_default(),
            self.one(),
            self.first,
            self.last
        )
    }

    /// Parses `*`, `5` or `1-5`, each with or without a step.
    fn item(&self, text: &str) -> Option<u64> {
        let (range, step) = match text.split_once('/') {
            Some((range, step)) => (range, Some(number(step)?)),
            None => (text, None),
        };
        if step.is_some_and(|step| step == 0 || step > self.last) {
            return None;
        }
        let (low, high) = match range.split_once('-') {
            // 7 is a second name for Sunday, not a further day.
            None if range == "*" => (
                self.first,
                self.last - u32::from(self.last == 7 && self.first == 0),
            ),
            None => {
                let value = self.value(range)?;
                (value, if step.is_some() { self.last } else { value })
            }
            Some((low, high)) => (self.value(low)?, self.value(high)?),
        };
        let high = match high < low {
            false => high,
            true if self.is_round => high + 7,
            true => return None,
        };
        let values = (low..=high).step_by(usize::try_from(step.unwrap_or(1)).ok()?);
        Some(values.fold(0, |bits, value| {
            bits | 1 << if value > self.last { value - 7 } else { value }
        }))
    }

    fn value(&self, text: &str) -> Option<u32> {
        let named = self
            .names
            .iter()
            .position(|name| name.eq_ignore_ascii_case(text));
        let value = match named {
            Some(index) => self.first + u32::try_from(index).ok()?,
            None => number(text)?,
        };
        Some(value).filter(|value| (self.first..=self.last).contains(value))
    }
}

/// Parses digits and nothing else.
fn number(text: &str) -> Option<u32> {
    let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| plain)
}

// --- Schedules in the words of `fugit`, with which Solid Queue and Mission Control read them ---

/// A line for times that only a program can compute.
pub(crate) const UNKNOWN: &str = "0 0 1 1 * UTC";

/// Returns a line of cron, in a time zone, with the same times.
pub(crate) fn of_cron(cron: &Cron, zone: &str) -> String {
    let seconds = match cron.seconds {
        1 => String::new(),
        some => format!("{} ", field(some, 0, 59)),
    };
    let (mut days, mut weekdays) = (field(cron.days, 1, 31), field(cron.weekdays, 0, 6));
    let are_given = days != "*" && weekdays != "*";
    match cron.either_day {
        // Every day.
        true if !are_given => (days, weekdays) = ("*".to_owned(), "*".to_owned()),
        // For `fugit`, either is enough unless the last field ends so.
        false if are_given => weekdays.push('&'),
        _ => {}
    }
    format!(
        "{seconds}{} {} {days} {} {weekdays} {zone}",
        field(cron.minutes, 0, 59),
        field(cron.hours, 0, 23),
        field(cron.months, 1, 12),
    )
}

fn field(bits: u64, first: u32, last: u32) -> String {
    let set = ValueSet::new(bits, first, last);
    match (set.is_all(), set.step()) {
        (true, _) => "*".to_owned(),
        (false, Some(step)) => format!("*/{step}"),
        (false, None) => {
            let runs = set.runs().into_iter();
            let runs = runs.map(|(first, last)| match last - first {
                0 => first.to_string(),
                _ => format!("{first}-{last}"),
            });
            runs.collect::<Vec<_>>().join(",")
        }
    }
}

/// Returns a line of cron for an interval that divides a minute, an hour or a day, and so has its ticks at the same times of
/// each. Returns the interval for any other: Ruby counts it from now.
pub(crate) fn of_interval(seconds: i64) -> String {
    for (unit, whole, before, after) in [
        (1, 60, "", " * * * * *"),
        (60, 60, "", " * * * *"),
        (3_600, 24, "0 ", " * * *"),
    ] {
        let count = seconds / unit;
        if seconds % unit == 0 && whole % count == 0 {
            let step = match count {
                1 => "*".to_owned(),
                _ if count == whole => "0".to_owned(),
                _ => format!("*/{count}"),
            };
            return format!("{before}{step}{after} UTC");
        }
    }
    let parts = [
        (seconds / 86_400, 'd'),
        (seconds / 3_600 % 24, 'h'),
        (seconds / 60 % 60, 'm'),
        (seconds % 60, 's'),
    ];
    let parts = parts.into_iter().filter(|(count, _)| *count > 0);
    parts
        .map(|(count, unit)| format!("{count}{unit}"))
        .collect()
}

// --- The values of one field of a cron schedule, in words ---

/// The values of a field, as bits.
pub(crate) struct ValueSet {
    bits: u64,
    first: u32,
    last: u32,
}

impl ValueSet {
    /// Values from `first` to `last`.
    pub(crate) fn new(bits: u64, first: u32, last: u32) -> Self {
        ValueSet { bits, first, last }
    }

    pub(crate) fn bits(&self) -> u64 {
        self.bits
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = u32> + '_ {
        (self.first..=self.last).filter(|value| self.bits >> value & 1 == 1)
    }

    pub(crate) fn count(&self) -> u32 {
        self.bits.count_ones()
    }

    pub(crate) fn is_all(&self) -> bool {
        self.count() == self.last - self.first + 1
    }

    pub(crate) fn single(&self) -> Option<u32> {
        self.values().next().filter(|_| self.count() == 1)
    }

    /// Returns the first and the last value if there is none missing between them.
    pub(crate) fn range(&self) -> Option<(u32, u32)> {
        let (first, last) = (self.values().next()?, self.values().last()?);
        (self.count() == last - first + 1).then_some((first, last))
    }

    /// Returns the distance of the values if they are evenly spread over the whole field.
    pub(crate) fn step(&self) -> Option<u32> {
        let whole = self.last - self.first + 1;
        let step = whole
            .checked_div(self.count())
            .filter(|step| whole.is_multiple_of(*step))?;
        let spread = (self.first..=self.last).step_by(step as usize);
        (self.count() > 1 && spread.eq(self.values())).then_some(step)
    }

    /// Returns the first and the last value of each run without a gap.
    pub(crate) fn runs(&self) -> Vec<(u32, u32)> {
        let mut runs: Vec<(u32, u32)> = Vec::new();
        for value in self.values() {
            match runs.last_mut() {
                Some((_, last)) if *last + 1 == value => *last = value,
                _ => runs.push((value, value)),
            }
        }
        runs
    }

    /// Returns `1, 5 and 10 to 20`.
    pub(crate) fn listed(&self, name: impl Fn(u32) -> String) -> String {
        let parts = self
            .runs()
            .into_iter()
            .flat_map(|(first, last)| match last - first {
                0 => vec![name(first)],
                1 => vec![name(first), name(last)],
                _ => vec![format!("{} to {}", name(first), name(last))],
            });
        listed(&parts.collect::<Vec<_>>())
    }
}

/// Returns `a, b and c`.
pub(crate) fn listed(parts: &[String]) -> String {
    match parts {
        [] => String::new(),
        [one] => one.clone(),
        [rest @ .., last] => format!("{} and {last}", rest.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use crate::recurring::schedule::Schedule;

    /// `fugit` 1.14 computes the times of each line from its text.
    #[test]
    fn a_schedule_is_written_as_ruby_reads_it() {
        for (text, in_ruby) in [
            ("30 3 * * *", "30 3 * * * UTC"),
            ("0 30 3 ? * 2-6", "30 3 * * 1-5 UTC"),
            ("15,45 30 3 1 JAN,jul ?", "15,45 30 3 1 */6 * UTC"),
            ("0 0 * * SAT-SUN", "0 0 * * 0,6 UTC"),
            ("0 0 * * 7 Europe/Berlin", "0 0 * * 0 Europe/Berlin"),
            ("0 0 25 * MON", "0 0 25 * 1 UTC"),
            ("0 0 1-31 * MON", "0 0 * * * UTC"),
            ("0 0 29 2 */7", "0 0 29 2 0& UTC"),
            ("*/20 8-18/2 * * *", "*/20 8,10,12,14,16,18 * * * UTC"),
            ("10-59,0-5 * * * *", "0-5,10-59 * * * * UTC"),
            (
                "* * * */2 * *",
                "* * * 1,3,5,7,9,11,13,15,17,19,21,23,25,27,29,31 * * UTC",
            ),
            ("@weekly", "0 0 * * 0 UTC"),
            ("@hourly", "0 * * * * UTC"),
            ("every 1s", "* * * * * * UTC"),
            ("every 15s", "*/15 * * * * * UTC"),
            ("every 5m", "*/5 * * * * UTC"),
            ("every 1h", "0 * * * * UTC"),
            ("every 6h", "0 */6 * * * UTC"),
            ("every 1 day", "0 0 * * * UTC"),
            ("every 45s", "45s"),
            ("every 1h 30m", "1h30m"),
            ("every 2 days", "2d"),
            ("every 7h", "7h"),
            ("@start", "0 0 1 1 * UTC"),
            ("@timing dawn", "0 0 1 1 * UTC"),
        ] {
            let schedule: Schedule = text.parse().unwrap();
            assert_eq!(schedule.in_ruby(), in_ruby, "{text}");
        }
    }
}
