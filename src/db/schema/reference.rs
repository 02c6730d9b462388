//! What the migrations lead to, read from their own text: each table, column, index, view, function,
//! trigger and option is one item, with the text that makes it. A new migration needs no change
//! here.

/// The kind of an [`SchemaItem`].
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
}

/// Something that a complete database has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SchemaItem {
    pub(crate) kind: ItemKind,
    pub(crate) table: String,
    pub(crate) name: String,
    /// The definition of a column, the constraints of a table, the value of an option, or else the
    /// whole statement.
    pub(crate) text: String,
    /// The version of the migration that added it.
    pub(crate) version: String,
}

impl SchemaItem {
    /// Returns the name of a column's type, without its length.
    pub(crate) fn type_name(&self) -> &str {
        let word = self.text.split_whitespace().next().unwrap_or_default();
        word.split('(').next().unwrap_or_default()
    }

    pub(crate) fn is_not_null(&self) -> bool {
        self.text.contains("NOT NULL") || self.text.contains("PRIMARY KEY")
    }

    /// Returns whether the database generates the values, all different.
    pub(crate) fn is_generated(&self) -> bool {
        self.text.contains("AS IDENTITY") || self.text.contains("AUTOINCREMENT")
    }

    pub(crate) fn default(&self) -> Option<&str> {
        let (_, after) = self.text.split_once("DEFAULT ")?;
        let value = after.split_whitespace().next()?;
        (value != "AS").then_some(value)
    }

    pub(crate) fn is_unique(&self) -> bool {
        self.text.starts_with("CREATE UNIQUE INDEX ")
    }
}

/// What one statement of a migration does to the items.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum SchemaChange {
    Make(Vec<SchemaItem>),
    Drop(ItemKind, String),
    DropColumn {
        table: String,
        column: String,
    },
    DropKey {
        table: String,
        column: String,
    },
    /// Nothing.
    Other,
}

