//! The queries of this program itself.

use anyhow::{Context as _, Result, bail};
use diesel::connection::SimpleConnection as _;
use diesel::pg::PgConnection;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Text};
use diesel::sqlite::SqliteConnection;
use std::time::{Duration, Instant};

/// A connection.
pub(crate) enum Database {
    Postgres(PgConnection),
    Sqlite(SqliteConnection),
}

#[derive(QueryableByName)]
struct Number {
    #[diesel(sql_type = BigInt)]
    value: i64,
}

#[derive(QueryableByName)]
struct Setting {
    #[diesel(sql_type = Text)]
    value: String,
}

/// The other sessions of the same database.
const OTHERS: &str = "FROM pg_stat_activity WHERE datname = current_database() \
                      AND backend_type = 'client backend' AND pid <> pg_backend_pid()";

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
        let exists = format!("CASE WHEN EXISTS (SELECT 1 {query}) THEN 1 ELSE 0 END");
        Ok(self.number(&exists)? != 0)
    }

    /// Returns the number of rows of such a query.
    pub(crate) fn count(&mut self, query: &str) -> Result<u64> {
        let number = self.number(&format!("(SELECT count(*) {query})"))?;
        Ok(number.try_into()?)
    }

    fn number(&mut self, expression: &str) -> Result<i64> {
        let query = diesel::sql_query(format!("SELECT CAST({expression} AS BIGINT) AS value"));
        let number: Number = match self {
            Database::Postgres(conn) => query.get_result(conn)?,
            Database::Sqlite(conn) => query.get_result(conn)?,
        };
        Ok(number.value)
    }

    /// The number that a server has for an expression; `None` without a server.
    fn of_server(&mut self, expression: &str) -> Result<Option<u64>> {
        match self {
            Database::Postgres(_) => Ok(Some(self.number(expression)?.try_into()?)),
            Database::Sqlite(_) => Ok(None),
        }
    }

    /// The process of the server that serves this connection.
    pub(crate) fn backend(&mut self) -> Result<Option<u32>> {
        let process = self.of_server("pg_backend_pid()")?;
        Ok(process.map(u32::try_from).transpose()?)
    }

    /// The end of the write-ahead log, in bytes.
    pub(crate) fn log_position(&mut self) -> Result<Option<u64>> {
        self.of_server("pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')")
    }

    /// The transactions of all sessions of this database; of those that go on, it may not know the
    /// last ones.
    pub(crate) fn transactions(&mut self) -> Result<Option<u64>> {
        self.of_server(
            "(SELECT xact_commit + xact_rollback FROM pg_stat_database \
              WHERE datname = current_database())",
        )
    }

    /// Waits until a process that was killed has no session left, and so no statement that runs.
    pub(crate) fn wait_until_alone(&mut self) -> Result<()> {
        if matches!(self, Database::Sqlite(_)) {
            return Ok(());
        }
        let deadline = Instant::now() + Duration::from_secs(20);
        while self.exists(OTHERS)? {
            if Instant::now() > deadline {
                bail!("sessions of a process that has ended go on");
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }

    /// A setting of a server.
    pub(crate) fn setting(&mut self, name: &str) -> Result<String> {
        let query = format!("SELECT current_setting('{name}') AS value");
        let setting: Setting = match self {
            Database::Postgres(conn) => diesel::sql_query(query).get_result(conn)?,
            Database::Sqlite(_) => bail!("a file has no settings"),
        };
        Ok(setting.value)
    }
}
