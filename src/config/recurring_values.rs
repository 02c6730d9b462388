//! Values of recurring tasks in the configuration.

use crate::config::document::Value;
use crate::config::value::{expected, quoted};
use crate::error::Result;
use chrono::{DateTime, Utc};
use serde::de::DeserializeOwned;

pub(crate) fn text(value: &Value) -> std::result::Result<String, String> {
    match value {
        Value::Text(text) => Ok(text.clone()),
        _ => expected("a text in quotes", value),
    }
}

pub(crate) fn time(value: &Value) -> std::result::Result<DateTime<Utc>, String> {
    let what = "a time with its date and zone in quotes, such as \"2026-12-24T18:00:00+01:00\"";
    match value {
        Value::Text(text) => text.trim().parse().or_else(|_| expected(what, value)),
        _ => expected(what, value),
    }
}

pub(crate) fn priority(value: &Value) -> std::result::Result<i32, String> {
    let what = "a whole number between -2147483648 and 2147483647";
    match value {
        Value::Integer(number) => number.parse().or_else(|_| expected(what, value)),
        _ => expected(what, value),
    }
}

/// Reads a word, or a table with one entry.
pub(crate) fn one_of<T: DeserializeOwned>(
    value: &Value,
    what: &str,
) -> std::result::Result<T, String> {
    serde_json::from_value(json(value)?).or_else(|error| match value {
        Value::Table(_) => Err(format!("{error}; it may be {what}")),
        _ => expected(what, value),
    })
}

/// Converts to JSON, which has more kinds of numbers than TOML, and no dates.
pub(crate) fn json(value: &Value) -> std::result::Result<serde_json::Value, String> {
    use serde_json::{Number, Value as Json};
    Ok(match value {
        Value::Text(text) | Value::Untyped(text) => Json::String(text.clone()),
        Value::Boolean(value) => Json::Bool(*value),
        Value::Integer(number) => {
            let number = number
                .parse()
                .map(|number: i64| Json::Number(number.into()));
            number.or_else(|_| expected("between -2^63 and 2^63", value))?
        }
        Value::Float(number) => {
            let number = number.parse().ok().and_then(Number::from_f64);
            match number {
                Some(number) => Json::Number(number),
                None => return expected("a number in JSON, which the arguments become", value),
            }
        }
        Value::List(items) => Json::Array(items.iter().map(json).collect::<Result<_, _>>()?),
        Value::Table(table) => {
            let fields = table.entries.iter();
            let fields = fields.map(|(name, entry)| Ok((name.clone(), json(&entry.value)?)));
            Json::Object(fields.collect::<Result<_, String>>()?)
        }
        Value::Other(_) => return expected("a value in JSON; write it in quotes", value),
    })
}

/// Writes JSON as TOML, on one line.
pub(crate) fn inline(json: &serde_json::Value) -> String {
    use serde_json::Value as Json;
    match json {
        Json::Object(fields) if fields.is_empty() => "{}".to_owned(),
        Json::Object(fields) => {
            let fields = fields.iter();
            let fields: Vec<String> = fields
                .map(|(name, value)| format!("{} = {}", name_of(name), inline(value)))
                .collect();
            format!("{{ {} }}", fields.join(", "))
        }
        Json::Array(items) => {
            let items: Vec<String> = items.iter().map(inline).collect();
            format!("[{}]", items.join(", "))
        }
        other => other.to_string(),
    }
}

/// Writes a key, in quotes if TOML needs them.
pub(crate) fn name_of(name: &str) -> String {
    let is_bare = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    match !name.is_empty() && name.chars().all(is_bare) {
        true => name.to_owned(),
        false => quoted(name),
    }
}
