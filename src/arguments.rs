//! What JSON texts a database can keep and a worker can read again, and how
//! Ruby writes them.

use serde::de::{Deserializer, Error as _, IgnoredAny, Visitor};
use serde_json::Value;

/// `serde_json` writes any depth but reads only 127; an envelope takes some.
pub(crate) const MAX_DEPTH: usize = 120;

/// Whether JSON text is nested deeper than can be read again.
pub(crate) fn is_too_deep(json: &str) -> bool {
    // Most texts have fewer brackets at all, which is quickly seen.
    let brackets = json.bytes().filter(|byte| matches!(byte, b'[' | b'{'));
    brackets.count() > MAX_DEPTH && depth(json) > MAX_DEPTH
}

/// How deep arrays and objects stand in each other in JSON text.
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
    // `contains` is many times faster than to look for every place.
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

/// An argument that Ruby passed. A struct is read from a hash only: serde would
/// take an array as well, its items as the fields in their order.
pub(crate) struct FromRuby(pub(crate) Value);

impl<'de> Deserializer<'de> for FromRuby {
    type Error = serde_json::Error;

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        if self.0.is_array() {
            return Err(serde_json::Error::custom(format!(
                "Ruby passed an array where `{name}` needs a hash, or keywords, with its fields"
            )));
        }
        self.0.deserialize_struct(name, fields, visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        match self.0 {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        self.0.deserialize_enum(name, variants, visitor)
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        self.0.deserialize_any(visitor)
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct seq tuple tuple_struct map identifier ignored_any
    }
}

/// The arguments of a recurring task as Solid Queue keeps them: a list, whose
/// items it passes when Ruby enqueues the task.
pub(crate) fn listed(arguments: &str) -> String {
    let is_listed = arguments.trim_start().starts_with(['{', '[']);
    if is_listed {
        format!("[{arguments}]")
    } else {
        arguments.to_owned()
    }
}

/// Takes arguments out of their list. Earlier versions kept them without.
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
