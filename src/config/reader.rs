//! Reads settings one by one, and records which were read.

use crate::config::document::{
    ConfigFile, DocumentEntry, DocumentItem, DocumentTable, Origin, Value, nearest, suggestion,
};
use crate::config::value::ValueKind;
use crate::error::Problem;
use std::collections::{BTreeMap, BTreeSet};

/// An effective setting, for display.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Setting {
    /// The table that contains it: `workers`.
    pub table: &'static str,
    /// The number of the table, if there may be several with this name, starting at 1.
    pub number: Option<usize>,
    /// Its name in the table: `threads`.
    pub name: &'static str,
    /// Its value as written in the file, without secrets.
    pub value: String,
    /// The default.
    pub default: String,
    /// The kind of value: `duration`.
    pub kind: &'static str,
    /// A description.
    pub meaning: &'static str,
    /// The environment variable that sets it.
    pub variable: String,
    /// The source of its value.
    pub origin: Origin,
}

impl Setting {
    /// Returns its name with the table's: `workers.threads`.
    pub fn key(&self) -> String {
        format!("{}.{}", self.table, self.name)
    }
}

/// A value that was read, and its source.
#[derive(Debug, Clone)]
pub(crate) struct Sourced<T> {
    pub(crate) value: T,
    pub(crate) origin: Origin,
}

/// A command-line option that sets a value for all tables with a name.
#[derive(Debug, Clone)]
pub(crate) struct Argument {
    pub(crate) table: &'static str,
    pub(crate) name: &'static str,
    pub(crate) option: &'static str,
    pub(crate) value: String,
}

/// The sources of settings, in order of priority: arguments, environment, file.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    pub(crate) arguments: Vec<Argument>,
    pub(crate) environment: BTreeMap<String, String>,
    items: BTreeMap<String, DocumentItem>,
    /// Lines that are not valid TOML: other problems there are consequences.
    broken_lines: BTreeSet<usize>,
    used: BTreeSet<String>,
    pub(crate) settings: Vec<Setting>,
    problems: Vec<Problem>,
}

/// One table, from all sources.
#[derive(Debug)]
pub(crate) struct TableReader {
    table: &'static str,
    number: Option<usize>,
    pub(crate) origin: Origin,
    entries: BTreeMap<String, DocumentEntry>,
    known: Vec<&'static str>,
}

/// Not settings, but messages between Windlass processes.
const OTHER_VARIABLES: [&str; 6] = [
    crate::config::value::FILE_VARIABLE,
    crate::config::value::WORKER_VARIABLE,
    "WINDLASS_CHILD_TOKEN",
    "WINDLASS_SUPERVISOR_ID",
    "WINDLASS_BEGIN_QUIET",
    crate::config::value::REVISION_VARIABLE,
];

impl Reader {
    pub(crate) fn of(file: ConfigFile) -> Self {
        let lines = file.problems.iter().filter_map(|problem| problem.line);
        Reader {
            broken_lines: lines.collect(),
            items: file.items,
            problems: file.problems,
            ..Reader::default()
        }
    }

    pub(crate) fn problem(&mut self, origin: &Origin, message: String) {
        let follows =
            matches!(origin, Origin::File { line, .. } if self.broken_lines.contains(line));
        if !follows {
            self.problems.push(origin.problem(message));
        }
    }

    /// Returns the table with this name.
    pub(crate) fn one(&mut self, table: &'static str) -> TableReader {
        let found = match self.items.remove(table) {
            Some(DocumentItem::One(found)) => Some(found),
            Some(DocumentItem::Many(tables)) => {
                if let Some(second) = tables.get(1) {
                    let message = format!("there may be only one `[{table}]`");
                    self.problem(&second.origin.clone(), message);
                }
                tables.into_iter().next()
            }
            Some(DocumentItem::Value(origin)) => {
                self.problem(&origin, format!("`{table}` is a table: write `[{table}]`"));
                None
            }
            None => None,
        };
        TableReader::new(table, None, found)
    }

    /// Returns the tables with this name. If the file does not mention it, there is one with all
    /// defaults; `name = []` means none.
    pub(crate) fn many(&mut self, table: &'static str) -> Vec<TableReader> {
        let tables = match self.items.remove(table) {
            Some(DocumentItem::Many(tables)) => tables.into_iter().map(Some).collect(),
            Some(DocumentItem::One(found)) => {
                let message = format!("there may be several of these: write `[[{table}]]`");
                self.problem(&found.origin.clone(), message);
                vec![Some(found)]
            }
            Some(DocumentItem::Value(origin)) => {
                let message = format!("`{table}` are tables: write `[[{table}]]`");
                self.problem(&origin, message);
                vec![None]
            }
            None => vec![None],
        };
        let tables = tables.into_iter().enumerate();
        tables
            .map(|(index, found)| TableReader::new(table, Some(index + 1), found))
            .collect()
    }

    /// Returns the tables within the table with this name.
    pub(crate) fn within(&mut self, table: &'static str) -> Vec<(String, DocumentTable)> {
        let nested = format!("write `[{table}.KEY]`");
        let found = match self.items.remove(table) {
            Some(DocumentItem::One(found)) => found,
            Some(DocumentItem::Many(tables)) => {
                if let Some(first) = tables.first() {
                    self.problem(&first.origin, format!("each needs its own table: {nested}"));
                }
                return Vec::new();
            }
            Some(DocumentItem::Value(origin)) => {
                self.problem(&origin, format!("`{table}` is a table of tables: {nested}"));
                return Vec::new();
            }
            None => return Vec::new(),
        };
        let mut tables = Vec::new();
        for (key, entry) in found.entries {
            match entry.value {
                Value::Table(table) => tables.push((key, table)),
                _ => {
                    let message = format!("`{table}.{key}` is not a table: {nested}");
                    self.problem(&entry.origin, message);
                }
            }
        }
        tables
    }

