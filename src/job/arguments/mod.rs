//! The JSON texts that a database can store and a worker can read again, and their form in Ruby.

pub(crate) mod envelope;
mod finite;
pub(crate) mod readable;

use crate::job::class::Job;
use crate::job::error::JobError;
use crate::job::run_log;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::{Map, Value};

/// `serde_json` writes any depth but reads only 127 levels, and an envelope needs some of them.
pub(crate) const MAX_DEPTH: usize = 120;

/// Returns true if JSON text is nested too deeply to be read again.
pub(crate) fn is_too_deep(json: &str) -> bool {
    // Most texts contain fewer brackets in total, which is a fast check.
    let brackets = json.bytes().filter(|byte| matches!(byte, b'[' | b'{'));
    brackets.count() > MAX_DEPTH && depth(json) > MAX_DEPTH
}

/// Returns how deeply arrays and objects are nested in JSON text.
fn depth(json: &str) -> usize {
    let (mut depth, mut deepest) = (0_usize, 0);
    let (mut in_text, mut is_escaped) = (false, false);
    for byte in json.bytes() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = in_text,
            b'"' => in_text = !in_text,
            b'[' | b'{' if !in_text => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' if !in_text => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

/// Returns true if JSON text contains `\u0000` as an escape, not as part of `\\u0000`.
pub(crate) fn has_escaped_nul(json: &str) -> bool {
    // `contains` is many times faster than checking each position.
    json.contains("\\u0000")
        && json.match_indices("\\u0000").any(|(index, _)| {
            let backslashes = json[..index]
                .bytes()
                .rev()
                .take_while(|b| *b == b'\\')
                .count();
            backslashes % 2 == 0
        })
}

/// Returns the arguments of a recurring task as Solid Queue stores them: a list, whose items are
/// passed when Ruby enqueues the task.
pub(crate) fn listed(arguments: &str) -> String {
    let is_listed = arguments.trim_start().starts_with(['{', '[']);
    if is_listed {
        format!("[{arguments}]")
    } else {
        arguments.to_owned()
    }
}

/// Takes arguments out of their list. Earlier versions stored them without one.
pub fn unlisted(arguments: &str) -> &str {
    let inner = arguments
        .trim()
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    let inner = inner.map(str::trim).filter(|inner| {
        inner.starts_with(['{', '[']) && serde_json::from_str::<IgnoredAny>(inner).is_ok()
    });
    inner.unwrap_or(arguments)
}

// --- Reads the arguments of jobs, of any version ---

/// Returns the error of a job whose arguments do not match its class.
fn undecodable(
    name: &str,
    redact: &[&str],
    arguments: &str,
    error: &serde_json::Error,
) -> JobError {
    let reason = run_log::hide_in_text(error.to_string(), arguments, redact);
    JobError::new(
        "undecodable_arguments",
        format!("the arguments do not match `{name}`: {reason}"),
    )
}

/// Decodes arguments that a caller gave as text.
fn from_text<A>(
    arguments: &str,
    redact: &[&str],
    decode: impl Fn(&str) -> Result<A, serde_json::Error>,
) -> Result<A, String> {
    or_none(arguments, decode).map_err(|error| {
        let reason = run_log::hide_in_text(error.to_string(), arguments, redact);
        format!("the arguments do not match its type: {reason}")
    })
}

/// A class, as far as its arguments of any version are read by it.
#[derive(Clone, Copy)]
pub(crate) struct ArgumentsReader {
    pub(crate) name: &'static str,
    pub(crate) aliases: &'static [&'static str],
    pub(crate) redact: &'static [&'static str],
    /// The version of the arguments that its type has.
    pub(crate) version: u32,
    pub(crate) upcast: fn(u32, Value) -> Result<Value, JobError>,
}

impl ArgumentsReader {
    pub(crate) fn of<J: Job>() -> Self {
        ArgumentsReader {
            name: J::NAME,
            aliases: J::ALIASES,
            redact: J::REDACT,
            version: J::VERSION,
            upcast: J::upcast,
        }
    }

    /// Reads arguments of this version or an older one.
    ///
    /// # Errors
    /// If they do not match the type, or `upcast` returns an error.
    pub(crate) fn read<A: DeserializeOwned>(
        &self,
        arguments: &str,
        version: u32,
    ) -> Result<A, JobError> {
        let mismatch = |error| undecodable(self.name, self.redact, arguments, &error);
        if version >= self.version {
            return decode_as(arguments, self.name, self.aliases).map_err(mismatch);
        }
        let old = plain_value(arguments, self.name, self.aliases).map_err(mismatch)?;
        let upcast = (self.upcast)(version, old)?.to_string();
        decode_plain(&upcast).map_err(|error| {
            let reason = run_log::hide_in_text(error.to_string(), arguments, self.redact);
            let reason = run_log::hide_in_text(reason, &upcast, self.redact);
            JobError::new(
                "undecodable_arguments",
                format!(
                    "the arguments of version {version}, as `upcast` returned them, do not match `{}`: {reason}",
                    self.name
                ),
            )
        })
    }

