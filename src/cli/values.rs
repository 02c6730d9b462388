//! Argument values whose default error messages would not help.

use crate::cli::failure::CommandError;
use crate::error::Error;
use chrono::{DateTime, Utc};
use clap::error::ErrorKind;
use serde_json::Value;
use std::io::Read as _;
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

/// Parses a time span that is not empty.
pub(crate) fn above_zero(text: &str) -> Result<Duration, String> {
    let time = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    match time.is_zero() {
        true => Err("it must be above zero".to_owned()),
        false => Ok(time),
    }
}

/// Returns the JSON text of arguments, from standard input if it is `-`.
pub(crate) fn arguments(text: &str) -> Result<String, CommandError> {
    json(("the arguments are", "them"), text)
}

/// Does the same for another text, which the message names.
pub(crate) fn json((what, it): (&str, &str), text: &str) -> Result<String, CommandError> {
    let mut text = text.to_owned();
    if text == "-" {
        text.clear();
        std::io::stdin()
            .read_to_string(&mut text)
            .map_err(|source| Error::Io {
                action: "read",
                path: "standard input".into(),
                source,
            })?;
    }
    // Its text is not part of the message, because it may be a secret.
    match serde_json::from_str::<serde::de::IgnoredAny>(&text) {
        Ok(_) => Ok(text.trim().to_owned()),
        Err(error) => Err(CommandError::Usage(
            ErrorKind::ValueValidation,
            format!("{what} not JSON: {error}; quote {it} for the shell"),
        )),
    }
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
