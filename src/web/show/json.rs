//! JSON with the parts marked that are hidden.

use crate::job::redact::HIDDEN;
use crate::web::show::markup::{Markup, escaped};
use serde::Serialize as _;
use serde_json::Value;
use serde_json::ser::{Formatter, Serializer};
use std::io;

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
    /// How many characters are left out.
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
}
