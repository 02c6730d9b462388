//! What the audit says about a change of a recurring task.

use crate::db::Conn;
use crate::db::model::audit::{Actor, AuditAction};
use crate::db::model::recurring::RecurringTaskRow;
use crate::db::transition::operators::{AuditEffect, AuditTrail};
use crate::db::transition::schedule;
use crate::error::{Doing, Result};
use serde_json::{Map, Value, json};

/// Changes a task, and writes the row of the audit in the same transaction if the task is another one
/// afterwards.
pub(crate) fn record<T>(
    conn: &mut Conn<'_>,
    actor: &Actor,
    action: AuditAction,
    key: &str,
    change: impl FnOnce(&mut Conn<'_>) -> Result<T>,
) -> Result<T> {
    let look = |conn: &mut Conn<'_>| {
        let row = schedule::lock(conn, key).doing("read the recurring task")?;
        Ok::<_, crate::error::Error>(row.as_ref().map(values))
    };
    let mut trail = AuditTrail::new(actor, action).target(key);
    let (done, ..) = trail.record_as(
        conn,
        |conn| {
            let before = look(conn)?;
            let done = change(conn)?;
            Ok::<_, crate::error::Error>((done, before, look(conn)?))
        },
        |(_, before, after)| difference(before.as_ref(), after.as_ref()),
    )?;
    Ok(done)
}

/// Returns what operators set of a task. Its arguments are compared, and not shown.
fn values(row: &RecurringTaskRow) -> Map<String, Value> {
    let options: Value = serde_json::from_str(&row.options).unwrap_or_default();
    let values = json!({
        "schedule": row.schedule,
        "time_zone": row.time_zone,
        "class_name": row.class_name,
        "arguments": row.arguments,
        "queue_name": row.queue_name,
        "priority": row.priority,
        "description": row.description,
        "options": options,
        "paused": row.paused_at.is_some(),
    });
    match values {
        Value::Object(values) => values,
        _ => Map::new(),
    }
}

/// Returns the values that differ, as they were and as they are.
fn difference(
    before: Option<&Map<String, Value>>,
    after: Option<&Map<String, Value>>,
) -> (AuditEffect, Option<String>) {
    let differing = |one: Option<&Map<String, Value>>, other: Option<&Map<String, Value>>| {
        let values = one.into_iter().flatten();
        let values = values.filter(|(name, value)| {
            let same = other.and_then(|other| other.get(*name));
            !value.is_null() && same != Some(value)
        });
        let shown = values.map(|(name, value)| match &**name {
            "arguments" => (name.clone(), json!("[hidden]")),
            _ => (name.clone(), value.clone()),
        });
        shown.collect::<Map<String, Value>>()
    };
    if before == after {
        return (AuditEffect::Nothing, None);
    }
    let mut all = Map::new();
    for (name, values) in [
        ("from", differing(before, after)),
        ("to", differing(after, before)),
    ] {
        if !values.is_empty() {
            all.insert(name.to_owned(), values.into());
        }
    }
    (AuditEffect::Done, Some(Value::Object(all).to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_differs_is_shown() {
        let of = |value: Value| match value {
            Value::Object(values) => values,
            _ => Map::new(),
        };
        let one = of(json!({"schedule": "@daily", "arguments": "1", "queue_name": "a"}));
        let two = of(json!({"schedule": "@hourly", "arguments": "2", "queue_name": "a"}));
        assert_eq!(
            difference(Some(&one), Some(&one)),
            (AuditEffect::Nothing, None)
        );
        let (effect, text) = difference(Some(&one), Some(&two));
        assert_eq!(effect, AuditEffect::Done);
        let shown: Value = serde_json::from_str(&text.unwrap()).unwrap();
        let wanted = json!({
            "from": {"schedule": "@daily", "arguments": "[hidden]"},
            "to": {"schedule": "@hourly", "arguments": "[hidden]"},
        });
        assert_eq!(shown, wanted);
        let (_, added) = difference(None, Some(&two));
        assert!(added.unwrap().starts_with(r#"{"to":"#));
    }
}
