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

/// Texts; empty if not set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TextList(pub(crate) Vec<String>);

impl ValueKind for TextList {
    const NAME: &'static str = "list of texts";

    fn read(value: &Value) -> Result<Self, String> {
        texts(value, ',').map(TextList)
    }

    fn show(&self) -> String {
        list(self.0.iter().cloned())
    }
}

/// Databases by name, as `NAME=ADDRESS`, which may contain passwords; empty if not set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NamedAddresses(pub(crate) Vec<(String, String)>);

impl ValueKind for NamedAddresses {
    const NAME: &'static str = "list of `NAME=ADDRESS`";

    fn read(value: &Value) -> Result<Self, String> {
        // What is written is not shown, because it may contain a password.
        let wrong = || "each is written as `NAME=ADDRESS`, such as `billing=postgres://db/billing`";
        let items = texts(value, ',').map_err(|_| wrong().to_owned())?;
        let pairs = items.into_iter().map(|item| {
            let (name, address) = item.split_once('=').ok_or_else(wrong)?;
            let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
            if name.is_empty() || !name.bytes().all(is_name) {
                return Err(wrong().to_owned());
            }
            match crate::db::conn::database::Database::open(address) {
                Ok(_) => Ok((name.to_owned(), address.trim().to_owned())),
                Err(error) => Err(error.to_string()),
            }
        });
        pairs.collect::<Result<_, _>>().map(NamedAddresses)
    }

    fn show(&self) -> String {
        let shown = self.0.iter().map(|(name, address)| {
            format!(
                "{name}={}",
                crate::db::conn::address::without_secrets(address)
            )
        });
        list(shown)
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
