//! Whether two JSON texts are the same but for the spaces between their parts.
//!
//! Numbers are compared as they are written, and keys in their order: parsed as floating-point numbers,
//! two long numbers that differ would be one.

/// Returns whether a repeated request may have written one as the other.
pub(crate) fn are_same(one: &str, other: &str) -> bool {
    parts(one).eq(parts(other))
}

/// Returns the characters, without spaces outside of texts.
fn parts(json: &str) -> impl Iterator<Item = char> {
    let (mut in_text, mut is_escaped) = (false, false);
    json.chars().filter(move |&c| {
        let is_part = in_text || !matches!(c, ' ' | '\t' | '\r' | '\n');
        if c == '"' && !is_escaped {
            in_text = !in_text;
        }
        is_escaped = in_text && c == '\\' && !is_escaped;
        is_part
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_spaces_between_parts_may_differ() {
        for (one, other, same) in [
            ("{\"a\": [1, 2]}", "{\"a\":[1,2]}", true),
            ("\n7 ", "7", true),
            ("\"a b\"", "\"ab\"", false),
            ("\"\\\" a\"", "\"\\\"a\"", false),
            ("[\"\\\\\", 1]", "[\"\\\\\",1]", true),
            ("1.0", "1.00", false),
            (
                "100000000000000000000001",
                "100000000000000000000002",
                false,
            ),
            ("{\"a\":1,\"b\":2}", "{\"b\":2,\"a\":1}", false),
            ("\"\\ud800\"", "\"\\udfff\"", false),
        ] {
            assert_eq!(are_same(one, other), same, "{one} and {other}");
        }
    }
}
