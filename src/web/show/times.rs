//! Times and durations. All times are those of the database, in UTC.

use crate::web::show::markup::{Markup, escaped};
use crate::web::show::numbers::short;
use chrono::NaiveDateTime;

/// Returns a duration with at most two units: `240 ms`, `3.1 s`, `6 min 12 s`, `3 h 11 min`, `2 d 4 h`.
pub(crate) fn duration(seconds: f64) -> String {
    // A clock that was set back makes it negative.
    let seconds = seconds.max(0.0);
    if seconds < 0.0005 {
        "0 s".to_owned()
    } else if seconds < 0.9995 {
        format!("{:.0} ms", seconds * 1000.0)
    } else if seconds < 10.0 {
        format!("{} s", short((seconds * 10.0).round() / 10.0))
    } else {
        two_units(seconds.round().min(1e15))
    }
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "it is rounded, positive and below 1e15"
)]
fn two_units(seconds: f64) -> String {
    let seconds = seconds as u64;
    let (large, unit, small, small_unit) = match seconds {
        0..60 => return format!("{seconds} s"),
        60..3_600 => (seconds / 60, "min", seconds % 60, "s"),
        3_600..86_400 => (seconds / 3_600, "h", seconds % 3_600 / 60, "min"),
        _ => (seconds / 86_400, "d", seconds % 86_400 / 3_600, "h"),
    };
    if small == 0 || large >= 10 && unit == "d" {
        format!("{large} {unit}")
    } else {
        format!("{large} {unit} {small} {small_unit}")
    }
}

/// Returns a duration with its largest unit only, for ages: `6 min`, `3 h`.
pub(crate) fn about(seconds: f64) -> String {
    let text = duration(seconds);
    let mut words = text.split(' ');
    match (words.next(), words.next()) {
        (Some(number), Some(unit)) => format!("{number} {unit}"),
        _ => text,
    }
}

/// Returns `6 min ago`.
pub(crate) fn ago(seconds: f64) -> String {
    format!("{} ago", about(seconds))
}

/// Returns a time as the text that is shown: `14:32:07` today, `11-24 02:00` otherwise.
pub(crate) fn moment(at: NaiveDateTime, now: NaiveDateTime) -> String {
    if at.date() == now.date() {
        at.format("%H:%M:%S").to_string()
    } else if at.date().format("%Y").to_string() == now.date().format("%Y").to_string() {
        at.format("%m-%d %H:%M").to_string()
    } else {
        at.format("%Y-%m-%d %H:%M").to_string()
    }
}

/// Returns `<time>` with the exact time on hover, around any text.
pub(crate) fn time(at: NaiveDateTime, text: &str) -> Markup {
    Markup::trusted(format!(
        "<time datetime=\"{}\" title=\"{} UTC\">{}</time>",
        at.format("%Y-%m-%dT%H:%M:%S%.3fZ"),
        at.format("%Y-%m-%d %H:%M:%S"),
        escaped(text)
    ))
}

/// Returns `<time>` around the time itself.
pub(crate) fn time_of(at: NaiveDateTime, now: NaiveDateTime) -> Markup {
    time(at, &moment(at, now))
}

/// Returns the seconds from one time to a later one.
pub(crate) fn seconds_between(from: NaiveDateTime, to: NaiveDateTime) -> f64 {
    (to - from).as_seconds_f64()
}

/// Returns `<time>` around how long ago it was: `3 h ago`.
pub(crate) fn time_ago(at: NaiveDateTime, now: NaiveDateTime) -> Markup {
    time(at, &ago(seconds_between(at, now)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_two_units_at_most() {
        for (seconds, shown) in [
            (-3.0, "0 s"),
            (0.0, "0 s"),
            (0.24, "240 ms"),
            (0.9996, "1 s"),
            (3.12, "3.1 s"),
            (9.96, "10 s"),
            (59.6, "1 min"),
            (372.0, "6 min 12 s"),
            (11_460.0, "3 h 11 min"),
            (187_200.0, "2 d 4 h"),
            (f64::INFINITY, "11574074074 d"),
        ] {
            assert_eq!(duration(seconds), shown);
        }
        assert_eq!(ago(372.0), "6 min ago");
    }
}
