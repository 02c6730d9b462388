//! Reading from SQLite.

use crate::db::conn::connection::Conn;
use crate::db::conn::reading::failure::{ReadFailure, begun, database_message, rolled_back};
use crate::db::conn::reading::progress::{ReadDeadline, with_deadline};
use crate::db::conn::sqlite::open_to_read;
use crate::db::conn::sqlite_file::FileId;
use crate::error::Result;
use diesel::sqlite::SqliteConnection;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

pub(super) struct SqliteReader {
    conn: SqliteConnection,
    /// The file that was at its path when it was opened.
    file: Option<FileId>,
    /// Last, as it must outlive the connection.
    deadline: Arc<ReadDeadline>,
}

impl SqliteReader {
    pub(super) fn open(path: &Path) -> Result<Self, String> {
        let file = FileId::of(path);
        let (conn, deadline) = with_deadline(|| open_to_read(path));
        let conn = conn?;
        let deadline = deadline.ok_or("SQLite accepts no time limit for its statements")?;
        Ok(SqliteReader {
            conn,
            file,
            deadline,
        })
    }

    pub(super) fn begin(&mut self, limit: Duration) -> Result<(), ReadFailure> {
        // SQLite itself would go on reading a file that was removed or replaced.
        if let Some(reason) = self.file.as_ref().and_then(FileId::gone) {
            return Err(ReadFailure::Lost(reason));
        }
        self.deadline.set(limit);
        begun(&mut self.conn, "BEGIN").map_err(ReadFailure::Failed)
    }

    pub(super) fn finish<T>(
        &mut self,
        work: impl FnOnce(&mut Conn<'_>) -> Result<T>,
    ) -> Result<T, ReadFailure> {
        let result = rolled_back(&mut self.conn, |conn| {
            let result = work(&mut Conn::Sqlite(conn));
            if !self.deadline.has_passed() {
                self.deadline.clear();
            }
            result
        });
        let is_late = self.deadline.has_passed();
        self.deadline.clear();
        result.map_err(|error| match database_message(&error) {
            Some(message) if is_late && message.contains("interrupted") => ReadFailure::Late,
            Some(message) if message.contains("database is locked") => ReadFailure::Late,
            _ => ReadFailure::Failed(error),
        })
    }
}
