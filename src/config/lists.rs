//! Lists, which may also be written as one string.

use crate::config::document::Value;
use crate::config::value::{ValueKind, expected, quoted};
use crate::queue::QueueSelector;

/// Queues to serve, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct QueueList(pub(crate) Vec<QueueSelector>);

impl ValueKind for QueueList {
    const NAME: &'static str = "list of queues";

    fn read(value: &Value) -> Result<Self, String> {
        let names = texts(value, ',')?;
        if names.is_empty() {
            return Err("it names no queue; \"*\" serves all".to_owned());
        }
        let names = names.iter().map(|name| name.trim().parse());
        let names: crate::error::Result<_> = names.collect();
        names.map(QueueList).map_err(|error| error.to_string())
    }

    fn show(&self) -> String {
        list(self.0.iter().map(ToString::to_string))
    }
}

/// A program and its arguments; empty if not set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WorkerProgram(pub(crate) Vec<String>);

impl ValueKind for WorkerProgram {
    const NAME: &'static str = "list of texts";

    fn read(value: &Value) -> Result<Self, String> {
        match value {
            Value::Text(path) => Ok(WorkerProgram(vec![path.clone()])),
            _ => texts(value, ' ').map(WorkerProgram),
        }
    }

    fn show(&self) -> String {
        list(self.0.iter().cloned())
    }
}

/// Reads a list, or its items from one string.
fn texts(value: &Value, between: char) -> Result<Vec<String>, String> {
    match value {
        Value::Text(text) | Value::Untyped(text) => {
            let items = text.split(between).map(str::trim);
            Ok(items
                .filter(|item| !item.is_empty())
                .map(str::to_owned)
                .collect())
        }
        Value::List(items) => items
            .iter()
            .map(|item| match item {
                Value::Text(text) => Ok(text.clone()),
                other => expected("a text in quotes", other),
            })
            .collect(),
        _ => expected("a list of texts", value),
    }
}

fn list(items: impl Iterator<Item = String>) -> String {
    let items: Vec<String> = items.map(|item| quoted(&item)).collect();
    format!("[{}]", items.join(", "))
}
