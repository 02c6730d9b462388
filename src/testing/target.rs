//! Where a drain sends its statements, and what its jobs borrow.

use crate::db::{AsConn, Conn, Database};
use crate::error::{Error, Result};

/// A test's connection, of which each statement borrows what it needs.
pub(crate) trait DrainTarget {
    /// Runs `work` on the connection.
    fn with_conn<T>(&mut self, work: impl FnOnce(&mut Conn<'_>) -> Result<T>) -> Result<T>;

    /// Returns the database that jobs see.
    fn database(&self) -> &Database;
}

/// The connection of a `TestDatabase`, while its jobs may borrow it.
pub(crate) struct BorrowedTarget<'a>(pub(crate) &'a Database);

impl DrainTarget for BorrowedTarget<'_> {
    fn with_conn<T>(&mut self, work: impl FnOnce(&mut Conn<'_>) -> Result<T>) -> Result<T> {
        let Some(mut connection) = self.0.borrow_for_test() else {
            return Err(Error::Connect {
                target: self.0.target(),
                reason: "a job has kept the connection that it borrowed".to_owned(),
            });
        };
        work(&mut connection.as_conn())
    }

    fn database(&self) -> &Database {
        self.0
    }
}

/// A connection of the application, which jobs cannot borrow.
pub(crate) struct OwnTarget<'a, C: ?Sized> {
    pub(crate) conn: &'a mut C,
    pub(crate) database: Database,
}

impl<C: AsConn + ?Sized> DrainTarget for OwnTarget<'_, C> {
    fn with_conn<T>(&mut self, work: impl FnOnce(&mut Conn<'_>) -> Result<T>) -> Result<T> {
        work(&mut self.conn.as_conn())
    }

    fn database(&self) -> &Database {
        &self.database
    }
}
