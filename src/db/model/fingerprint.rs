//! The fingerprint of failures: class, kind, and the shape of the message.
//!
//! The shape is the message without what differs from one failure to the next. It must stay the same in
//! all versions: failures that are stored keep the fingerprint that they were stored with.

use sha2::{Digest, Sha256};
use std::net::{IpAddr, SocketAddr};

/// The most bytes of a message that are read, and the most bytes of a shape.
const MOST_READ: usize = 1_000;
const MOST_KEPT: usize = 200;

/// The longest quoted part.
const MOST_QUOTED: usize = 200;

const NUMBER: &str = "{n}";
const TEXT: &str = "{text}";
const HOST: &str = "{host}";
const URL: &str = "{url}";
const ADDRESS: &str = "{address}";

/// Units that stand directly after a number, so that `950ms` and `1.2s` have one shape.
const UNITS: [&str; 22] = [
    "ns", "us", "µs", "ms", "s", "sec", "secs", "m", "min", "mins", "h", "d", "b", "kb", "mb",
    "gb", "tb", "kib", "mib", "gib", "tib", "bytes",
];

/// Returns the fingerprint of a failure: 16 hexadecimal digits.
pub(crate) fn fingerprint(class: &str, kind: &str, message: &str) -> String {
    let mut hash = Sha256::new();
    for part in [class, kind] {
        hash.update(part.as_bytes());
        hash.update([0]);
    }
    hash.update(shape(message).as_bytes());
    let digest = hash.finalize();
    digest[..8]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// Returns the message with placeholders for what differs: numbers, ids, times and hexadecimal digits
/// (`{n}`), quoted parts (`{text}`), hosts with a port and IP addresses (`{host}`), `{url}`, and
/// addresses of mail (`{address}`). Lists of them are one, and white space is one space.
pub(crate) fn shape(message: &str) -> String {
    let mut shape = String::new();
    let mut rest = cut(message, MOST_READ).trim();
    while let Some(next) = rest.chars().next().filter(|_| shape.len() < MOST_KEPT) {
        if let Some(after) = quoted(&shape, rest) {
            put(&mut shape, TEXT);
            rest = after;
        } else if is_of_word(next) {
            let word = first_word(rest);
            put_word(&mut shape, word);
            rest = &rest[word.len()..];
        } else if next.is_whitespace() {
            rest = rest.trim_start();
            shape.push(' ');
        } else {
            rest = &rest[next.len_utf8()..];
            shape.push(next);
        }
    }
    cut(shape.trim_end(), MOST_KEPT).to_owned()
}

fn cut(text: &str, most: usize) -> &str {
    let end = (0..=most.min(text.len())).rev();
    let end = end.into_iter().find(|end| text.is_char_boundary(*end));
    &text[..end.unwrap_or(0)]
}

/// Returns the word at the start of a text, without the punctuation after it. A URL ends with white space,
/// a quote or a bracket.
fn first_word(text: &str) -> &str {
    let until = |is_end: &dyn Fn(char) -> bool| &text[..text.find(is_end).unwrap_or(text.len())];
    let mut word = until(&|c| !is_of_word(c));
    if word.contains("://") {
        word = until(&|c| c.is_whitespace() || "\"'`<>()[]{}".contains(c));
    }
    let trimmed = word.trim_end_matches(['.', ':', ',', ';', '-', '/', '_', '+']);
    if trimmed.is_empty() { word } else { trimmed }
}

fn is_of_word(c: char) -> bool {
    c.is_alphanumeric() || "._:/@+-".contains(c)
}

/// Returns what comes after the quoted part at the start of `rest`, if there is one. An apostrophe within
/// a word is no quote.
fn quoted<'m>(before: &str, rest: &'m str) -> Option<&'m str> {
    let open = rest.chars().next()?;
    let close = match open {
        '"' | '\'' => open,
        '“' => '”',
        '‘' => '’',
        '«' => '»',
        _ => return None,
    };
    if before.ends_with(char::is_alphanumeric) {
        return None;
    }
    let inside = &rest[open.len_utf8()..];
    let mut is_escaped = false;
    for (at, c) in inside
        .char_indices()
        .take_while(|(at, _)| *at <= MOST_QUOTED)
    {
        let after = &inside[at + c.len_utf8()..];
        match c {
            '\n' => return None,
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            _ if c == close && !after.starts_with(char::is_alphanumeric) => {
                return Some(after);
            }
            _ => {}
        }
    }
    None
}

