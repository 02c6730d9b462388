//! Reads the arguments of a job, of any version.

use crate::job::arguments::{envelope, redact};
use crate::job::class::Job;
use crate::job::error::JobError;
use serde_json::{Map, Value};

/// Reads arguments of this version or an older one.
///
/// # Errors
/// If they do not match the type, or its `upcast` returns an error.
pub(crate) fn decode_version<J: Job>(arguments: &str, version: u32) -> Result<J, JobError> {
    if version >= J::VERSION {
        return decode(arguments).map_err(|error| mismatch::<J>(&error, arguments));
    }
    let old = plain_value::<J>(arguments).map_err(|error| mismatch::<J>(&error, arguments))?;
    let new = J::upcast(version, old)?;
    let upcast = new.to_string();
    decode_plain(&upcast).map_err(|error| {
        let reason = redact::hide_in_text(error.to_string(), arguments, J::REDACT);
        let reason = redact::hide_in_text(reason, &upcast, J::REDACT);
        undecodable(format!(
            "the arguments of version {version}, as `upcast` returned them, do not match `{}`: {reason}",
            J::NAME
        ))
    })
}

fn mismatch<J: Job>(error: &serde_json::Error, arguments: &str) -> JobError {
    let reason = redact::hide_in_text(error.to_string(), arguments, J::REDACT);
    undecodable(format!(
        "the arguments do not match `{}`: {reason}",
        J::NAME
    ))
}

fn undecodable(message: String) -> JobError {
    JobError::new("undecodable_arguments", message)
}

/// Reads arguments: the job's own JSON, or Active Job's envelope if Ruby enqueued it, whose first
/// argument must be the hash of fields.
///
/// The envelope is tried first: a type without required fields would also decode from the envelope
/// itself, and lose its contents.
pub(crate) fn decode<J: Job>(arguments: &str) -> Result<J, serde_json::Error> {
    let plain = decode_plain(arguments);
    let Some(fields) = envelope_fields(arguments) else {
        return plain;
    };
    match list_of::<J>(fields, plain.is_err()) {
        Some(list) => envelope::read(list, arguments),
        None => plain,
    }
}

/// Reads arguments that are in no envelope.
fn decode_plain<J: Job>(arguments: &str) -> Result<J, serde_json::Error> {
    match (serde_json::from_str(arguments), arguments) {
        // No arguments, in either notation.
        (Err(error), "{}") => serde_json::from_str("null").map_err(|_| error),
        (plain, _) => plain,
    }
}

/// Returns arguments of any version as JSON, out of their envelope.
fn plain_value<J: Job>(arguments: &str) -> Result<Value, serde_json::Error> {
    let list = envelope_fields(arguments).and_then(|fields| list_of::<J>(fields, false));
    match list {
        Some(list) => envelope::read(list, arguments),
        None => serde_json::from_str(arguments),
    }
}

/// Returns the fields of what may be an envelope.
fn envelope_fields(arguments: &str) -> Option<Map<String, Value>> {
    if !arguments.contains("\"job_class\"") {
        return None;
    }
    serde_json::from_str(arguments).ok()
}

/// Returns the list of arguments, if the fields are those of an envelope. If they match no job
/// otherwise, any list is one.
fn list_of<J: Job>(mut fields: Map<String, Value>, is_only_way: bool) -> Option<Vec<Value>> {
    // A type without required fields would accept the envelope as its own JSON.
    let is_from_ruby = fields.contains_key("executions")
        || fields
            .get("job_class")
            .and_then(Value::as_str)
            .is_some_and(|class| class == J::NAME || J::ALIASES.contains(&class));
    match fields.remove("arguments") {
        Some(Value::Array(list)) if is_from_ruby || is_only_way => Some(list),
        _ => None,
    }
}
