//! Reads settings one by one from all sources, and records which were read.

use crate::config::document::{
    ConfigFile, DocumentEntry, DocumentItem, DocumentTable, Origin, Problems, nearest, suggestion,
};
use crate::config::value::ValueKind;
use std::collections::{BTreeMap, BTreeSet};
use toml::Value;
use windlass::errors::Problem;

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
    /// The variables of the settings that were read.
    variables: BTreeSet<String>,
    pub(crate) settings: Vec<Setting>,
    pub(crate) problems: Problems,
}

/// One table, from all sources.
#[derive(Debug)]
pub(crate) struct TableReader<'r> {
    reader: &'r mut Reader,
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
        Reader {
            items: file.items,
            problems: file.problems,
            ..Reader::default()
        }
    }

    pub(crate) fn problem(&mut self, origin: &Origin, message: String) {
        self.problems.add(origin, message);
    }

    /// Reads the table with this name.
    pub(crate) fn one<T>(
        &mut self,
        table: &'static str,
        read: impl Fn(&mut TableReader<'_>) -> T,
    ) -> T {
        let found = match self.items.remove(table) {
            Some(DocumentItem::One(found)) => Some(found),
            Some(DocumentItem::Many(tables)) => {
                if let Some(second) = tables.get(1) {
                    let message = format!("there may be only one `[{table}]`");
                    self.problem(&second.origin, message);
                }
                tables.into_iter().next()
            }
            Some(DocumentItem::Value(origin)) => {
                self.problem(&origin, format!("`{table}` is a table: write `[{table}]`"));
                None
            }
            None => None,
        };
        self.table(table, None, found, read)
    }

    /// Reads the tables with this name. If the file does not mention it, there is one with all
    /// defaults; `name = []` means none.
    pub(crate) fn many<T>(
        &mut self,
        table: &'static str,
        read: impl Fn(&mut TableReader<'_>) -> T,
    ) -> Vec<T> {
        let tables = match self.items.remove(table) {
            Some(DocumentItem::Many(tables)) => tables.into_iter().map(Some).collect(),
            Some(DocumentItem::One(found)) => {
                let message = format!("there may be several of these: write `[[{table}]]`");
                self.problem(&found.origin, message);
                vec![Some(found)]
            }
            Some(DocumentItem::Value(origin)) => {
                let message = format!("`{table}` are tables: write `[[{table}]]`");
                self.problem(&origin, message);
                vec![None]
            }
            None => vec![None],
        };
        let tables = tables.into_iter().zip(1..);
        tables
            .map(|(found, number)| self.table(table, Some(number), found, &read))
            .collect()
    }

    /// Reads a table.
    fn table<T>(
        &mut self,
        table: &'static str,
        number: Option<usize>,
        found: Option<DocumentTable>,
        read: impl Fn(&mut TableReader<'_>) -> T,
    ) -> T {
        let (origin, entries) = found.map_or((Origin::Default, BTreeMap::new()), |found| {
            (found.origin, found.entries)
        });
        let mut section = TableReader {
            reader: self,
            table,
            number,
            origin,
            entries,
            known: Vec::new(),
        };
        let settings = read(&mut section);
        let TableReader { entries, known, .. } = section;
        self.unknown(&format!("`{table}`"), entries, &known);
        settings
    }

    /// Reports what is left of a table as unknown.
    pub(crate) fn unknown(
        &mut self,
        table: &str,
        entries: BTreeMap<String, DocumentEntry>,
        known: &[&str],
    ) {
        for (name, entry) in entries {
            let known = suggestion(&name, known.iter().copied());
            let message = format!("{table} has no setting `{name}`{known}");
            self.problem(&entry.origin, message);
        }
    }

    /// Returns the tables within the table with this name.
    pub(crate) fn within(&mut self, table: &'static str) -> BTreeMap<String, DocumentTable> {
        let nested = format!("write `[{table}.KEY]`");
        let found = match self.items.remove(table) {
            Some(DocumentItem::One(found)) => found,
            Some(DocumentItem::Many(tables)) => {
                if let Some(first) = tables.first() {
                    self.problem(&first.origin, format!("each needs its own table: {nested}"));
                }
                return BTreeMap::new();
            }
            Some(DocumentItem::Value(origin)) => {
                self.problem(&origin, format!("`{table}` is a table of tables: {nested}"));
                return BTreeMap::new();
            }
            None => return BTreeMap::new(),
        };
        for (key, entry) in found.entries {
            if !found.tables.contains_key(&key) {
                let message = format!("`{table}.{key}` is not a table: {nested}");
                self.problem(&entry.origin, message);
            }
        }
        found.tables
    }

    /// Reports everything else in the file and the environment as unknown. Returns the warnings.
    pub(crate) fn end(&mut self) -> Vec<Problem> {
        let mut tables: BTreeSet<&str> = self.settings.iter().map(|s| s.table).collect();
        tables.insert(crate::config::value::TABLE);
        tables.insert(crate::config::value::QUEUES);
        for (name, item) in std::mem::take(&mut self.items) {
            let origin = match &item {
                DocumentItem::One(table) => &table.origin,
                DocumentItem::Many(tables) => tables
                    .first()
                    .map_or(&Origin::Default, |table| &table.origin),
                DocumentItem::Value(origin) => origin,
            };
            let known = suggestion(&name, tables.iter().copied());
            self.problem(origin, format!("there is no table `{name}`{known}"));
        }
        let strangers = self.environment.keys().filter(|name| {
            name.starts_with("WINDLASS_")
                && !self.variables.contains(*name)
                && !OTHER_VARIABLES.contains(&name.as_str())
        });
        let bare = |name: &str| name.trim_start_matches("WINDLASS_").to_owned();
        strangers
            .map(|name| {
                let variables = self.settings.iter().map(|s| bare(&s.variable));
                let known = match nearest(&bare(name), variables) {
                    Some(near) => format!("; did you mean `WINDLASS_{near}`?"),
                    None => String::new(),
                };
                let origin = Origin::Environment(name.clone());
                origin.problem(format!("this variable does not set anything{known}"))
            })
            .collect()
    }
}

impl TableReader<'_> {
    /// Reads a setting. An invalid value is reported, and the default is returned.
    pub(crate) fn read<T>(
        &mut self,
        name: &'static str,
        kind: ValueKind<T>,
        default: T,
        meaning: &'static str,
    ) -> T {
        self.known.push(name);
        let variable = format!("WINDLASS_{}_{name}", self.table).to_uppercase();
        let entry = self.find(name, &variable);
        let shown_default = (kind.show)(&default);
        let (mut value, mut origin) = (default, Origin::Default);
        if let Some(entry) = entry {
            match (kind.read)(&entry) {
                Ok(read) => value = read,
                Err(message) => {
                    let message = format!("{}.{name}: {message}", self.table);
                    self.reader.problem(&entry.origin, message);
                }
            }
            origin = entry.origin;
        }
        self.reader.settings.push(Setting {
            table: self.table,
            number: self.number,
            name,
            value: (kind.show)(&value),
            default: shown_default,
            kind: kind.name,
            meaning,
            variable,
            origin,
        });
        value
    }

    /// Returns the value with the highest priority: of an option, a variable, or the file.
    fn find(&mut self, name: &'static str, variable: &str) -> Option<DocumentEntry> {
        let in_file = self.entries.remove(name);
        let numbered = self
            .number
            .map(|number| format!("WINDLASS_{}_{number}_{name}", self.table).to_uppercase());
        let short = (variable == "WINDLASS_DATABASE_URL").then(|| "DATABASE_URL".to_owned());
        let variables = [numbered, Some(variable.to_owned()), short];
        let variables: Vec<String> = variables.into_iter().flatten().collect();
        let mut arguments = self.reader.arguments.iter();
        let argument = arguments.find(|a| a.table == self.table && a.name == name);
        let argument = argument.map(|a| (&a.value, Origin::Argument(a.option.to_owned())));
        let set = || {
            variables.iter().find_map(|variable| {
                let value = self.reader.environment.get(variable)?;
                Some((value, Origin::Environment(variable.clone())))
            })
        };
        let untyped = argument.or_else(set).map(|(value, origin)| DocumentEntry {
            value: Value::String(value.clone()),
            origin,
        });
        self.reader.variables.extend(variables);
        untyped.or(in_file)
    }
}