/// Adds a placeholder. If the same one stands before, with nothing but separators between, both are one.
fn put(shape: &mut String, placeholder: &str) {
    let without = shape.trim_end_matches([' ', ',', '.', ':', ';', '-', '_', '/', '+', '|']);
    if without.ends_with(placeholder) {
        shape.truncate(without.len());
    } else {
        shape.push_str(placeholder);
    }
}

fn put_word(shape: &mut String, word: &str) {
    let is_plain = !word.contains(|c: char| c.is_ascii_digit() || ":@".contains(c));
    if is_plain && !is_uuid(word) && !word.split(|c: char| !c.is_alphanumeric()).any(is_hex) {
        return shape.push_str(word);
    }
    let signed = word.trim_start_matches(['-', '+']);
    if word.contains("://") {
        put(shape, URL);
    } else if is_host(word) {
        put(shape, HOST);
    } else if is_address(word) {
        put(shape, ADDRESS);
    } else if is_uuid(word) {
        put(shape, NUMBER);
    } else if signed.starts_with(|c: char| c.is_ascii_digit()) {
        put_runs(shape, signed);
    } else {
        put_runs(shape, word);
    }
}

fn is_host(word: &str) -> bool {
    let is_ip = || word.parse::<IpAddr>().is_ok() || word.parse::<SocketAddr>().is_ok();
    if word.contains(|c: char| c.is_ascii_digit()) && is_ip() {
        return true;
    }
    let Some((host, port)) = word.rsplit_once(':') else {
        return false;
    };
    let is_name = |c: char| c.is_ascii_alphanumeric() || ".-".contains(c);
    let is_known = host == "localhost" || host.contains('.');
    is_known && host.chars().all(is_name) && is_number(port)
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_address(word: &str) -> bool {
    word.split_once('@')
        .is_some_and(|(name, host)| !name.is_empty() && host.contains('.'))
}

fn is_uuid(word: &str) -> bool {
    let lengths = word.split('-').map(|part| match is_all_hex(part) {
        true => part.len(),
        false => 0,
    });
    lengths.eq([8, 4, 4, 4, 12])
}

fn is_all_hex(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Returns whether these are hexadecimal digits, and no word.
fn is_hex(run: &str) -> bool {
    let digits = run.strip_prefix("0x").unwrap_or(run);
    let has = |wanted: fn(&u8) -> bool| digits.bytes().any(|byte| wanted(&byte));
    let is_mixed = has(u8::is_ascii_digit) && has(u8::is_ascii_alphabetic);
    is_all_hex(digits)
        && (digits.len() >= 8 || digits.len() < run.len() || is_mixed && digits.len() >= 4)
}

/// Adds a word run by run: what is between separators.
fn put_runs(shape: &mut String, word: &str) {
    let mut rest = word;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_alphanumeric());
        let (run, after) = rest.split_at(end.unwrap_or(rest.len()));
        put_run(shape, run);
        let separator = after.chars().next().map_or(0, char::len_utf8);
        shape.push_str(&after[..separator]);
        rest = &after[separator..];
    }
}

