//! The parts of a complete database, read from the text of the migrations: each table, column, index, view, function,
//! trigger and option is one item, with the statement that makes it.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::Dialect;
use crate::db::conn::statement::Statement;
use crate::db::schema::migrations::texts;
use diesel::prelude::*;
use diesel::sql_types::{Bool, Nullable, Text};

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

// --- The catalog: the items that a database has ---

/// A column of a table of Solid Queue or Windlass.
#[derive(Debug, Clone, PartialEq, Eq, QueryableByName)]
pub(crate) struct CatalogColumn {
    #[diesel(sql_type = Text)]
    pub(crate) of: String,
    #[diesel(sql_type = Text)]
    pub(crate) name: String,
    #[diesel(sql_type = Text)]
    pub(crate) kind: String,
    #[diesel(sql_type = Bool)]
    pub(crate) nullable: bool,
    #[diesel(sql_type = Nullable<Text>)]
    pub(crate) standard: Option<String>,
    #[diesel(sql_type = Bool)]
    pub(crate) generated: bool,
}

/// An index, view, function, trigger or option.
#[derive(Debug, QueryableByName)]
pub(crate) struct CatalogItem {
    #[diesel(sql_type = Text)]
    pub(crate) kind: String,
    #[diesel(sql_type = Text)]
    pub(crate) of: String,
    #[diesel(sql_type = Text)]
    pub(crate) name: String,
    /// `false` for an index whose build did not complete.
    #[diesel(sql_type = Bool)]
    pub(crate) valid: bool,
}

/// All columns and other items of a database.
#[derive(Debug)]
pub(crate) struct Catalog {
    pub(crate) columns: Vec<CatalogColumn>,
    pub(crate) others: Vec<CatalogItem>,
}

/// With `quote_all_identifiers`, types and functions are quoted.
const POSTGRES_COLUMNS: &str = "\
SELECT c.relname::text AS of, a.attname::text AS name, replace(format_type(a.atttypid, NULL), '\"', '') AS kind, \
  NOT a.attnotnull AS nullable, replace(pg_get_expr(d.adbin, d.adrelid), '\"', '') AS standard, \
  a.attidentity <> '' OR coalesce(replace(pg_get_expr(d.adbin, d.adrelid), '\"', '') LIKE 'nextval(%', false) AS generated \
FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid \
LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum \
WHERE (c.relname LIKE 'solid\\_queue\\_%' OR c.relname LIKE 'windlass\\_%') AND c.relkind IN ('r', 'p') \
  AND pg_table_is_visible(c.oid) AND a.attnum > 0 AND NOT a.attisdropped";

const POSTGRES_OTHERS: &str = "\
WITH ours AS (SELECT oid, relname::text AS name, reloptions FROM pg_class \
  WHERE (relname LIKE 'solid\\_queue\\_%' OR relname LIKE 'windlass\\_%') AND relkind IN ('r', 'p') \
  AND pg_table_is_visible(oid)) \
SELECT 'index' AS kind, t.name AS of, x.relname::text AS name, i.indisvalid AS valid \
  FROM ours t JOIN pg_index i ON i.indrelid = t.oid JOIN pg_class x ON x.oid = i.indexrelid \
UNION ALL SELECT 'trigger', t.name, g.tgname::text, true FROM ours t JOIN pg_trigger g ON g.tgrelid = t.oid \
UNION ALL SELECT 'view', '', v.relname::text, true FROM pg_class v WHERE v.relname LIKE 'windlass\\_%' AND v.relkind = 'v' \
  AND pg_table_is_visible(v.oid) \
UNION ALL SELECT 'trigger', v.relname::text, g.tgname::text, true FROM pg_class v JOIN pg_trigger g ON g.tgrelid = v.oid \
  WHERE v.relname LIKE 'windlass\\_%' AND v.relkind = 'v' AND pg_table_is_visible(v.oid) \
UNION ALL SELECT 'option', t.name, split_part(o, '=', 1), true FROM ours t, unnest(t.reloptions) o \
UNION ALL SELECT 'function', '', proname::text, true FROM pg_proc \
  WHERE proname LIKE 'windlass\\_%' AND pg_function_is_visible(oid)";

/// `TRUE` is another spelling of 1, which Rails 8.1 writes.
const SQLITE_COLUMNS: &str = "\
SELECT m.name AS of, c.name AS name, lower(c.type) AS kind, NOT (c.\"notnull\" OR c.pk) AS nullable, \
  CASE c.dflt_value WHEN 'TRUE' THEN '1' WHEN 'FALSE' THEN '0' ELSE c.dflt_value END AS standard, c.pk AND upper(m.sql) LIKE '%AUTOINCREMENT%' AS generated \
FROM sqlite_schema m, pragma_table_xinfo(m.name) c WHERE m.type = 'table' \
  AND (m.name LIKE 'solid\\_queue\\_%' ESCAPE '\\' OR m.name LIKE 'windlass\\_%' ESCAPE '\\')";

const SQLITE_OTHERS: &str = "SELECT type AS kind, tbl_name AS of, name, true AS valid FROM sqlite_schema \
 WHERE type IN ('index', 'trigger', 'view')";

/// Returns the query for the columns, and the one for everything else.
pub(crate) fn queries(dialect: Dialect) -> (&'static str, &'static str) {
    match dialect {
        Dialect::Postgres => (POSTGRES_COLUMNS, POSTGRES_OTHERS),
        Dialect::Sqlite => (SQLITE_COLUMNS, SQLITE_OTHERS),
    }
}

impl Catalog {
    /// Reads the catalog in two queries, without locks that block other sessions.
    pub(crate) fn read(conn: &mut Conn<'_>) -> QueryResult<Self> {
        let (columns, others) = queries(conn.dialect());
        Ok(Catalog {
            columns: Statement::new(columns).uncached().load(conn)?,
            others: Statement::new(others).uncached().load(conn)?,
        })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.columns.is_empty()
    }

    pub(crate) fn has_table(&self, table: &str) -> bool {
        self.columns.iter().any(|column| column.of == table)
    }

    pub(crate) fn column(&self, table: &str, name: &str) -> Option<&CatalogColumn> {
        let mut columns = self.columns.iter();
        columns.find(|column| column.of == table && column.name == name)
    }

    pub(crate) fn has_option(&self, table: &str, name: &str) -> bool {
        let mut others = self.others.iter();
        others.any(|one| one.kind == "option" && one.of == table && one.name == name)
    }

    pub(crate) fn other(&self, kind: &str, name: &str) -> Option<&CatalogItem> {
        let mut others = self.others.iter();
        others.find(|other| other.kind == kind && other.name == name)
    }
}