    /// Reads arguments of this version that a caller gave as text.
    pub(crate) fn read_text<A: DeserializeOwned>(
        &self,
        arguments: &str,
        version: u32,
    ) -> Result<A, String> {
        check_version(version, self.version)?;
        if version == self.version {
            let decode = |text: &str| decode_as(text, self.name, self.aliases);
            return from_text(arguments, self.redact, decode);
        }
        or_none(arguments, |text| self.read(text, version)).map_err(|error| error.to_string())
    }
}

/// Refuses arguments of a version that no code of this program can read.
fn check_version(version: u32, known: u32) -> Result<(), String> {
    match version > known {
        true => Err(format!(
            "its arguments have version {version}, and this program only knows versions up to {known}; \
             enqueue it with a newer program"
        )),
        false => Ok(()),
    }
}

/// Decodes arguments; `null` also means none: those of a unit struct, or of a type without required
/// fields.
fn or_none<A, E>(arguments: &str, decode: impl Fn(&str) -> Result<A, E>) -> Result<A, E> {
    match (decode(arguments), arguments.trim()) {
        (Err(error), "null") => decode("{}").map_err(|_| error),
        (decoded, _) => decoded,
    }
}

/// Reads the arguments of a job type, of its version.
pub(crate) fn decode<J: Job>(arguments: &str) -> Result<J, serde_json::Error> {
    decode_as(arguments, J::NAME, J::ALIASES)
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
    let plain = decode_plain(arguments);
    let Some(fields) = envelope_fields(arguments) else {
        return plain;
    };
    match list_of(fields, plain.is_err(), name, aliases) {
        Some(list) => envelope::read(list, arguments),
        None => plain,
    }
}

/// Reads arguments that are in no envelope.
fn decode_plain<A: DeserializeOwned>(arguments: &str) -> Result<A, serde_json::Error> {
    match (serde_json::from_str(arguments), arguments) {
        // No arguments, in either notation.
        (Err(error), "{}") => serde_json::from_str("null").map_err(|_| error),
        (plain, _) => plain,
    }
}

/// Returns arguments of any version as JSON, out of their envelope.
fn plain_value(arguments: &str, name: &str, aliases: &[&str]) -> Result<Value, serde_json::Error> {
    let list = envelope_fields(arguments).and_then(|fields| list_of(fields, false, name, aliases));
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
fn list_of(
    mut fields: Map<String, Value>,
    is_only_way: bool,
    name: &str,
    aliases: &[&str],
) -> Option<Vec<Value>> {
    // A type without required fields would accept the envelope as its own JSON.
    let is_from_ruby = fields.contains_key("executions")
        || fields
            .get("job_class")
            .and_then(Value::as_str)
            .is_some_and(|class| class == name || aliases.contains(&class));
    match fields.remove("arguments") {
        Some(Value::Array(list)) if is_from_ruby || is_only_way => Some(list),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listed_arguments_come_back() {
        for (own, theirs) in [
            (r#"{"a":[1]}"#, r#"[{"a":[1]}]"#),
            ("[1,2]", "[[1,2]]"),
            ("null", "null"),
            ("7", "7"),
        ] {
            assert_eq!(listed(own), theirs);
            assert_eq!(unlisted(theirs), own);
        }
        for kept_before in [r#"{"a":1}"#, "[1,2]", r#"[{"a":1},{"b":2}]"#] {
            assert_eq!(unlisted(kept_before), kept_before);
        }
    }

    #[test]
    fn only_escaped_nuls_are_refused() {
        assert!(has_escaped_nul(r#"{"a":"\u0000"}"#));
        assert!(!has_escaped_nul(r#"{"a":"\\u0000"}"#));
        assert!(has_escaped_nul(r#"{"a":"\\\u0000"}"#));
    }

    #[test]
    fn brackets_in_texts_are_no_depth() {
        assert_eq!(depth("null"), 0);
        assert_eq!(depth(r#"{"a":[{}],"b":[]}"#), 3);
        assert_eq!(depth(r#"["[[\"[[","\\","[["]"#), 1);
        let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        assert!(is_too_deep(&nested(MAX_DEPTH + 1)));
        assert!(!is_too_deep(&nested(MAX_DEPTH)));
        assert!(!is_too_deep(&"[]".repeat(MAX_DEPTH + 1)));
    }
}
