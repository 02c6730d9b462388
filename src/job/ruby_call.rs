//! Jobs of Ruby classes: their arguments, and the envelope around them.

use crate::clock;
use crate::db::model::new_row::NewRow;
use crate::error::{Error, Result};
use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use serde::Serialize;
use serde_json::{Map, Value, json};

/// The arguments of a call of `perform`.
#[derive(Debug, Clone, Default)]
pub(crate) struct RubyCall {
    pub(super) positional: Vec<Value>,
    pub(super) keywords: Map<String, Value>,
    /// The first thing that is wrong, which the enqueue tells.
    pub(super) problem: Option<String>,
}

impl RubyCall {
    pub(super) fn refuse(&mut self, problem: String) {
        self.problem.get_or_insert(problem);
    }

    pub(super) fn passed(&mut self, what: &str, value: impl Serialize) -> Value {
        match serde_json::to_value(value) {
            Ok(value) => {
                if let Some(key) = reserved_key(&value) {
                    self.refuse(format!(
                        "its {what} has the key `{key}`, which Active Job reserves"
                    ));
                }
                value
            }
            Err(error) => {
                self.refuse(format!("its {what} is no JSON: {error}"));
                Value::Null
            }
        }
    }

    /// Writes the envelope into the row, and its id.
    pub(crate) fn write(mut self, row: &mut NewRow, is_limited: bool) -> Result<()> {
        if is_limited {
            self.refuse(
                "a concurrency limit of Windlass does not hold for jobs that Ruby performs"
                    .to_owned(),
            );
        }
        if let Some(reason) = self.problem {
            return Err(Error::InvalidJob {
                class: row.class_name.clone(),
                reason,
            });
        }
        if !self.keywords.is_empty() {
            let names: Vec<&String> = self.keywords.keys().collect();
            let names = json!(names);
            self.keywords.insert(KEYWORDS.to_owned(), names);
            self.positional.push(Value::Object(self.keywords));
        }
        let now = clock::calendar();
        // A delay that is too long is refused with the job's other limits.
        let delay = row.delay.map(TimeDelta::microseconds);
        let delay = delay.and_then(|delay| now.checked_add_signed(delay));
        let scheduled_at = row.at.map(|at| at.and_utc()).or(delay).unwrap_or(now);
        let id = uuid();
        let envelope = json!({
            "job_class": row.class_name,
            "job_id": id,
            "provider_job_id": null,
            "queue_name": row.queue_name,
            "priority": row.priority,
            "arguments": self.positional,
            "executions": 0,
            "exception_executions": {},
            "locale": "en",
            "timezone": "UTC",
            "enqueued_at": iso8601(now),
            "scheduled_at": iso8601(scheduled_at),
        });
        row.arguments = envelope.to_string();
        row.active_job_id = Some(id);
        Ok(())
    }
}

/// The key under which Active Job keeps which keys of a hash are keywords.
const KEYWORDS: &str = "_aj_ruby2_keywords";

fn iso8601(time: DateTime<Utc>) -> String {
    time.to_rfc3339_opts(SecondsFormat::Nanos, true)
}

/// Returns a random id, as `SecureRandom.uuid` does.
fn uuid() -> String {
    let bits = fastrand::u128(..);
    let bits = bits & !(0xf << 76) & !(0x3 << 62) | (0x4 << 76) | (0x2 << 62);
    let hex = format!("{bits:032x}");
    let parts = [
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..],
    ];
    parts.join("-")
}

/// Returns a key that Active Job reserves, and that none of the types in [`ruby`](crate::ruby) has written.
fn reserved_key(value: &Value) -> Option<&str> {
    match value {
        Value::Array(items) => items.iter().find_map(reserved_key),
        Value::Object(fields) => {
            let is_reserved = |key: &str| key.starts_with("_aj_");
            let own = match () {
                () if fields.contains_key("_aj_globalid") => fields.len() == 1,
                () if fields.contains_key("_aj_serialized") => fields.contains_key("value"),
                () if fields.contains_key("_aj_symbol_keys") => {
                    fields["_aj_symbol_keys"].is_array()
                }
                () => false,
            };
            let mut keys = fields.iter().filter(|(key, _)| !own || !is_reserved(key));
            keys.find_map(|(key, value)| {
                if is_reserved(key) {
                    Some(&**key)
                } else {
                    reserved_key(value)
                }
            })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_has_its_version_and_variant() {
        let id = uuid();
        let parts: Vec<usize> = id.split('-').map(str::len).collect();
        assert_eq!(parts, [8, 4, 4, 4, 12]);
        assert_eq!(&id[14..15], "4");
        assert!("89ab".contains(&id[19..20]), "{id}");
        assert_ne!(uuid(), id);
    }

    #[test]
    fn reserved_keys_are_found() {
        assert_eq!(reserved_key(&json!([{"a": {"_aj_x": 1}}])), Some("_aj_x"));
        assert_eq!(
            reserved_key(&json!({"_aj_globalid": "gid://a/B/1", "b": 1})),
            Some("_aj_globalid")
        );
        assert_eq!(reserved_key(&json!({"_aj_globalid": "gid://a/B/1"})), None);
        assert_eq!(
            reserved_key(&json!({"_aj_serialized": "X", "value": {"_aj_y": 1}})),
            Some("_aj_y")
        );
    }
}
