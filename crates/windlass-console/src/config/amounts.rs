//! Durations, numbers and sizes, some of which may be a word for their absence.

use crate::config::document::DocumentEntry;
use crate::config::value::{ValueKind, expected, quoted};
use std::time::Duration;
use toml::Value;
use windlass::internal::clock;

/// A duration that may be zero.
pub(crate) const DURATION: ValueKind<Duration> = ValueKind {
    name: "duration",
    read: |entry| {
        if let Value::Integer(number) = entry.value {
            return Err(format!(
                "the number {number} has no unit; write \"{number}s\" or \"{number} min\", for example"
            ));
        }
        let what = "a duration; write a number and its unit, such as \"10s\" or \"5 min\"";
        humantime::parse_duration(entry.text(what)?).or_else(|_| expected(what, &entry.value))
    },
    show: |duration| quoted(&clock::in_units(*duration)),
};

/// A duration above zero.
pub(crate) const INTERVAL: ValueKind<Duration> = ValueKind {
    read: |entry| match (DURATION.read)(entry)? {
        Duration::ZERO => Err("it must be above zero".to_owned()),
        duration => Ok(duration),
    },
    ..DURATION
};

/// A whole number, at least 1.
pub(crate) const WHOLE_NUMBER: ValueKind<u32> = ValueKind {
    name: "number",
    read: |entry| whole(entry, 1, "a whole number of at least 1"),
    show: u32::to_string,
};

/// A whole number, at least 0.
pub(crate) const NUMBER: ValueKind<u32> = ValueKind {
    name: "number from 0 on",
    read: |entry| whole(entry, 0, "a whole number of at least 0"),
    show: u32::to_string,
};

fn whole(entry: &DocumentEntry, least: u32, what: &str) -> Result<u32, String> {
    let number = match (&entry.value, entry.untyped()) {
        (Value::Integer(number), _) => u32::try_from(*number).ok(),
        (_, Some(number)) => number.parse().ok(),
        (Value::String(text), None) if text.trim().parse::<u32>().is_ok() => {
            return Err(format!("write {} without quotes", text.trim()));
        }
        _ => None,
    };
    let number = number.filter(|number| *number >= least);
    number.map_or_else(|| expected(what, &entry.value), Ok)
}

/// An amount of memory.
pub(crate) const BYTES: ValueKind<u64> = ValueKind {
    name: "size",
    read: |entry| {
        let what = "a size; write a whole number and its unit, such as \"512 MiB\" or \"2 GB\"";
        let text = entry.text(what)?.trim();
        let unit = text.trim_start_matches(|c: char| c.is_ascii_digit());
        let number = text.strip_suffix(unit).unwrap_or_default();
        let unit = UNITS.iter().find(|(name, _)| *name == unit.trim());
        match (number.parse::<u64>(), unit) {
            (Ok(number), Some((_, unit))) if number > 0 => number
                .checked_mul(*unit)
                .ok_or_else(|| format!("`{text}` is too large")),
            _ => expected(what, &entry.value),
        }
    },
    show: |bytes| {
        let units = UNITS.iter().skip(4).rev();
        let mut units = units.filter(|(_, unit)| bytes.is_multiple_of(*unit));
        let (name, unit) = units.next().unwrap_or(&UNITS[0]);
        quoted(&format!("{} {name}", bytes / unit))
    },
};

/// The binary units are last and in ascending order: the largest that fits is shown.
const UNITS: [(&str, u64); 8] = [
    ("B", 1),
    ("kB", 1000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
];

// --- Amounts that have a word for the absence of a value ---

/// A duration above zero, or "never".
pub(crate) const INTERVAL_OR_NEVER: ValueKind<Option<Duration>> = ValueKind {
    name: "duration or \"never\"",
    read: |entry| INTERVAL.read_or("never", entry),
    show: |age| INTERVAL.show_or("never", *age),
};

/// A number of at least 1, or "never".
pub(crate) const NUMBER_OR_NEVER: ValueKind<Option<u32>> = ValueKind {
    name: "number or \"never\"",
    read: |entry| WHOLE_NUMBER.read_or("never", entry),
    show: |number| WHOLE_NUMBER.show_or("never", *number),
};

/// An amount of memory, or "never".
pub(crate) const BYTES_OR_NEVER: ValueKind<Option<u64>> = ValueKind {
    name: "size or \"never\"",
    read: |entry| BYTES.read_or("never", entry),
    show: |bytes| BYTES.show_or("never", *bytes),
};

/// A duration, or "forever".
pub(crate) const DURATION_OR_FOREVER: ValueKind<Option<Duration>> = ValueKind {
    name: "duration or \"forever\"",
    read: |entry| DURATION.read_or("forever", entry),
    show: |age| DURATION.show_or("forever", *age),
};

/// A number of at least 1, or "unlimited".
pub(crate) const NUMBER_OR_UNLIMITED: ValueKind<Option<u32>> = ValueKind {
    name: "number or \"unlimited\"",
    read: |entry| WHOLE_NUMBER.read_or("unlimited", entry),
    show: |number| WHOLE_NUMBER.show_or("unlimited", *number),
};

/// A number of at least 1, or "auto" to derive it from other settings.
pub(crate) const NUMBER_OR_AUTO: ValueKind<Option<u32>> = ValueKind {
    name: "number or \"auto\"",
    read: |entry| WHOLE_NUMBER.read_or("auto", entry),
    show: |number| WHOLE_NUMBER.show_or("auto", *number),
};

impl<T> ValueKind<T> {
    /// Returns `None` if the value is the word for absence.
    fn read_or(&self, word: &str, entry: &DocumentEntry) -> Result<Option<T>, String> {
        match entry.value.as_str() {
            Some(text) if text.trim() == word => Ok(None),
            _ => (self.read)(entry)
                .map(Some)
                .map_err(|message| format!("{message}, or \"{word}\"")),
        }
    }

    fn show_or(&self, word: &str, value: Option<T>) -> String {
        value.map_or_else(|| quoted(word), |value| (self.show)(&value))
    }
}