/// Returns the statements of a migration's file, without comments.
pub(crate) fn statements(file: &str) -> Vec<String> {
    let lines = file
        .lines()
        .filter(|line| !line.trim_start().starts_with("--"));
    let mut statements = Vec::new();
    let mut statement = String::new();
    for line in lines {
        statement.push_str(line);
        statement.push('\n');
        let is_quoted = statement.matches("$$").count() % 2 == 1;
        let has_body = statement.trim_start().starts_with("CREATE TRIGGER")
            && statement.split_whitespace().any(|word| word == "BEGIN");
        let has_ended = !has_body || line.trim() == "END;";
        if line.trim_end().ends_with(';') && !is_quoted && has_ended {
            statements.push(statement.trim().trim_end_matches(';').to_owned());
            statement.clear();
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

/// A statement of a migration, and the version of that.
struct Parsed<'s> {
    text: String,
    version: &'s str,
}

impl Parsed<'_> {
    fn item(&self, kind: ItemKind, table: &str, name: &str, text: &str) -> SchemaItem {
        SchemaItem {
            kind,
            table: table.to_owned(),
            name: name.split('(').next().unwrap_or_default().to_owned(),
            text: text.split_whitespace().collect::<Vec<_>>().join(" "),
            version: self.version.to_owned(),
        }
    }

    fn make(&self, kind: ItemKind, table: &str, name: &str, text: &str) -> SchemaChange {
        SchemaChange::Make(vec![self.item(kind, table, name, text)])
    }

    /// Makes an item of the whole statement, with its text unchanged.
    fn make_whole(&self, kind: ItemKind, table: &str, name: &str) -> SchemaChange {
        SchemaChange::Make(vec![SchemaItem {
            text: self.text.clone(),
            ..self.item(kind, table, name, "")
        }])
    }

    /// Returns a table, and each of its columns.
    fn columns(&self, table: &str) -> Vec<SchemaItem> {
        let mut items = vec![self.item(ItemKind::Table, table, table, "")];
        for part in parts(enclosed(&self.text)).into_iter().map(str::trim) {
            match part.split_once(char::is_whitespace) {
                Some(("PRIMARY" | "UNIQUE" | "FOREIGN" | "CHECK" | "CONSTRAINT", _)) => {
                    items[0].text.push_str(", ");
                    items[0].text.push_str(part);
                }
                Some((column, definition)) => {
                    items.push(self.item(ItemKind::Column, table, column, definition));
                }
                None => {}
            }
        }
        items
    }
}

/// Parses a statement of a migration.
pub(crate) fn change(statement: &str, version: &str) -> SchemaChange {
    let text = statement
        .replacen("IF NOT EXISTS ", "", 1)
        .replacen("IF EXISTS ", "", 1);
    let parsed = Parsed { text, version };
    let words: Vec<&str> = parsed.text.split_whitespace().collect();
    match words[..] {
        ["CREATE", "TABLE", table, ..] => SchemaChange::Make(parsed.columns(table)),
        [
            "ALTER",
            "TABLE",
            table,
            "ADD",
            "COLUMN",
            name,
            ref rest @ ..,
        ] => parsed.make(ItemKind::Column, table, name, &rest.join(" ")),
        ["CREATE", "INDEX", index, "ON", table, ..]
        | ["CREATE", "UNIQUE", "INDEX", index, "ON", table, ..] => {
            parsed.make(ItemKind::Index, table, index, &parsed.text)
        }
        ["CREATE", "VIEW", name, ..] => parsed.make_whole(ItemKind::View, "", name),
        ["CREATE", "FUNCTION", name, ..] | ["CREATE", "OR", "REPLACE", "FUNCTION", name, ..] => {
            parsed.make_whole(ItemKind::Function, "", name)
        }
        ["CREATE", "TRIGGER", name, ref rest @ ..] => {
            let mut rest = rest.iter().skip_while(|word| **word != "ON");
            parsed.make_whole(ItemKind::Trigger, rest.nth(1).unwrap_or(&""), name)
        }
        ["ALTER", "TABLE", table, "SET", ..] => match enclosed(&parsed.text).split_once('=') {
            Some((name, value)) => parsed.make(ItemKind::Option, table, name.trim(), value),
            None => SchemaChange::Other,
        },
        _ => dropped(&words),
    }
}

/// Parses a statement that drops something.
fn dropped(words: &[&str]) -> SchemaChange {
    match *words {
        ["ALTER", "TABLE", table, "DROP", "COLUMN", column] => SchemaChange::DropColumn {
            table: table.to_owned(),
            column: column.to_owned(),
        },
        ["ALTER", "TABLE", table, "DROP", "CONSTRAINT", key] => {
            let column = key
                .strip_prefix(table)
                .and_then(|key| key.strip_suffix("_fkey"));
            SchemaChange::DropKey {
                table: table.to_owned(),
                column: column
                    .unwrap_or_default()
                    .trim_start_matches('_')
                    .to_owned(),
            }
        }
        ["DROP", "INDEX", name] => SchemaChange::Drop(ItemKind::Index, name.to_owned()),
        ["DROP", "TABLE", name] => SchemaChange::Drop(ItemKind::Table, name.to_owned()),
        ["DROP", "FUNCTION", name, ..] => {
            SchemaChange::Drop(ItemKind::Function, name.trim_end_matches("()").to_owned())
        }
        ["DROP", "VIEW", name, ..] => SchemaChange::Drop(ItemKind::View, name.to_owned()),
        ["DROP", "TRIGGER", name, ..] => SchemaChange::Drop(ItemKind::Trigger, name.to_owned()),
        _ => SchemaChange::Other,
    }
}

/// Returns everything in a database to which all `files` were applied. Each file is a version and
/// its text.
pub(crate) fn items<'a>(files: impl Iterator<Item = (String, &'a str)>) -> Vec<SchemaItem> {
    let mut items: Vec<SchemaItem> = Vec::new();
    for (version, text) in files {
        for statement in statements(text) {
            match change(&statement, &version) {
                SchemaChange::Make(made) => {
                    for one in made {
                        let is_it = |item: &SchemaItem| {
                            (item.kind, &item.table, &item.name)
                                == (one.kind, &one.table, &one.name)
                        };
                        match items.iter_mut().find(|item| is_it(item)) {
                            Some(item) => *item = one,
                            None => items.push(one),
                        }
                    }
                }
                SchemaChange::Drop(ItemKind::Table, name) => {
                    items.retain(|item| item.table != name)
                }
                SchemaChange::Drop(kind, name) => {
                    items.retain(|item| item.kind != kind || item.name != name);
                }
                SchemaChange::DropColumn { table, column } => items.retain(|item| {
                    item.kind != ItemKind::Column || item.table != table || item.name != column
                }),
                SchemaChange::DropKey { table, column } => {
                    let key = items.iter_mut().find(|item| {
                        item.kind == ItemKind::Column && item.table == table && item.name == column
                    });
                    if let Some(item) = key
                        && let Some(at) = item.text.find(" REFERENCES")
                    {
                        item.text.truncate(at);
                    }
                }
                SchemaChange::Other => {}
            }
        }
    }
    items
}
