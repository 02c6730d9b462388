//! Argument values whose default error messages would not help.

use chrono::{DateTime, Utc};
use std::time::Duration;

/// Parses a job's id.
pub(crate) fn job_id(text: &str) -> Result<i64, String> {
    text.parse()
        .map_err(|_| "a job's id is a whole number, as `jobs list` shows it".to_owned())
}

/// Parses a time with its zone.
pub(crate) fn time(text: &str) -> Result<DateTime<Utc>, String> {
    text.parse().map_err(|error| {
        format!("{error}; a time is written with its date and zone, as 2026-12-24T18:00:00Z or 2026-12-24T18:00:00+02:00")
    })
}

/// Parses a duration that must not be zero.
pub(crate) fn above_zero(text: &str) -> Result<Duration, String> {
    match humantime::parse_duration(text) {
        Ok(Duration::ZERO) => Err("it must be above zero".to_owned()),
        Ok(time) => Ok(time),
        Err(error) => Err(error.to_string()),
    }
}
