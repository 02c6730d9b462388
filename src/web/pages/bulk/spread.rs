//! Over what time retried jobs become due.

use crate::admin::groups::RetryRate;
use crate::operation::start::Preview;
use crate::web::http::page_error::PageError;
use std::time::Duration;

/// A choice: its value in the form, and in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SpreadChoice {
    pub(crate) value: String,
    pub(crate) label: String,
}

/// The times over which a known number of jobs can be spread, in seconds.
const OVER: [(u64, &str); 4] = [
    (60, "1 minute"),
    (600, "10 minutes"),
    (3_600, "1 hour"),
    (28_800, "8 hours"),
];

/// The rates at which an unknown number of jobs can be spread.
const RATES: [&str; 4] = ["100/s", "10/s", "100/min", "1000/h"];

/// Returns the choices for the jobs of a preview.
pub(crate) fn choices(preview: &Preview) -> Vec<SpreadChoice> {
    let at_once = SpreadChoice {
        value: String::new(),
        label: "at once".to_owned(),
    };
    let over = OVER.iter().map(|(seconds, label)| SpreadChoice {
        value: format!("over {seconds}"),
        label: format!("over {label}"),
    });
    let rates = RATES.iter().map(|rate| SpreadChoice {
        value: (*rate).to_owned(),
        label: rate.replace("1000", "1,000"),
    });
    let can_know = preview.is_exact && preview.count > 0;
    std::iter::once(at_once)
        .chain(over.filter(|_| can_know))
        .chain(rates)
        .collect()
}

/// Reads a choice: nothing, a rate such as `100/min`, or `over 600` in seconds.
///
/// # Errors
/// If it is none of them.
pub(crate) fn rate(text: &str, preview: &Preview) -> Result<Option<RetryRate>, PageError> {
    let text = text.trim();
    if text.is_empty() {
        return Ok(None);
    }
    let Some(seconds) = text.strip_prefix("over ") else {
        return Ok(Some(text.parse()?));
    };
    let known = OVER.iter().find(|(over, _)| seconds.parse() == Ok(*over));
    let jobs = u32::try_from(preview.count).ok().filter(|jobs| *jobs > 0);
    let (Some((seconds, _)), Some(jobs)) = (known, jobs.filter(|_| preview.is_exact)) else {
        return Err(PageError::Invalid(
            "This number of jobs cannot be spread over that time.".to_owned(),
        ));
    };
    Ok(Some(RetryRate::new(jobs, Duration::from_secs(*seconds))?))
}
