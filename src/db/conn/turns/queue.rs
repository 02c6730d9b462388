//! The queue of the processes that write a SQLite file, by locks on a file beside it: `jobs.db-turn` for
//! `jobs.db`.
//!
//! The locks end with their process. Where there can be no such file, or it cannot be locked, there is
//! no queue, and SQLite's own lock decides.

use rustix::fs::{FlockOperation, flock};
use std::fs::File;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// A lock file with two locks: that of the turn, and that of the door to it. A process holds the door's
/// while it waits for the turn, so no process that has just had the turn can take it again before.
#[derive(Debug)]
pub struct TurnQueue {
    path: PathBuf,
    /// Opened by the first turn; `None` if that fails.
    opened: OnceLock<Option<TurnFile>>,
}

#[derive(Debug)]
struct TurnFile {
    file: File,
    log: PathBuf,
}

/// The length and the time of the log, one of which each commit changes.
pub(crate) type LogState = Option<(u64, i64, i64)>;

impl TurnQueue {
    /// Names the queue of the database file at this path.
    pub fn beside(path: &Path) -> Self {
        TurnQueue {
            path: path.to_owned(),
            opened: OnceLock::new(),
        }
    }

    fn opened(&self) -> Option<&TurnFile> {
        self.opened.get_or_init(|| open(&self.path)).as_ref()
    }

    fn file(&self) -> Option<&File> {
        self.opened().map(|opened| &opened.file)
    }

    /// Takes the turn if it is free and no process waits for it. Returns `true` without a queue.
    pub(crate) fn try_take(&self) -> bool {
        let Some(file) = self.file() else {
            return true;
        };
        if !door::try_enter(file) {
            return false;
        }
        let taken = flock(file, FlockOperation::NonBlockingLockExclusive);
        door::leave(file);
        sign(file, taken.is_ok());
        taken != Err(rustix::io::Errno::WOULDBLOCK)
    }

    /// Waits for the turn. Returns `false` without one.
    pub fn take(&self) -> bool {
        let Some(file) = self.file() else {
            return false;
        };
        door::enter(file);
        let is_taken = flock(file, FlockOperation::LockExclusive).is_ok();
        door::leave(file);
        sign(file, is_taken);
        is_taken
    }

    /// Returns whether another process waits for the turn of this one.
    pub(crate) fn is_awaited(&self) -> bool {
        let Some(file) = self.file() else {
            return false;
        };
        let is_free = door::try_enter(file);
        if is_free {
            door::leave(file);
        }
        !is_free
    }

    #[doc(hidden)]
    pub fn release(&self) {
        if let Some(file) = self.file() {
            let _ = flock(file, FlockOperation::Unlock);
        }
    }

    /// Returns the id of the process that had the turn last.
    pub fn holder(&self) -> Option<u32> {
        let mut text = [0; 10];
        self.file()?.read_exact_at(&mut text, 0).ok()?;
        std::str::from_utf8(&text).ok()?.trim().parse().ok()
    }

    /// Returns the state of the write-ahead log, which each commit changes. It is not opened: closing
    /// it would end SQLite's locks on it.
    pub(crate) fn log(&self) -> LogState {
        let log = std::fs::metadata(&self.opened()?.log).ok()?;
        Some((log.len(), log.mtime(), log.mtime_nsec()))
    }
}

/// Writes which process has the turn, for `windlass doctor`.
fn sign(file: &File, is_taken: bool) {
    if is_taken {
        let _ = file.write_all_at(format!("{:<10}\n", std::process::id()).as_bytes(), 0);
    }
}

fn with_end(path: &Path, end: &str) -> PathBuf {
    let mut path = path.to_owned().into_os_string();
    path.push(end);
    PathBuf::from(path)
}

/// Opens the file, with the owner and the permissions of the database: like SQLite with its own files, so
/// that a command run by root does not lock out its other users.
fn open(path: &Path) -> Option<TurnFile> {
    // SQLite, too, puts its files beside the one to which a link leads.
    let path = path.canonicalize().ok()?;
    let file = open_beside(&path)?;
    let log = with_end(&path, "-wal");
    Some(TurnFile { file, log })
}

fn open_beside(path: &Path) -> Option<File> {
    let database = std::fs::metadata(path).ok()?;
    let turn = with_end(path, "-turn");
    let mut options = File::options();
    // As SQLite opens its own files: a link that another user made could lead a command run by root to any file.
    let flags = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();
    options.read(true).write(true).custom_flags(flags);
    if let Ok(file) = options.open(&turn) {
        return Some(file);
    }
    let mode = database.mode() & 0o666;
    let file = options.clone().create_new(true).mode(mode).open(&turn);
    match file {
        Ok(file) => {
            // Only root may, and only root needs to.
            let _ = std::os::unix::fs::fchown(&file, Some(database.uid()), Some(database.gid()));
            Some(file)
        }
        // Another process has created it just now.
        Err(_) => options.open(&turn).ok(),
    }
}

/// On Linux, the locks of `fcntl` and of `flock` on one file do not touch each other.
#[cfg(target_os = "linux")]
mod door {
    use rustix::fs::{FlockOperation, fcntl_lock};
    use std::fs::File;

    pub(super) fn try_enter(file: &File) -> bool {
        use rustix::io::Errno;
        let entered = fcntl_lock(file, FlockOperation::NonBlockingLockExclusive);
        !matches!(entered, Err(Errno::AGAIN | Errno::ACCESS))
    }

    pub(super) fn enter(file: &File) {
        let _ = fcntl_lock(file, FlockOperation::LockExclusive);
    }

    pub(super) fn leave(file: &File) {
        let _ = fcntl_lock(file, FlockOperation::Unlock);
    }
}

/// Elsewhere there is no door: a process may take the turn twice while another waits.
#[cfg(not(target_os = "linux"))]
mod door {
    use std::fs::File;

    pub(super) fn try_enter(_file: &File) -> bool {
        true
    }

    pub(super) fn enter(_file: &File) {}

    pub(super) fn leave(_file: &File) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_in_its_place_is_not_followed() {
        let directory = tempfile::tempdir().unwrap();
        let [path, victim] = ["jobs.db", "victim"].map(|name| directory.path().join(name));
        std::fs::write(&path, "").unwrap();
        std::fs::write(&victim, "root:x:0:0:root").unwrap();
        std::os::unix::fs::symlink(&victim, with_end(&path, "-turn")).unwrap();
        let queue = TurnQueue::beside(&path);
        assert!(queue.try_take(), "there is no queue");
        assert_eq!(std::fs::read_to_string(&victim).unwrap(), "root:x:0:0:root");
    }
}
