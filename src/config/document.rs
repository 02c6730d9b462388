//! A configuration file as a tree of values, each with its position.

use crate::error::Problem;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use toml::de::{DeTable, DeValue};

/// The source of a setting's value.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Origin {
    /// The default; the setting was not set.
    Default,
    /// A line of the configuration file, starting at 1.
    File {
        /// The file's name, as given.
        file: String,
        /// The line.
        line: usize,
    },
    /// The environment variable with this name.
    Environment(String),
    /// A command-line option.
    Argument(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Default => f.write_str("default"),
            Origin::File { file, line } if file.is_empty() => write!(f, "line {line}"),
            Origin::File { file, line } => write!(f, "{file}:{line}"),
            Origin::Environment(name) | Origin::Argument(name) => f.write_str(name),
        }
    }
}

impl Origin {
    pub(crate) fn problem(&self, message: String) -> Problem {
        match self {
            Origin::File { file, line } => Problem {
                place: Some(file.clone()),
                line: Some(*line),
                message,
            },
            Origin::Environment(name) | Origin::Argument(name) => Problem {
                place: Some(name.clone()),
                line: None,
                message,
            },
            Origin::Default => Problem {
                place: None,
                line: None,
                message,
            },
        }
    }
}

/// A value and its source.
#[derive(Debug, Clone)]
pub(crate) struct DocumentEntry {
    pub(crate) value: Value,
    pub(crate) origin: Origin,
}

/// A table of the file.
#[derive(Debug, Clone)]
pub(crate) struct DocumentTable {
    pub(crate) origin: Origin,
    pub(crate) entries: BTreeMap<String, DocumentEntry>,
}

/// A top-level item of the file.
#[derive(Debug)]
pub(crate) enum DocumentItem {
    /// `[supervisor]`
    One(DocumentTable),
    /// `[[workers]]`
    Many(Vec<DocumentTable>),
    /// `threads = 5`, outside any table.
    Value(Origin),
}

/// A configuration file.
#[derive(Debug, Default)]
pub(crate) struct ConfigFile {
    pub(crate) items: BTreeMap<String, DocumentItem>,
    pub(crate) problems: Vec<Problem>,
}

impl ConfigFile {
    /// Parses a text. Invalid parts are reported as problems, and the rest is still returned.
    pub(crate) fn parse(name: &str, text: &str) -> ConfigFile {
        let location = TextLocation { name, text };
        let (document, errors) = DeTable::parse_recoverable(text);
        let problems = errors.iter().map(|error| {
            let at = error.span().map_or(text.len(), |span| span.start);
            location.at(at).problem(error.message().replace('\n', ", "))
        });
        ConfigFile {
            problems: problems.collect(),
            items: document
                .get_ref()
                .iter()
                .map(|(key, value)| {
                    let origin = location.at(key.span().start);
                    let item = location.item(origin, value.get_ref());
                    (key.get_ref().to_string(), item)
                })
                .collect(),
        }
    }
}

struct TextLocation<'t> {
    name: &'t str,
    text: &'t str,
}

impl TextLocation<'_> {
    fn at(&self, offset: usize) -> Origin {
        let before = self.text.as_bytes().iter().take(offset);
        Origin::File {
            file: self.name.to_owned(),
            line: 1 + before.filter(|byte| **byte == b'\n').count(),
        }
    }

    fn item(&self, origin: Origin, value: &DeValue<'_>) -> DocumentItem {
        match value {
            DeValue::Table(table) => DocumentItem::One(self.table(origin, table)),
            DeValue::Array(tables) if tables.iter().all(|table| table.get_ref().is_table()) => {
                let tables = tables.iter().filter_map(|table| {
                    let origin = self.at(table.span().start);
                    Some(self.table(origin, table.get_ref().as_table()?))
                });
                DocumentItem::Many(tables.collect())
            }
            _ => DocumentItem::Value(origin),
        }
    }

    fn table(&self, origin: Origin, table: &DeTable<'_>) -> DocumentTable {
        let entries = table.iter().map(|(key, value)| {
            let origin = self.at(key.span().start);
            let entry = DocumentEntry {
                value: self.value(&origin, value.get_ref()),
                origin,
            };
            (key.get_ref().to_string(), entry)
        });
        DocumentTable {
            origin,
            entries: entries.collect(),
        }
    }

    /// Converts the value at `origin`, with everything in it.
    fn value(&self, origin: &Origin, value: &DeValue<'_>) -> Value {
        match value {
            DeValue::String(text) => Value::Text(text.to_string()),
            DeValue::Integer(number) => integer(number.as_str(), number.radix()),
            DeValue::Float(number) => Value::Float(number.as_str().to_owned()),
            DeValue::Boolean(value) => Value::Boolean(*value),
            DeValue::Array(items) => {
                let items = items.iter().map(|item| self.value(origin, item.get_ref()));
                Value::List(items.collect())
            }
            DeValue::Table(table) => Value::Table(self.table(origin.clone(), table)),
            DeValue::Datetime(_) => Value::Other("datetime"),
        }
    }
}

fn integer(digits: &str, radix: u32) -> Value {
    match radix {
        10 => Value::Integer(digits.to_owned()),
        _ => i64::from_str_radix(digits, radix).map_or(Value::Other("number"), |number| {
            Value::Integer(number.to_string())
        }),
    }
}

/// A value as written.
#[derive(Debug, Clone)]
pub(crate) enum Value {
    Text(String),
    Integer(String),
    Float(String),
    Boolean(bool),
    List(Vec<Value>),
    Table(DocumentTable),
    /// From the environment or the command line, which have no types.
    Untyped(String),
    /// The name of a type that no setting accepts.
    Other(&'static str),
}

// --- The sources of values: the file, the environment, the command line ---

/// Returns the variables that may be settings.
pub(crate) fn environment() -> BTreeMap<String, String> {
    let variables = std::env::vars_os().filter_map(|(name, value)| {
        let name = name.into_string().ok()?;
        let ours = name.starts_with("WINDLASS_") || name == "DATABASE_URL";
        // An empty variable counts as not set.
        let value = value.to_string_lossy().into_owned();
        (ours && !value.trim().is_empty()).then_some((name, value))
    });
    variables.collect()
}

// --- The name that was probably meant by one that does not exist ---

/// Returns the known name that is most similar, if one is similar enough.
pub(crate) fn nearest<K: AsRef<str>>(name: &str, known: impl Iterator<Item = K>) -> Option<K> {
    known
        .map(|known| (strsim::jaro_winkler(name, known.as_ref()), known))
        .filter(|(nearness, _)| *nearness > 0.85)
        .max_by(|one, other| one.0.total_cmp(&other.0))
        .map(|(_, known)| known)
}

/// Returns `; did you mean ..?` if a similar name exists, and otherwise the existing names.
pub(crate) fn suggestion<'k>(name: &str, known: impl Iterator<Item = &'k str>) -> String {
    let known: BTreeSet<&str> = known.collect();
    match nearest(name, known.iter().copied()) {
        Some(near) => format!("; did you mean `{near}`?"),
        None if known.len() <= 12 => {
            let known: Vec<&str> = known.into_iter().collect();
            format!("; there are {}", known.join(", "))
        }
        None => String::new(),
    }
}
