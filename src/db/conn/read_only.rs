//! Opening a database only to read it.

use crate::db::conn::database::Database;
#[cfg(feature = "sqlite")]
use crate::db::conn::owned::{ConnectionKind, DbConnection};
#[cfg(feature = "sqlite")]
use crate::db::conn::sqlite;
#[cfg(feature = "sqlite")]
use crate::db::conn::turns::takes_turns::TakesTurns;
#[cfg(feature = "sqlite")]
use crate::db::conn::turns::write_turn::{Precedence, WriteTurns};
#[cfg(feature = "sqlite")]
use diesel::connection::Connection as _;
#[cfg(feature = "sqlite")]
use diesel::sqlite::SqliteConnection;
#[cfg(feature = "sqlite")]
use std::path::Path;
#[cfg(feature = "sqlite")]
use std::sync::Arc;

impl Database {
    /// Returns the same database for reading only: this user may lack permission to write a SQLite
    /// file.
    #[cfg(feature = "cli")]
    pub(crate) fn read_only(mut self) -> Self {
        self.is_read_only = true;
        self
    }

    /// Opens a SQLite file. A loop takes its turns itself, for several statements at once, and shows how
    /// long it waits; for other callers, each transaction takes a turn.
    #[cfg(feature = "sqlite")]
    pub(crate) fn open_sqlite(
        &self,
        path: &Path,
        turns: &Arc<WriteTurns>,
        is_of_a_loop: bool,
    ) -> Result<DbConnection, String> {
        let mut conn = self.open_file(path)?;
        if is_of_a_loop {
            sqlite::show_waits(&mut conn);
        } else {
            conn.set_instrumentation(TakesTurns::new(turns));
        }
        Ok(DbConnection {
            kind: ConnectionKind::Sqlite(Box::new(conn)),
            turns: is_of_a_loop.then(|| Arc::clone(turns)),
            precedence: Precedence::Normal,
            limit: self.limit,
        })
    }

    #[cfg(feature = "sqlite")]
    fn open_file(&self, path: &Path) -> Result<SqliteConnection, String> {
        if self.is_read_only {
            sqlite::look(path)
        } else {
            sqlite::connect(path)
        }
    }
}
