//! What a database has, as far as the items of the reference are concerned.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::Dialect;
use crate::db::conn::statement::Statement;
use diesel::prelude::*;
use diesel::sql_types::{Bool, Nullable, Text};

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
            columns: Statement::new(columns).unkept().load(conn)?,
            others: Statement::new(others).unkept().load(conn)?,
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
