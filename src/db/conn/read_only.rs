//! Looking at a database that may only be read.

use crate::db::conn::database::Database;
#[cfg(feature = "sqlite")]
use crate::db::conn::sqlite;
#[cfg(feature = "sqlite")]
use diesel::sqlite::SqliteConnection;

impl Database {
    /// The same database, of which nothing is to be changed: a SQLite file may
    /// be one that this user cannot write.
    #[cfg(feature = "cli")]
    pub(crate) fn read_only(mut self) -> Self {
        self.only_looks = true;
        self
    }

    #[cfg(feature = "sqlite")]
    pub(crate) fn open_file(&self, path: &std::path::Path) -> Result<SqliteConnection, String> {
        if self.only_looks {
            sqlite::look(path)
        } else {
            sqlite::connect(path)
        }
    }
}
