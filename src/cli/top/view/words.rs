//! Numbers and times in few letters.

use crate::db::query::load::totals::CappedCount;
use crate::terminal::table::printable;

/// Returns a duration with its largest units: `240ms`, `3.1s`, `6m 12s`, `3h 11m`, `2d 4h`.
pub(super) fn duration(seconds: f64) -> String {
    // A clock that was set back makes it negative.
    let seconds = if seconds.is_finite() {
        seconds.clamp(0.0, 1e9)
    } else {
        0.0
    };
    if seconds < 0.9995 {
        return format!("{:.0}ms", seconds * 1_000.0);
    }
    if seconds < 9.95 {
        return format!("{seconds:.1}s");
    }
    let whole = whole(seconds);
    let (large, unit, small, small_unit) = match whole {
        0..60 => return format!("{whole}s"),
        60..3_600 => (whole / 60, "m", whole % 60, "s"),
        3_600..86_400 => (whole / 3_600, "h", whole % 3_600 / 60, "m"),
        _ => (whole / 86_400, "d", whole % 86_400 / 3_600, "h"),
    };
    match small {
        0 => format!("{large}{unit}"),
        _ => format!("{large}{unit} {small}{small_unit}"),
    }
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "it is positive and small"
)]
fn whole(seconds: f64) -> u64 {
    seconds.round() as u64
}

/// Returns a whole number with separators: `1,204`.
pub(super) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut shown = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(digit);
    }
    shown
}

/// Returns a count that may have stopped at its limit: `10,000+`.
pub(super) fn bounded(number: CappedCount) -> String {
    let more = if number.is_more { "+" } else { "" };
    format!("{}{more}", count(number.count))
}

/// Returns how often something happens per minute: `0.4`, `87`, `1,204`; nothing for never.
pub(super) fn rate(per_minute: f64) -> String {
    match per_minute {
        rate if rate < 0.05 => String::new(),
        rate if rate < 9.95 => format!("{rate:.1}"),
        rate => count(whole(rate)),
    }
}

/// Returns a text as one line without control characters.
pub(super) fn line(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    printable(&words.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_numbers_are_short() {
        for (seconds, shown) in [
            (-3.0, "0ms"),
            (f64::NAN, "0ms"),
            (0.24, "240ms"),
            (3.12, "3.1s"),
            (9.96, "10s"),
            (59.6, "1m"),
            (372.0, "6m 12s"),
            (11_460.0, "3h 11m"),
            (187_200.0, "2d 4h"),
        ] {
            assert_eq!(duration(seconds), shown, "{seconds}");
        }
        assert_eq!(
            (count(1_234_567), count(7)),
            ("1,234,567".into(), "7".into())
        );
        assert_eq!(
            (rate(0.0), rate(0.42), rate(1_204.4)),
            (String::new(), "0.4".into(), "1,204".into())
        );
        assert_eq!(line("a\n\u{1b}[2J  b"), "a \\u{1b}[2J b");
    }
}
