//! Opening a database only to read it.

use crate::db::conn::database::Database;
#[cfg(feature = "sqlite")]
use crate::db::conn::sqlite;
#[cfg(feature = "sqlite")]
use diesel::sqlite::SqliteConnection;

impl Database {
    /// Returns the same database for reading only: this user may lack permission to write a SQLite
    /// file.
    #[cfg(feature = "cli")]
    pub(crate) fn read_only(mut self) -> Self {
        self.is_read_only = true;
        self
    }

    #[cfg(feature = "sqlite")]
    pub(crate) fn open_file(&self, path: &std::path::Path) -> Result<SqliteConnection, String> {
        if self.is_read_only {
            sqlite::look(path)
        } else {
            sqlite::connect(path)
        }
    }
}
