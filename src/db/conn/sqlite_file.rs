//! Failures that waiting cannot fix: a SQLite file that is removed, replaced or corrupt. A locked
//! file, a full disk and a server that is down are temporary.
#![cfg_attr(not(feature = "sqlite"), allow(dead_code))]

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Identifies a database file, to detect its removal or replacement: a process that has it open
/// goes on reading and writing a file that no other process can find.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileId {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl FileId {
    /// Returns the file at this path. `None` if there is none, or if it cannot be examined.
    pub(crate) fn of(path: &Path) -> Option<Self> {
        let path = std::path::absolute(path).ok()?;
        let found = std::fs::metadata(&path).ok()?;
        Some(FileId {
            device: found.dev(),
            inode: found.ino(),
            path,
        })
    }

    /// Returns why the file at its path is another one now, if it is.
    pub fn gone(&self) -> Option<String> {
        let file = self.path.display();
        match std::fs::metadata(&self.path) {
            Ok(found) if (found.dev(), found.ino()) == (self.device, self.inode) => None,
            Ok(_) => Some(format!(
                "another file has taken the place of the database {file} while it was in use; \
                 nothing was repaired: make sure that it is the right one, then start again"
            )),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Some(format!(
                "the database file {file} was removed while it was in use; \
                 nothing was repaired: put it back or restore a backup, then start again"
            )),
            // It may still be there; the next statement checks again.
            Err(_) => None,
        }
    }
}

/// Starts of SQLite's messages about a damaged file.
const CORRUPT: [&str; 4] = [
    "database disk image is malformed",
    "file is not a database",
    "malformed database schema",
    "unsupported file format",
];

/// The same about a file whose tables were there at the start: it was emptied.
const EMPTIED: [&str; 2] = ["no such table: solid_queue_", "no such table: windlass_"];

/// Returns why SQLite cannot use its file, judged by its message.
pub(crate) fn corrupt(path: &Path, message: &str) -> Option<String> {
    let file = path.display();
    // Without the advice added by `connect`.
    let message = message.split(';').next().unwrap_or(message);
    if CORRUPT.iter().any(|text| message.starts_with(text)) {
        return Some(format!(
            "the database file {file} is corrupt ({message}); nothing was repaired: stop all that \
             use it, keep a copy, restore a backup, then start again"
        ));
    }
    let emptied = EMPTIED.iter().any(|text| message.starts_with(text));
    emptied.then(|| {
        format!(
            "the database file {file} was emptied while it was in use ({message}); nothing was \
             repaired: restore a backup, then start again"
        )
    })
}

/// The kind of a failed statement, which decides whether it is tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The content of the statement may be the cause.
    Content,
    /// A row or table is locked by another transaction.
    Busy,
    /// The database or the connection failed: further statements would fail as well.
    Trouble,
}

/// Starts or parts of messages about other transactions' locks.
const BUSY: [&str; 4] = [
    "due to lock timeout",
    "due to statement timeout",
    "deadlock detected",
    "could not obtain lock",
];

/// The same about the database as a whole, SQLite's first. For a server whose messages are not
/// English, only the error codes that Diesel knows are recognized; all other errors count as
/// content.
const TROUBLE: [&str; 20] = [
    "prepared statement \"",
    "database or disk is full",
    "database is locked",
    "database table is locked",
    "disk I/O error",
    "readonly database",
    "unable to open database file",
    "out of memory",
    "No space left on device",
    "could not extend file",
    "could not write",
    "could not open",
    "out of shared memory",
    "too many connections",
    "terminating connection",
    "the database system is",
    "read-only transaction",
    "due to user request",
    "server closed the connection",
    "Too many open files",
];

impl Refusal {
    /// Returns whether a lock was not free in time.
    pub(crate) fn is_lock_timeout(error: &diesel::result::Error) -> bool {
        let diesel::result::Error::DatabaseError(_, information) = error else {
            return false;
        };
        information.message().contains(BUSY[0])
    }

    /// Returns the kind of refusal of a Diesel error.
    pub fn of(error: &diesel::result::Error) -> Self {
        use diesel::result::{DatabaseErrorKind as Kind, Error};
        let Error::DatabaseError(kind, information) = error else {
            return match error {
                Error::BrokenTransactionManager | Error::RollbackErrorOnCommit { .. } => {
                    Refusal::Trouble
                }
                _ => Refusal::Content,
            };
        };
        let message = information.message();
        let says = |texts: &[&str]| texts.iter().any(|text| message.contains(text));
        match kind {
            Kind::SerializationFailure => Refusal::Busy,
            Kind::ReadOnlyTransaction | Kind::ClosedConnection | Kind::UnableToSendCommand => {
                Refusal::Trouble
            }
            _ if says(&BUSY) => Refusal::Busy,
            _ if says(&TROUBLE) => Refusal::Trouble,
            _ => Refusal::Content,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use diesel::result::{DatabaseErrorKind, Error};

    #[test]
    fn a_refusal_is_understood_by_its_message() {
        let of = |message: &str| {
            let message = Box::new(message.to_owned());
            Refusal::of(&Error::DatabaseError(DatabaseErrorKind::Unknown, message))
        };
        let busy = of("canceling statement due to lock timeout");
        assert_eq!(busy, Refusal::Busy);
        for trouble in [
            "database or disk is full",
            "database is locked",
            "could not extend file \"base/1/2\": No space left on device",
            "cannot execute UPDATE in a read-only transaction",
        ] {
            assert_eq!(of(trouble), Refusal::Trouble, "{trouble}");
        }
        for content in [
            "invalid byte sequence for encoding \"UTF8\": 0x00",
            "CHECK constraint failed: short",
            "integer out of range",
        ] {
            assert_eq!(of(content), Refusal::Content, "{content}");
        }
    }

    #[test]
    fn what_passes_is_told_from_what_does_not() {
        let path = Path::new("jobs.db");
        for passing in [
            "database is locked",
            "database table is locked",
            "database or disk is full",
            "disk I/O error",
            "attempt to write a readonly database",
            "unable to open database file",
            "out of memory",
            "cannot rollback - no transaction is active",
            "UNIQUE constraint failed: solid_queue_jobs.id",
            "no such table: users",
        ] {
            assert_eq!(corrupt(path, passing), None, "{passing}");
        }
        for lasting in [
            "database disk image is malformed",
            "file is not a database; it holds something else; name another file",
            "malformed database schema (?)",
            "no such table: solid_queue_processes",
        ] {
            let reason = corrupt(path, lasting).unwrap();
            assert!(reason.contains("restore a backup"), "{reason}");
        }
    }

    #[test]
    fn a_file_is_known_by_more_than_its_path() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a");
        std::fs::write(&path, "a").unwrap();
        let file = FileId::of(&path).unwrap();
        assert_eq!(file.gone(), None);
        std::fs::write(&path, "b").unwrap();
        assert_eq!(file.gone(), None, "changed is not replaced");
        let other = directory.path().join("b");
        std::fs::write(&other, "a").unwrap();
        std::fs::rename(other, &path).unwrap();
        assert!(file.gone().unwrap().contains("another file"));
        std::fs::remove_file(path).unwrap();
        assert!(file.gone().unwrap().contains("was removed"));
    }
}