    /// Reports everything else in the file and the environment as unknown. Returns the warnings.
    pub(crate) fn end(&mut self) -> Vec<Problem> {
        let mut tables: BTreeSet<&str> = self.settings.iter().map(|s| s.table).collect();
        tables.insert(crate::config::value::TABLE);
        tables.insert(crate::config::value::QUEUES);
        let strangers: Vec<(String, Origin)> = std::mem::take(&mut self.items)
            .into_iter()
            .map(|(name, item)| match item {
                DocumentItem::One(table) => (name, table.origin),
                DocumentItem::Many(tables) => {
                    let first = tables.into_iter().next();
                    (name, first.map_or(Origin::Default, |table| table.origin))
                }
                DocumentItem::Value(origin) => (name, origin),
            })
            .collect();
        for (name, origin) in strangers {
            let known = suggestion(&name, tables.iter().copied());
            self.problem(&origin, format!("there is no table `{name}`{known}"));
        }
        let variables: Vec<String> = self.settings.iter().map(|s| s.variable.clone()).collect();
        let strangers = self.environment.keys().filter(|name| {
            name.starts_with("WINDLASS_")
                && !self.used.contains(*name)
                && !OTHER_VARIABLES.contains(&name.as_str())
        });
        strangers
            .map(|name| {
                let bare = |name: &str| name.trim_start_matches("WINDLASS_").to_owned();
                let near = nearest(&bare(name), variables.iter().map(|name| bare(name)));
                let known = near.map_or(String::new(), |near| {
                    format!("; did you mean `WINDLASS_{near}`?")
                });
                let origin = Origin::Environment(name.clone());
                origin.problem(format!("this variable does not set anything{known}"))
            })
            .collect()
    }

    /// Returns all problems in the order of the file, each once: a variable applies to all workers.
    pub(crate) fn problems(&mut self) -> Vec<Problem> {
        let mut problems = std::mem::take(&mut self.problems);
        problems.sort_by_key(|problem| problem.line.unwrap_or(usize::MAX));
        let mut told = BTreeSet::new();
        problems.retain(|problem| told.insert(problem.to_string()));
        problems
    }

    /// Returns the value with the highest priority.
    fn find(&mut self, section: &TableReader, name: &'static str) -> Option<DocumentEntry> {
        let argument = self.arguments.iter();
        let mut argument = argument.filter(|a| a.table == section.table && a.name == name);
        if let Some(argument) = argument.next() {
            return Some(DocumentEntry {
                value: Value::Untyped(argument.value.clone()),
                origin: Origin::Argument(argument.option.to_owned()),
            });
        }
        let mut found = None;
        for variable in section.variables(name) {
            if let Some(value) = self.environment.get(&variable) {
                self.used.insert(variable.clone());
                found.get_or_insert(DocumentEntry {
                    value: Value::Untyped(value.clone()),
                    origin: Origin::Environment(variable),
                });
            }
        }
        found
    }
}

impl TableReader {
    fn new(table: &'static str, number: Option<usize>, found: Option<DocumentTable>) -> Self {
        let (origin, entries) = found.map_or((Origin::Default, BTreeMap::new()), |found| {
            (found.origin, found.entries)
        });
        TableReader {
            table,
            number,
            origin,
            entries,
            known: Vec::new(),
        }
    }

    /// Returns the variables of a setting, in order of priority.
    fn variables(&self, name: &str) -> Vec<String> {
        let (table, name) = (self.table.to_uppercase(), name.to_uppercase());
        let all = format!("WINDLASS_{table}_{name}");
        let mut variables = match self.number {
            Some(number) => vec![format!("WINDLASS_{table}_{number}_{name}"), all],
            None => vec![all],
        };
        if (self.table, name.as_str()) == ("database", "URL") {
            variables.push("DATABASE_URL".to_owned());
        }
        variables
    }

    /// Reads a setting. An invalid value is reported, and the default is returned.
    pub(crate) fn read<T: ValueKind>(
        &mut self,
        reader: &mut Reader,
        name: &'static str,
        default: T,
        meaning: &'static str,
    ) -> Sourced<T> {
        self.known.push(name);
        let in_file = self.entries.remove(name);
        let entry = reader.find(self, name).or(in_file);
        let mut read = Sourced {
            value: default.clone(),
            origin: Origin::Default,
        };
        if let Some(entry) = entry {
            match T::read(&entry.value) {
                Ok(value) => read.value = value,
                Err(message) => {
                    let message = format!("{}.{name}: {message}", self.table);
                    reader.problem(&entry.origin, message);
                }
            }
            read.origin = entry.origin;
        }
        let mut variables = self.variables(name);
        reader.settings.push(Setting {
            table: self.table,
            number: self.number,
            name,
            value: read.value.show(),
            default: default.show(),
            kind: T::NAME,
            meaning,
            variable: variables.swap_remove(usize::from(self.number.is_some())),
            origin: read.origin.clone(),
        });
        read
    }

    /// Reports the rest of the table as unknown.
    pub(crate) fn end(self, reader: &mut Reader) {
        for (name, entry) in self.entries {
            let known = suggestion(&name, self.known.iter().copied());
            let message = format!("`{}` has no setting `{name}`{known}", self.table);
            reader.problem(&entry.origin, message);
        }
    }
}
