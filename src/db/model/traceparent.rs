//! The trace context of an enqueue, as W3C Trace Context writes it.

use std::fmt;

/// A trace context: the trace, the span that enqueued, and the flags of the trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Traceparent {
    pub(crate) trace_id: u128,
    pub(crate) span_id: u64,
    pub(crate) flags: u8,
}

/// The length of `00-<trace id>-<span id>-<flags>`.
const LENGTH: usize = 55;

/// The most bytes that a header of a later version of the standard may have.
const LONGEST: usize = 255;

impl Traceparent {
    /// Reads a header `traceparent`. Returns `None` if it does not have the form that the standard
    /// demands. What a later version of the standard adds at its end is ignored.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        if text.len() > LONGEST {
            return None;
        }
        let (head, rest) = text.split_at_checked(LENGTH)?;
        let [version, trace_id, span_id, flags] = fields(head)?;
        let version = hex(version, 2)?;
        let is_complete = match version {
            0 => rest.is_empty(),
            0xff => false,
            _ => rest.is_empty() || rest.starts_with('-'),
        };
        let read = Traceparent {
            trace_id: hex(trace_id, 32)?,
            span_id: u64::try_from(hex(span_id, 16)?).ok()?,
            flags: u8::try_from(hex(flags, 2)?).ok()?,
        };
        (is_complete && read.trace_id != 0 && read.span_id != 0).then_some(read)
    }
}

/// Returns the four fields of a header.
fn fields(head: &str) -> Option<[&str; 4]> {
    let mut fields = head.split('-');
    let four = [
        fields.next()?,
        fields.next()?,
        fields.next()?,
        fields.next()?,
    ];
    fields.next().is_none().then_some(four)
}

/// Reads a field of so many digits. The standard allows no capitals.
fn hex(field: &str, digits: usize) -> Option<u128> {
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    if field.len() != digits || !field.bytes().all(is_digit) {
        return None;
    }
    u128::from_str_radix(field, 16).ok()
}

/// As the header, in the version of the standard that exists.
impl fmt::Display for Traceparent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Traceparent {
            trace_id,
            span_id,
            flags,
        } = self;
        write!(f, "00-{trace_id:032x}-{span_id:016x}-{flags:02x}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn a_header_is_read_and_written() {
        let read = Traceparent::parse(GOOD).unwrap();
        assert_eq!(read.trace_id, 0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c);
        assert_eq!(read.span_id, 0xb7ad_6b71_6920_3331);
        assert_eq!((read.flags, read.to_string()), (1, GOOD.to_owned()));
        for later in [
            GOOD.replacen("00", "01", 1),
            format!("cc{}-more", &GOOD[2..]),
        ] {
            assert_eq!(Traceparent::parse(&later), Some(read), "{later}");
        }
    }

    #[test]
    fn other_texts_are_none() {
        let changed = |from: &str, to: &str| GOOD.replacen(from, to, 1);
        for text in [
            "",
            "00",
            &GOOD[1..],
            &format!("{GOOD}-more"),
            &format!("{GOOD}\n"),
            &format!(" {GOOD}"),
            &changed("00", "ff"),
            &format!("01{}more", &GOOD[2..]),
            &changed("0af7", "0AF7"),
            &changed("0af7", "+af7"),
            &changed("0af7651916cd43dd8448eb211c80319c", &"0".repeat(32)),
            &changed("b7ad6b7169203331", &"0".repeat(16)),
            &GOOD.replace('-', "_"),
            &changed("-b7ad6b7169203331", "--7ad6b7169203331"),
            &"ä".repeat(40),
            &"-".repeat(55),
            &"\0".repeat(55),
            &"0".repeat(1_000_000),
            &format!("cc{}-{}", &GOOD[2..], "a".repeat(200)),
        ] {
            assert_eq!(Traceparent::parse(text), None, "{text}");
        }
    }
}
