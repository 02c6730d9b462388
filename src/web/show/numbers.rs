//! Numbers.

use crate::db::query::load::totals::CappedCount;
use std::fmt::Display;

/// Up to this many rows are counted; see [`capped`].
pub(crate) const COUNTED: i64 = 10_000;

/// Returns a whole number with separators: `1,204`.
pub(crate) fn count(number: impl Display) -> String {
    let text = number.to_string();
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", text.as_str()),
    };
    let mut shown = sign.to_owned();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(digit);
    }
    shown
}

/// Returns a count that was ended at one more than [`COUNTED`]: `10,000+` from there on.
pub(crate) fn capped(number: i64) -> String {
    if number > COUNTED {
        format!("{}+", count(COUNTED))
    } else {
        count(number)
    }
}

/// Returns a bounded count: `1,204`, or `10,000+` if there are more.
pub(crate) fn bounded(number: CappedCount) -> String {
    let more = if number.is_more { "+" } else { "" };
    format!("{}{more}", count(number.count))
}

/// Returns a small number as a word, as at the start of a sentence: `Six`.
pub(crate) fn in_words(number: usize) -> String {
    const WORDS: [&str; 11] = [
        "No", "One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine", "Ten",
    ];
    WORDS
        .get(number)
        .map_or_else(|| count(number), |word| (*word).to_owned())
}

/// Returns a number with up to three digits: `87.4`, `1,204`, `0.62`, `0`.
pub(crate) fn short(number: f64) -> String {
    let size = number.abs();
    if !number.is_finite() || size < 0.005 {
        "0".to_owned()
    } else if size < 10.0 {
        trimmed(format!("{number:.2}"))
    } else if size < 100.0 {
        trimmed(format!("{number:.1}"))
    } else {
        count(format!("{number:.0}"))
    }
}

fn trimmed(text: String) -> String {
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_easy_to_read() {
        for (number, shown) in [
            (0, "0"),
            (999, "999"),
            (1_000, "1,000"),
            (-1_234_567, "-1,234,567"),
        ] {
            assert_eq!(count(number), shown);
        }
        assert_eq!(
            (capped(10_000), capped(10_001)),
            ("10,000".to_owned(), "10,000+".to_owned())
        );
        for (number, shown) in [
            (0.0, "0"),
            (0.62, "0.62"),
            (2.4, "2.4"),
            (3.0, "3"),
            (87.44, "87.4"),
            (310_083.2, "310,083"),
            (f64::NAN, "0"),
        ] {
            assert_eq!(short(number), shown);
        }
    }
}