fn put_run(shape: &mut String, run: &str) {
    let has_digit = run.contains(|c: char| c.is_ascii_digit());
    let unit = run.trim_start_matches(|c: char| c.is_ascii_digit());
    let has_unit = unit.len() < run.len() && UNITS.contains(&&*unit.to_lowercase());
    if is_hex(run) || is_number(run) || has_unit || has_digit && run.len() >= 12 {
        return put(shape, NUMBER);
    }
    if !has_digit {
        return shape.push_str(run);
    }
    let mut rest = run;
    while !rest.is_empty() {
        let letters = rest
            .find(|c: char| c.is_ascii_digit())
            .unwrap_or(rest.len());
        shape.push_str(&rest[..letters]);
        let digits = rest[letters..].trim_start_matches(|c: char| c.is_ascii_digit());
        if digits.len() < rest.len() - letters {
            put(shape, NUMBER);
        }
        rest = digits;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_that_differ_in_their_values_have_one_shape() {
        for (wanted, messages) in [
            (
                "cannot connect to {host}: connection refused",
                &[
                    "cannot connect to smtp.example.com:587: connection refused",
                    "cannot connect to 10.0.0.7:25: connection refused",
                    "cannot connect to localhost:25: connection  refused ",
                ][..],
            ),
            (
                "record {n}: expected {n} fields, found {n}",
                &[
                    "record 7: expected 3 fields, found 12",
                    "record -7: expected 1.5 fields, found 1_000",
                ],
            ),
            (
                "no user {n}",
                &[
                    "no user 4711",
                    "no user 550e8400-e29b-41d4-a716-446655440000",
                    "no user abcdabcd-abcd-abcd-abcd-abcdabcdabcd",
                    "no user 0x7ffe",
                    "no user e3b0c442",
                    "no user 01ARZ3NDEKTSV4RRFFQ69G5FAV",
                    "no user 1, 2, 3",
                ],
            ),
            (
                "timed out after {n}",
                &[
                    "timed out after 950ms",
                    "timed out after 1.2s",
                    "timed out after 30",
                ],
            ),
            (
                "at {n}T{n}Z",
                &["at 2026-11-24T10:00:00Z", "at 2026-01-02T03:04:05.678Z"],
            ),
            (
                "invalid digit found in string: {text}",
                &[
                    "invalid digit found in string: \"abc\"",
                    "invalid digit found in string: \"a \\\" b\"",
                    "invalid digit found in string: 'x'",
                ],
            ),
            (
                "{address} does not want {url}",
                &[
                    "ada@example.com does not want https://a.b/c?d=1",
                    "grace.h@x.org does not want ftp://x",
                ],
            ),
            (
                "called `Option::unwrap()` on a `None` value",
                &["called `Option::unwrap()` on a `None` value"],
            ),
            (
                "it doesn't work, and isn't file{n}.csv",
                &["it doesn't work, and isn't file2.csv"],
            ),
            ("", &["", "  \n "]),
            (":: -> ...", &[":: -> ..."]),
        ] {
            for message in messages {
                assert_eq!(shape(message), wanted, "{message:?}");
            }
        }
    }

    /// Stored fingerprints are compared with those of later versions.
    #[test]
    fn fingerprints_never_change() {
        for (class, kind, message, wanted) in [
            ("import", "io", "connection refused", "a73f592007f3a89d"),
            (
                "import",
                "io",
                "user 7 of 9 at 10.0.0.1:80",
                "681b4b6006566614",
            ),
            ("", "", "", "96a296d224f285c6"),
        ] {
            assert_eq!(fingerprint(class, kind, message), wanted, "{message}");
        }
    }

    #[test]
    fn any_message_has_a_short_shape() {
        for message in [
            "ä".repeat(5_000),
            "7 a".repeat(5_000),
            "\"".repeat(5_000),
            "a'b ".repeat(5_000),
            "“ ”".repeat(500),
            "0x".to_owned(),
            "1e400 -+-+ @ :@: 1@2".to_owned(),
        ] {
            let shape = shape(&message);
            assert!(shape.len() <= MOST_KEPT, "{shape}");
        }
    }
}
