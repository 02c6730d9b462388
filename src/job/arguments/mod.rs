//! Which JSON texts a database can store and a worker can read again, and how Ruby writes them.

mod bounds;
pub(crate) mod decode;
mod encode;
pub(crate) mod envelope;
mod finite;
pub(crate) mod readable;
mod shape;

use serde::de::IgnoredAny;

/// `serde_json` writes any depth but reads only 127 levels, and an envelope needs some of them.
pub(crate) const MAX_DEPTH: usize = 120;

/// Whether JSON text is nested too deeply to be read again.
pub(crate) fn is_too_deep(json: &str) -> bool {
    // Most texts contain fewer brackets in total, which is a fast check.
    let brackets = json.bytes().filter(|byte| matches!(byte, b'[' | b'{'));
    brackets.count() > MAX_DEPTH && depth(json) > MAX_DEPTH
}

/// Returns how deeply arrays and objects are nested in JSON text.
fn depth(json: &str) -> usize {
    let (mut depth, mut deepest) = (0_usize, 0);
    let (mut in_text, mut is_escaped) = (false, false);
    for byte in json.bytes() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = in_text,
            b'"' => in_text = !in_text,
            b'[' | b'{' if !in_text => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' if !in_text => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

/// Whether JSON text contains `\u0000` that is an escape, not `\\u0000`.
pub(crate) fn has_escaped_nul(json: &str) -> bool {
    // `contains` is many times faster than checking each position.
    json.contains("\\u0000")
        && json.match_indices("\\u0000").any(|(index, _)| {
            let backslashes = json[..index]
                .bytes()
                .rev()
                .take_while(|b| *b == b'\\')
                .count();
            backslashes % 2 == 0
        })
}

/// Returns the arguments of a recurring task as Solid Queue stores them: a list, whose items are
/// passed when Ruby enqueues the task.
pub(crate) fn listed(arguments: &str) -> String {
    let is_listed = arguments.trim_start().starts_with(['{', '[']);
    if is_listed {
        format!("[{arguments}]")
    } else {
        arguments.to_owned()
    }
}

/// Takes arguments out of their list. Earlier versions stored them without one.
pub(crate) fn unlisted(arguments: &str) -> &str {
    let inner = arguments
        .trim()
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    let inner = inner.map(str::trim).filter(|inner| {
        inner.starts_with(['{', '[']) && serde_json::from_str::<IgnoredAny>(inner).is_ok()
    });
    inner.unwrap_or(arguments)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listed_arguments_come_back() {
        for (own, theirs) in [
            (r#"{"a":[1]}"#, r#"[{"a":[1]}]"#),
            ("[1,2]", "[[1,2]]"),
            ("null", "null"),
            ("7", "7"),
        ] {
            assert_eq!(listed(own), theirs);
            assert_eq!(unlisted(theirs), own);
        }
        for kept_before in [r#"{"a":1}"#, "[1,2]", r#"[{"a":1},{"b":2}]"#] {
            assert_eq!(unlisted(kept_before), kept_before);
        }
    }

    #[test]
    fn only_escaped_nuls_are_refused() {
        assert!(has_escaped_nul(r#"{"a":"\u0000"}"#));
        assert!(!has_escaped_nul(r#"{"a":"\\u0000"}"#));
        assert!(has_escaped_nul(r#"{"a":"\\\u0000"}"#));
    }

    #[test]
    fn brackets_in_texts_are_no_depth() {
        assert_eq!(depth("null"), 0);
        assert_eq!(depth(r#"{"a":[{}],"b":[]}"#), 3);
        assert_eq!(depth(r#"["[[\"[[","\\","[["]"#), 1);
        let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        assert!(is_too_deep(&nested(MAX_DEPTH + 1)));
        assert!(!is_too_deep(&nested(MAX_DEPTH)));
        assert!(!is_too_deep(&"[]".repeat(MAX_DEPTH + 1)));
    }
}
