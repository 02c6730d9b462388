//! The tables of a database, as its catalog describes them.

use super::TestDb;
use diesel::prelude::*;
use diesel::sql_types::{Bool, Nullable, Text};
use windlass::{AsConn, Conn};

/// A column as the database describes it.
#[derive(Debug, Clone, QueryableByName)]
pub struct Real {
    #[diesel(sql_type = Text, column_name = "t")]
    pub table: String,
    #[diesel(sql_type = Text)]
    pub name: String,
    #[diesel(sql_type = Text)]
    pub kind: String,
    #[diesel(sql_type = Bool)]
    pub nullable: bool,
    #[diesel(sql_type = Nullable<Text>, column_name = "standard")]
    pub default: Option<String>,
    /// True if the database generates the values, none of them twice.
    #[diesel(sql_type = Bool)]
    pub is_generated: bool,
}

const POSTGRES_COLUMNS: &str = "SELECT table_name::text AS t, column_name::text AS name, \
     CASE data_type WHEN 'timestamp without time zone' THEN 'timestamp(' || datetime_precision || ')' \
       ELSE data_type || coalesce('(' || character_maximum_length || ')', '') END AS kind, \
     is_nullable = 'YES' AS nullable, column_default::text AS standard, \
     coalesce(is_identity = 'YES' OR column_default LIKE 'nextval%', false) AS is_generated \
     FROM information_schema.columns WHERE table_schema = current_schema() \
     AND table_name IN (SELECT relname FROM pg_class WHERE relkind IN ('r', 'p') AND relnamespace = current_schema()::regnamespace) \
     AND (table_name LIKE 'solid_queue_%' OR table_name LIKE 'windlass_%') ORDER BY 1, ordinal_position";

const SQLITE_COLUMNS: &str = "SELECT m.name AS t, c.name AS name, lower(c.type) AS kind, NOT c.\"notnull\" AS nullable, \
     CASE c.dflt_value WHEN 'TRUE' THEN '1' WHEN 'FALSE' THEN '0' ELSE c.dflt_value END AS standard, c.pk AND m.sql LIKE '%PRIMARY KEY AUTOINCREMENT%' AS is_generated \
     FROM sqlite_schema m, pragma_table_info(m.name) c WHERE m.type = 'table' \
     AND (m.name LIKE 'solid_queue_%' OR m.name LIKE 'windlass_%') ORDER BY 1, c.cid";

const POSTGRES_UNIQUE: &str = "SELECT c.relname || ': ' || string_agg(a.attname, ',' ORDER BY k.place) AS t \
     FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid \
     CROSS JOIN LATERAL unnest(i.indkey) WITH ORDINALITY AS k (number, place) \
     JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number \
     WHERE i.indisunique AND c.relnamespace = current_schema()::regnamespace \
     GROUP BY i.indexrelid, c.relname ORDER BY 1";

const SQLITE_UNIQUE: &str = "SELECT m.name || ': ' || (SELECT group_concat(name, ',') \
       FROM (SELECT name FROM pragma_index_info(i.name) ORDER BY seqno)) AS t \
     FROM sqlite_schema m, pragma_index_list(m.name) i \
     WHERE m.type = 'table' AND i.\"unique\" ORDER BY 1";

impl TestDb {
    /// The columns of Solid Queue's tables and ours, by table.
    pub fn columns(&self) -> Vec<Real> {
        let mut connection = self.connect();
        match connection.as_conn() {
            Conn::Sqlite(c) => diesel::sql_query(SQLITE_COLUMNS).load(c),
            #[cfg(feature = "postgres")]
            Conn::Postgres(c) => diesel::sql_query(POSTGRES_COLUMNS).load(c),
            _ => unreachable!(),
        }
        .unwrap()
    }

    /// The unique indexes, as `table: column,column`.
    pub fn unique_indexes(&self) -> Vec<String> {
        self.texts(if self.is_postgres() {
            POSTGRES_UNIQUE
        } else {
            SQLITE_UNIQUE
        })
    }
}
