//! The display of values: plain functions, and the same as filters of the templates.
//!
//! Each returns plain text, which a template escapes, or a [`Markup`](Markup), which has
//! escaped what it was made of.

pub(crate) mod chart;
pub(crate) mod filters;

use askama::filters::HtmlSafe;
use chrono::NaiveDateTime;
use serde::Serialize as _;
use serde_json::Value;
use serde_json::ser::{Formatter, Serializer};
use std::fmt::Display;
use std::{fmt, io};
use windlass::internal::db::query::ready::CappedCount;
use windlass::internal::job::run_log::HIDDEN;

// --- JSON with the parts marked that are hidden ---

/// JSON on one line, with spaces: `{"a": 1, "b": [2, 3]}`.
struct OneLine;

impl Formatter for OneLine {
    fn begin_array_value<W: ?Sized + io::Write>(
        &mut self,
        to: &mut W,
        first: bool,
    ) -> io::Result<()> {
        to.write_all(if first { b"" } else { b", " })
    }

    fn begin_object_key<W: ?Sized + io::Write>(
        &mut self,
        to: &mut W,
        first: bool,
    ) -> io::Result<()> {
        to.write_all(if first { b"" } else { b", " })
    }

    fn begin_object_value<W: ?Sized + io::Write>(&mut self, to: &mut W) -> io::Result<()> {
        to.write_all(b": ")
    }
}

/// A text that is shown in part.
#[derive(Debug, Clone)]
pub(crate) struct CutText {
    pub(crate) html: Markup,
    /// The number of characters that are left out.
    pub(crate) rest: usize,
}

fn one_line(value: &Value) -> String {
    let mut bytes = Vec::new();
    let mut serializer = Serializer::with_formatter(&mut bytes, OneLine);
    // It is written to memory, from a value.
    let _ = value.serialize(&mut serializer);
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Returns a text cut to `most` characters, with an ellipsis if it was longer.
pub(crate) fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Escapes JSON, and marks the values that are hidden.
fn marked(json: &str) -> Markup {
    let hidden = escaped(&Value::from(HIDDEN).to_string());
    Markup::trusted(escaped(json).replace(&hidden, "<var>hidden</var>"))
}

/// Returns a value on one line of at most `most` characters.
pub(crate) fn line(value: &Value, most: usize) -> Markup {
    marked(&cut(&one_line(value), most))
}

/// Returns a value on several lines, indented, of at most `most` characters.
pub(crate) fn lines(value: &Value, most: usize) -> CutText {
    let text = serde_json::to_string_pretty(value).unwrap_or_default();
    let all = text.chars().count();
    CutText {
        html: marked(&cut(&text, most)),
        rest: all.saturating_sub(most),
    }
}

// --- Pieces of HTML that are made in code ---

/// HTML: whatever it contains was escaped when it was made.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Markup(String);

impl HtmlSafe for Markup {}

impl Display for Markup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Markup {
    /// Returns `<tag class="class">text</tag>`. Tag and class are written in this program.
    pub(crate) fn element(tag: &'static str, class: &str, text: &str) -> Self {
        let (class, text) = (escaped(class), escaped(text));
        Markup(format!("<{tag} class=\"{class}\">{text}</{tag}>"))
    }

    /// Takes HTML that this program has written.
    pub(crate) fn trusted(html: String) -> Self {
        Markup(html)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

/// Returns a text so that it means itself in HTML, also within quotes.
pub(crate) fn escaped(text: &str) -> String {
    let mut html = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => html.push_str("&#38;"),
            '<' => html.push_str("&#60;"),
            '>' => html.push_str("&#62;"),
            '"' => html.push_str("&#34;"),
            '\'' => html.push_str("&#39;"),
            c => html.push(c),
        }
    }
    html
}

/// Returns a state as a shape, a word and a colour. `class` is one of `ready sched run block fail
/// done pause disc`.
pub(crate) fn state(class: &str, word: &str) -> Markup {
    Markup::element("span", &format!("s {class}"), word)
}

/// Returns a verdict. `class` is `ok`, `warn` or `bad`.
pub(crate) fn verdict(class: &str, text: &str) -> Markup {
    Markup::element("span", &format!("v {class}"), text)
}

// --- Numbers ---

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

// --- Times and durations ---

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
    use serde_json::json;

    #[test]
    fn what_is_hidden_is_marked_and_the_rest_escaped() {
        let value = json!({"a": "<b>&\"", "n": [1, 2], "token": HIDDEN});
        assert_eq!(
            line(&value, 100).as_str(),
            "{&#34;a&#34;: &#34;&#60;b&#62;&#38;\\&#34;&#34;, &#34;n&#34;: [1, 2], &#34;token&#34;: <var>hidden</var>}"
        );
        assert_eq!(line(&json!(HIDDEN), 8).as_str(), "&#34;[hidden…");
        let long = lines(&json!(vec!["é"; 50]), 10);
        assert!(
            long.html.as_str().ends_with('…') && long.rest > 100,
            "{long:?}"
        );
        assert_eq!(lines(&json!({}), 10).rest, 0);
    }

    #[test]
    fn what_is_shown_cannot_leave_its_place() {
        let shown = verdict("bad\" onclick=\"x", "<script>'&").to_string();
        assert_eq!(
            shown,
            "<span class=\"v bad&#34; onclick=&#34;x\">&#60;script&#62;&#39;&#38;</span>"
        );
    }

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
