//! Settings that have a word for the absence of a value.

use crate::config::amounts::{Bytes, Interval, WholeNumber};
use crate::config::document::Value;
use crate::config::value::{ValueKind, quoted};
use std::time::Duration;

/// Returns `None` if the value is the word for absence.
fn absent_or<T: ValueKind>(word: &str, value: &Value) -> Result<Option<T>, String> {
    match value {
        Value::Text(text) | Value::Untyped(text) if text.trim() == word => Ok(None),
        _ => T::read(value)
            .map(Some)
            .map_err(|message| format!("{message}, or \"{word}\"")),
    }
}

fn shown_or<T: ValueKind>(word: &str, value: Option<&T>) -> String {
    value.map_or_else(|| quoted(word), ValueKind::show)
}

/// A value or "never".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Never<T>(pub(crate) Option<T>);

impl ValueKind for Never<Interval> {
    const NAME: &'static str = "duration or \"never\"";

    fn read(value: &Value) -> Result<Self, String> {
        absent_or("never", value).map(Never)
    }

    fn show(&self) -> String {
        shown_or("never", self.0.as_ref())
    }
}

impl ValueKind for Never<WholeNumber> {
    const NAME: &'static str = "number or \"never\"";

    fn read(value: &Value) -> Result<Self, String> {
        absent_or("never", value).map(Never)
    }

    fn show(&self) -> String {
        shown_or("never", self.0.as_ref())
    }
}

impl ValueKind for Never<Bytes> {
    const NAME: &'static str = "size or \"never\"";

    fn read(value: &Value) -> Result<Self, String> {
        absent_or("never", value).map(Never)
    }

    fn show(&self) -> String {
        shown_or("never", self.0.as_ref())
    }
}

/// A duration or "forever".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Forever(pub(crate) Option<Duration>);

impl ValueKind for Forever {
    const NAME: &'static str = "duration or \"forever\"";

    fn read(value: &Value) -> Result<Self, String> {
        absent_or("forever", value).map(Forever)
    }

    fn show(&self) -> String {
        shown_or("forever", self.0.as_ref())
    }
}

/// A number or "unlimited".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unlimited(pub(crate) Option<WholeNumber>);

impl ValueKind for Unlimited {
    const NAME: &'static str = "number or \"unlimited\"";

    fn read(value: &Value) -> Result<Self, String> {
        absent_or("unlimited", value).map(Unlimited)
    }

    fn show(&self) -> String {
        shown_or("unlimited", self.0.as_ref())
    }
}

/// A number, or "auto" to derive it from other settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Auto(pub(crate) Option<WholeNumber>);

impl ValueKind for Auto {
    const NAME: &'static str = "number or \"auto\"";

    fn read(value: &Value) -> Result<Self, String> {
        absent_or("auto", value).map(Auto)
    }

    fn show(&self) -> String {
        shown_or("auto", self.0.as_ref())
    }
}
