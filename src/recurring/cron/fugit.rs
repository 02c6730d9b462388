//! Schedules in the words of `fugit`, with which Solid Queue and Mission Control read them.

use crate::recurring::cron::Cron;
use crate::recurring::value_set::ValueSet;

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
