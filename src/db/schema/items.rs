//! The parts of a complete database, read from the text of the migrations: each table, column, index, view, function,
//! trigger and option is one item, with the statement that makes it.

use crate::db::conn::dialect::Dialect;
use crate::db::schema::migrations::texts;

/// The kind of a [`SchemaItem`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ItemKind {
    Table,
    Column,
    Index,
    View,
    Function,
    Trigger,
    /// A storage parameter of a table of Postgres.
    Option,
    /// A statement that runs once, with its migration.
    Once,
}

/// Something that a complete database has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SchemaItem {
    pub(crate) kind: ItemKind,
    pub(crate) table: String,
    pub(crate) name: String,
    /// The type and constraints of a column, or the value of an option.
    pub(crate) definition: String,
    /// The statement that makes it, which makes a table with its columns.
    pub(crate) statement: String,
    /// The version of its migration.
    pub(crate) version: String,
}

impl SchemaItem {
    /// Returns the name of a column's type, without its length.
    pub(crate) fn type_name(&self) -> &str {
        let word = self
            .definition
            .split_whitespace()
            .next()
            .unwrap_or_default();
        word.split('(').next().unwrap_or_default()
    }

    pub(crate) fn is_time(&self) -> bool {
        self.kind == ItemKind::Column && ["timestamp", "datetime"].contains(&self.type_name())
    }

    pub(crate) fn is_not_null(&self) -> bool {
        self.definition.contains("NOT NULL") || self.definition.contains("PRIMARY KEY")
    }

    /// Returns whether the database generates the values, all different.
    pub(crate) fn is_generated(&self) -> bool {
        self.definition.contains("AS IDENTITY") || self.definition.contains("AUTOINCREMENT")
    }

    pub(crate) fn default(&self) -> Option<&str> {
        let (_, after) = self.definition.split_once("DEFAULT ")?;
        let value = after.split_whitespace().next()?;
        (value != "AS").then_some(value)
    }

    pub(crate) fn is_unique(&self) -> bool {
        self.statement.starts_with("CREATE UNIQUE INDEX ")
    }
}

/// Returns everything in a database to which all migrations were applied, in their order.
pub(crate) fn items(dialect: Dialect) -> Vec<SchemaItem> {
    let texts = texts(dialect).into_iter();
    let items = texts.flat_map(|(version, text)| {
        let statements = statements(text).into_iter();
        statements.flat_map(move |statement| parse(statement, &version))
    });
    items.collect()
}

/// Returns the statements of a migration's file. Comments between them are left out, and those in a table.
fn statements(file: &str) -> Vec<String> {
    let mut statements = Vec::new();
    let mut statement = String::new();
    let (mut is_quoted, mut has_body) = (false, false);
    for line in file.lines() {
        if line.trim_start().starts_with("--") && !is_quoted && !has_body {
            continue;
        }
        statement.push_str(line);
        statement.push('\n');
        is_quoted = statement.matches("$$").count() % 2 == 1;
        has_body = statement.trim_start().starts_with("CREATE TRIGGER")
            && statement.split_whitespace().any(|word| word == "BEGIN");
        let has_ended = !has_body || line.trim() == "END;";
        if line.trim_end().ends_with(';') && !is_quoted && has_ended {
            statements.push(statement.trim().trim_end_matches(';').to_owned());
            statement.clear();
            has_body = false;
        }
    }
    statements
}

/// Returns the parts between commas outside parentheses and quotes.
pub(crate) fn parts(text: &str) -> Vec<&str> {
    let (mut parts, mut start, mut depth, mut quote) = (Vec::new(), 0, 0, None);
    for (at, character) in text.char_indices() {
        match (quote, character) {
            (Some(open), _) if character == open => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'' | '`') => quote = Some(character),
            (None, '(') => depth += 1,
            (None, ')') => depth -= 1,
            (None, ',') if depth == 0 => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

/// Returns the text between the outermost parentheses.
fn enclosed(statement: &str) -> &str {
    let start = statement.find('(').map_or(0, |at| at + 1);
    let end = statement.rfind(')').unwrap_or(statement.len());
    statement.get(start..end).unwrap_or_default()
}

/// Returns the items that a statement makes.
fn parse(statement: String, version: &str) -> Vec<SchemaItem> {
    let text = statement
        .replacen("IF NOT EXISTS ", "", 1)
        .replacen("OR REPLACE ", "", 1);
    let words: Vec<&str> = text.split_whitespace().collect();
    let item = |kind, table: &str, name: &str, definition: &str| SchemaItem {
        kind,
        table: table.to_owned(),
        name: name.split('(').next().unwrap_or_default().to_owned(),
        definition: definition.to_owned(),
        statement: statement.clone(),
        version: version.to_owned(),
    };
    let made = match words[..] {
        ["CREATE", "TABLE", table, ..] => {
            let columns = columns(enclosed(&text));
            let columns =
                columns.map(|(name, definition)| item(ItemKind::Column, table, name, definition));
            let table = item(ItemKind::Table, table, table, "");
            return std::iter::once(table).chain(columns).collect();
        }
        [
            "ALTER",
            "TABLE",
            table,
            "ADD",
            "COLUMN",
            name,
            ref definition @ ..,
        ] => item(ItemKind::Column, table, name, &definition.join(" ")),
        ["CREATE", "INDEX", name, "ON", table, ..]
        | ["CREATE", "UNIQUE", "INDEX", name, "ON", table, ..] => {
            item(ItemKind::Index, table, name, "")
        }
        ["CREATE", "VIEW", name, ..] => item(ItemKind::View, "", name, ""),
        ["CREATE", "FUNCTION", name, ..] => item(ItemKind::Function, "", name, ""),
        ["CREATE", "TRIGGER", name, ref rest @ ..] => {
            let mut rest = rest.iter().skip_while(|word| **word != "ON");
            item(ItemKind::Trigger, rest.nth(1).unwrap_or(&""), name, "")
        }
        ["ALTER", "TABLE", table, "SET", ..] => {
            let (name, value) = enclosed(&text).split_once(" = ").unwrap_or_default();
            item(ItemKind::Option, table, name, value)
        }
        _ => item(ItemKind::Once, "", "", ""),
    };
    vec![made]
}

/// Returns the columns among the parts of a table, and their definitions.
fn columns(parts_of_table: &str) -> impl Iterator<Item = (&str, &str)> {
    const CONSTRAINTS: [&str; 5] = ["PRIMARY", "UNIQUE", "FOREIGN", "CHECK", "CONSTRAINT"];
    let parts = parts(parts_of_table).into_iter();
    let columns = parts.filter_map(|part| part.trim().split_once(char::is_whitespace));
    columns.filter(|(name, _)| !CONSTRAINTS.contains(name))
}
