//! Reads the arguments of jobs.

use crate::job::arguments::{envelope, redact};
use crate::job::error::JobError;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Returns the error of a job whose arguments do not match its class.
pub(crate) fn undecodable(
    name: &str,
    redact: &[&str],
    arguments: &str,
    error: &serde_json::Error,
) -> JobError {
    let reason = redact::hide_in_text(error.to_string(), arguments, redact);
    JobError::new(
        "undecodable_arguments",
        format!("the arguments do not match `{name}`: {reason}"),
    )
}

/// Decodes arguments that a caller gave as text.
pub(crate) fn from_text<A>(
    arguments: &str,
    decode: impl Fn(&str) -> Result<A, serde_json::Error>,
) -> Result<A, String> {
    // No arguments: a unit struct, or a type without required fields.
    let decoded = match (decode(arguments), arguments.trim()) {
        (Err(error), "null") => decode("{}").map_err(|_| error),
        (decoded, _) => decoded,
    };
    decoded.map_err(|error| format!("the arguments do not match its type: {error}"))
}

/// Reads arguments: the job's own JSON, or Active Job's envelope if Ruby enqueued it, whose first
/// argument must be the hash of fields.
///
/// The envelope is tried first: a type without required fields would also decode from the envelope
/// itself, and lose its contents.
pub(crate) fn decode_as<A: DeserializeOwned>(
    arguments: &str,
    name: &str,
    aliases: &[&str],
) -> Result<A, serde_json::Error> {
    let plain = match (serde_json::from_str(arguments), arguments) {
        // No arguments, in either notation.
        (Err(error), "{}") => serde_json::from_str("null").map_err(|_| error),
        (plain, _) => plain,
    };
    if !arguments.contains("\"job_class\"") {
        return plain;
    }
    let Ok(Value::Object(mut fields)) = serde_json::from_str(arguments) else {
        return plain;
    };
    // A type without required fields would accept the envelope as its own JSON.
    let is_from_ruby = fields.contains_key("executions")
        || fields
            .get("job_class")
            .and_then(Value::as_str)
            .is_some_and(|class| class == name || aliases.contains(&class));
    match fields.remove("arguments") {
        Some(Value::Array(list)) if is_from_ruby || plain.is_err() => {
            envelope::read(list, arguments)
        }
        _ => plain,
    }
}
