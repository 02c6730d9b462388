//! Paths and links.

use crate::web::http::pairs::Pairs;

/// Returns a path of these segments, each encoded: `path(&["queues", "a/b"])` is `/queues/a%2Fb`.
pub(crate) fn path(segments: &[&str]) -> String {
    let mut path = String::new();
    for segment in segments {
        path.push('/');
        path.push_str(&encoded(segment));
    }
    path
}

/// Returns a path with a query: `with_query("/jobs", &[("queue", "mail")])` is `/jobs?queue=mail`.
pub(crate) fn with_query(path: &str, pairs: &[(&str, &str)]) -> String {
    let pairs: Pairs = pairs.iter().copied().collect();
    format!("{path}{}", pairs.to_query())
}

/// Encodes one segment of a path.
pub(crate) fn encoded(segment: &str) -> String {
    let mut text = String::with_capacity(segment.len());
    for byte in segment.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'~' | b':' | b'@' | b',' => {
                text.push(char::from(byte));
            }
            // A segment of dots only would be taken as a step.
            b'.' if segment.bytes().any(|other| other != b'.') => text.push('.'),
            _ => text.push_str(&format!("%{byte:02X}")),
        }
    }
    text
}

/// Decodes one segment of a path. A wrong code stays as it is; bytes that are not UTF-8 are
/// replaced.
pub(crate) fn decoded(segment: &str) -> String {
    let bytes = segment.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let code = bytes
            .get(at + 1..at + 3)
            .filter(|_| *byte == b'%')
            .filter(|code| code.iter().all(u8::is_ascii_hexdigit))
            .and_then(|code| u8::from_str_radix(std::str::from_utf8(code).ok()?, 16).ok());
        match code {
            Some(code) => {
                out.push(code);
                at += 3;
            }
            None => {
                out.push(*byte);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Returns the path if it is one of this site, and `/` otherwise: a form may name any text as the
/// page to return to.
pub(crate) fn local(path: &str) -> &str {
    let is_local = path.starts_with('/')
        && !path.starts_with("//")
        && path
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && byte != b'\\');
    if is_local { path } else { "/" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_survive_the_way_there_and_back() {
        for name in [
            "mail",
            "a/b",
            "50%",
            "..",
            ".",
            "a.b",
            "ä ö+&=?#",
            "%2F",
            "\u{202e}x",
        ] {
            let encoded = encoded(name);
            assert!(!encoded.contains(['/', ' ', '?', '#', '&']), "{encoded}");
            assert_ne!(encoded, "..");
            assert_eq!(decoded(&encoded), name);
        }
        assert_eq!(decoded("%zz%2"), "%zz%2");
        assert_eq!(path(&["queues", "a/b"]), "/queues/a%2Fb");
        assert_eq!(
            with_query("/jobs", &[("queue", "a&b")]),
            "/jobs?queue=a%26b"
        );
    }

    #[test]
    fn a_page_to_return_to_is_one_of_this_site() {
        for path in ["/", "/jobs?state=failed"] {
            assert_eq!(local(path), path);
        }
        for path in [
            "",
            "//evil.example",
            "https://evil.example",
            "/\\evil",
            "/a\r\nb",
        ] {
            assert_eq!(local(path), "/");
        }
    }
}
