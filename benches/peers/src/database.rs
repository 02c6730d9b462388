//! The queries of this program itself.

use anyhow::{Context as _, Result};
use diesel::connection::SimpleConnection as _;
use diesel::pg::PgConnection;
use diesel::prelude::*;
use diesel::sql_types::Integer;
use diesel::sqlite::SqliteConnection;

/// A connection.
pub(crate) enum Database {
    Postgres(PgConnection),
    Sqlite(SqliteConnection),
}

#[derive(QueryableByName)]
struct Number {
    #[diesel(sql_type = Integer)]
    value: i32,
}

impl Database {
    pub(crate) fn connect(url: &str) -> Result<Database> {
        let Some(path) = url.strip_prefix("sqlite://") else {
            let conn = PgConnection::establish(url).context("connect to Postgres")?;
            return Ok(Database::Postgres(conn));
        };
        let mut conn = SqliteConnection::establish(path).context("open an SQLite file")?;
        conn.batch_execute("PRAGMA busy_timeout = 10000")?;
        Ok(Database::Sqlite(conn))
    }

    pub(crate) fn execute(&mut self, statements: &str) -> Result<()> {
        match self {
            Database::Postgres(conn) => conn.batch_execute(statements)?,
            Database::Sqlite(conn) => conn.batch_execute(statements)?,
        }
        Ok(())
    }

    /// Returns true if a query without its SELECT has rows.
    pub(crate) fn exists(&mut self, query: &str) -> Result<bool> {
        Ok(self.number(&format!("EXISTS (SELECT 1 {query})"))? != 0)
    }

    /// Returns the number of rows of such a query.
    pub(crate) fn count(&mut self, query: &str) -> Result<u64> {
        let number = self.number(&format!("(SELECT count(*) {query})"))?;
        Ok(number.try_into()?)
    }

    fn number(&mut self, expression: &str) -> Result<i32> {
        let query = diesel::sql_query(format!("SELECT CAST({expression} AS INTEGER) AS value"));
        let number: Number = match self {
            Database::Postgres(conn) => query.get_result(conn)?,
            Database::Sqlite(conn) => query.get_result(conn)?,
        };
        Ok(number.value)
    }
}
