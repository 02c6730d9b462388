//! Argument values whose default error messages would not help.

use chrono::{DateTime, Utc};
use serde_json::Value;

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

/// Parses a value of the metadata, as `key=JSON`.
pub(crate) fn metadata(text: &str) -> Result<(String, Value), String> {
    let Some((key, value)) = text.split_once('=') else {
        return Err("metadata is written as `key=JSON`, such as `attempts=3`".to_owned());
    };
    let value = serde_json::from_str(value).map_err(|error| {
        format!("the value is not JSON: {error}; a text needs quotes, as `'key=\"text\"'`")
    })?;
    Ok((key.to_owned(), value))
}
