//! Durations, numbers and sizes.

use crate::clock;
use crate::config::document::Value;
use crate::config::value::{ValueKind, expected, quoted};
use std::time::Duration;

/// A duration that may be zero.
impl ValueKind for Duration {
    const NAME: &'static str = "duration";

    fn read(value: &Value) -> Result<Self, String> {
        let what = "a duration; write a number and its unit, such as \"10s\" or \"5 min\"";
        match value {
            Value::Text(text) | Value::Untyped(text) => {
                humantime::parse_duration(text).or_else(|_| expected(what, value))
            }
            Value::Integer(number) => Err(format!(
                "the number {number} has no unit; write \"{number}s\" or \"{number} min\", for example"
            )),
            _ => expected(what, value),
        }
    }

    fn show(&self) -> String {
        quoted(&clock::in_units(*self))
    }
}

/// A duration above zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Interval(pub(crate) Duration);

impl ValueKind for Interval {
    const NAME: &'static str = "duration";

    fn read(value: &Value) -> Result<Self, String> {
        match Duration::read(value)? {
            Duration::ZERO => Err("it must be above zero".to_owned()),
            duration => Ok(Interval(duration)),
        }
    }

    fn show(&self) -> String {
        self.0.show()
    }
}

/// A whole number, at least 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WholeNumber(pub(crate) u32);

impl ValueKind for WholeNumber {
    const NAME: &'static str = "number";

    fn read(value: &Value) -> Result<Self, String> {
        let what = "a whole number of at least 1";
        match value {
            Value::Integer(number) | Value::Untyped(number) => match number.trim().parse() {
                Ok(0) | Err(_) => expected(what, value),
                Ok(number) => Ok(WholeNumber(number)),
            },
            Value::Text(text) if text.trim().parse::<u32>().is_ok() => {
                Err(format!("write {} without quotes", text.trim()))
            }
            _ => expected(what, value),
        }
    }

    fn show(&self) -> String {
        self.0.to_string()
    }
}

/// An amount of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bytes(pub(crate) u64);

/// The binary units are last and in ascending order: `show` uses the largest that fits.
const BYTES: [(&str, u64); 8] = [
    ("B", 1),
    ("kB", 1000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
];

impl ValueKind for Bytes {
    const NAME: &'static str = "size";

    fn read(value: &Value) -> Result<Self, String> {
        let what = "a size; write a whole number and its unit, such as \"512 MiB\" or \"2 GB\"";
        let (Value::Text(text) | Value::Untyped(text)) = value else {
            return expected(what, value);
        };
        let text = text.trim();
        let unit = text.trim_start_matches(|c: char| c.is_ascii_digit());
        let number = text.strip_suffix(unit).unwrap_or_default();
        let unit = unit.trim();
        let unit = BYTES.iter().find(|(name, _)| *name == unit);
        match (number.parse::<u64>(), unit) {
            (Ok(number), Some((_, unit))) if number > 0 => number
                .checked_mul(*unit)
                .map(Bytes)
                .ok_or_else(|| format!("`{text}` is too large")),
            _ => expected(what, value),
        }
    }

    fn show(&self) -> String {
        let units = BYTES.iter().skip(4).rev();
        let mut units = units.filter(|(_, unit)| self.0.is_multiple_of(*unit));
        let (name, unit) = units.next().unwrap_or(&BYTES[0]);
        quoted(&format!("{} {name}", self.0 / unit))
    }
}

/// A whole number, at least 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Number(pub(crate) u32);

impl ValueKind for Number {
    const NAME: &'static str = "number from 0 on";

    fn read(value: &Value) -> Result<Self, String> {
        let what = "a whole number of at least 0";
        match value {
            Value::Integer(number) | Value::Untyped(number) => number
                .trim()
                .parse()
                .map(Number)
                .or_else(|_| expected(what, value)),
            _ => expected(what, value),
        }
    }

    fn show(&self) -> String {
        self.0.to_string()
    }
}
