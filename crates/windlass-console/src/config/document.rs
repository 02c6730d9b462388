//! A configuration file as tables of values, each with its line.

use serde::Deserialize as _;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use toml::Value;
use toml::de::{DeTable, DeValue, ValueDeserializer};
use windlass::errors::Problem;

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
        let (place, line) = match self {
            Origin::Default => (None, None),
            Origin::File { file, line } => (Some(file.clone()), Some(*line)),
            Origin::Environment(name) | Origin::Argument(name) => (Some(name.clone()), None),
        };
        Problem::new(place, line, message)
    }
}

/// A value and its source.
#[derive(Debug, Clone)]
pub(crate) struct DocumentEntry {
    /// A text if it is from the environment or the command line, which have no types.
    pub(crate) value: Value,
    pub(crate) origin: Origin,
}

/// A table of the file.
#[derive(Debug, Clone)]
pub(crate) struct DocumentTable {
    pub(crate) origin: Origin,
    pub(crate) entries: BTreeMap<String, DocumentEntry>,
    /// The entries that are tables, once more, with the lines of their own entries.
    pub(crate) tables: BTreeMap<String, DocumentTable>,
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

/// The problems of a configuration.
#[derive(Debug, Default)]
pub(crate) struct Problems {
    problems: Vec<Problem>,
    /// Lines that are not valid TOML: other problems there are consequences.
    broken_lines: BTreeSet<usize>,
}

impl Problems {
    pub(crate) fn add(&mut self, origin: &Origin, message: String) {
        let follows =
            matches!(origin, Origin::File { line, .. } if self.broken_lines.contains(line));
        if !follows {
            self.problems.push(origin.problem(message));
        }
    }

    /// Returns all problems in the order of the file, each once: a variable applies to all workers.
    pub(crate) fn sorted(mut self) -> Vec<Problem> {
        let mut shown = BTreeSet::new();
        self.problems
            .sort_by_key(|problem| problem.line.unwrap_or(usize::MAX));
        self.problems
            .retain(|problem| shown.insert(problem.to_string()));
        self.problems
    }
}

/// A configuration file.
#[derive(Debug, Default)]
pub(crate) struct ConfigFile {
    pub(crate) items: BTreeMap<String, DocumentItem>,
    pub(crate) problems: Problems,
}

impl ConfigFile {
    /// Parses a text. Invalid parts are reported as problems, and the rest is still returned.
    pub(crate) fn parse(name: &str, text: &str) -> ConfigFile {
        let (document, errors) = DeTable::parse_recoverable(text);
        let mut parser = Parser {
            name,
            text,
            problems: Problems::default(),
        };
        for error in errors {
            let at = error.span().map_or(text.len(), |span| span.start);
            let message = error.message().replace('\n', ", ");
            let problem = parser.origin(at).problem(message);
            parser.problems.broken_lines.extend(problem.line);
            parser.problems.problems.push(problem);
        }
        let items = document.get_ref().iter().map(|(key, value)| {
            let origin = parser.origin(key.span().start);
            let item = parser.item(origin, value.get_ref());
            (key.get_ref().to_string(), item)
        });
        ConfigFile {
            items: items.collect(),
            problems: parser.problems,
        }
    }
}

struct Parser<'t> {
    name: &'t str,
    text: &'t str,
    problems: Problems,
}

impl Parser<'_> {
    fn origin(&self, offset: usize) -> Origin {
        let before = self.text.as_bytes().iter().take(offset);
        Origin::File {
            file: self.name.to_owned(),
            line: 1 + before.filter(|byte| **byte == b'\n').count(),
        }
    }

    fn item(&mut self, origin: Origin, value: &DeValue<'_>) -> DocumentItem {
        match value {
            DeValue::Table(table) => DocumentItem::One(self.table(origin, table)),
            DeValue::Array(tables) if tables.iter().all(|table| table.get_ref().is_table()) => {
                let tables = tables.iter().filter_map(|table| {
                    let origin = self.origin(table.span().start);
                    Some(self.table(origin, table.get_ref().as_table()?))
                });
                DocumentItem::Many(tables.collect())
            }
            _ => DocumentItem::Value(origin),
        }
    }

    fn table(&mut self, origin: Origin, table: &DeTable<'_>) -> DocumentTable {
        let mut found = DocumentTable {
            origin,
            entries: BTreeMap::new(),
            tables: BTreeMap::new(),
        };
        for (key, value) in table {
            let (name, origin) = (key.get_ref().to_string(), self.origin(key.span().start));
            let table = value.get_ref().as_table();
            if let Some(table) = table {
                let table = self.table(origin.clone(), table);
                found.tables.insert(name.clone(), table);
            }
            match Value::deserialize(ValueDeserializer::from(value.clone())) {
                Ok(value) => {
                    found.entries.insert(name, DocumentEntry { value, origin });
                }
                // An integer in TOML may have any number of digits.
                Err(_) if table.is_none() => {
                    let message = format!("`{name}`: the number is too large");
                    self.problems.add(&origin, message);
                }
                // The entry inside of it was reported.
                Err(_) => {}
            }
        }
        found
    }
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
