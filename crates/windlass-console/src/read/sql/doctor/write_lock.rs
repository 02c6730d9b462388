//! Checks that the write lock of a SQLite file becomes free soon enough.

use diesel::connection::{Connection as _, SimpleConnection as _};
use diesel::sqlite::SqliteConnection;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use windlass::internal::db::conn::sqlite;
use windlass::internal::db::conn::turns::queue::TurnQueue;

/// The reason why the writers of a file wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HeldFor {
    /// This process has had its turn among Windlass's for more than the time limit.
    Turn(Option<u32>),
    /// While no such process wrote, the lock was not free within the time limit.
    Lock,
}

/// Waits up to `limit` for this process's turn, and then up to `limit` for the lock. Returns what did
/// not become free. Nothing is written.
pub(crate) fn held(file: &str, limit: Duration) -> Option<HeldFor> {
    let queue = Arc::new(TurnQueue::beside(Path::new(file)));
    let (taken, turn) = crossbeam_channel::bounded(0);
    let thread = std::thread::Builder::new().name("windlass-turn".to_owned());
    let waiting = Arc::clone(&queue);
    let started = thread.spawn(move || {
        let is_taken = waiting.take();
        if taken.send(is_taken).is_err() && is_taken {
            waiting.release();
        }
    });
    if started.is_ok() && turn.recv_timeout(limit).is_err() {
        return Some(HeldFor::Turn(queue.holder()));
    }
    let is_locked = is_locked(file, limit);
    queue.release();
    is_locked.then_some(HeldFor::Lock)
}

fn is_locked(file: &str, limit: Duration) -> bool {
    let Ok(mut conn) = SqliteConnection::establish(&sqlite::existing(file)) else {
        return false;
    };
    let millis = limit.as_millis();
    let text = format!("PRAGMA busy_timeout = {millis}; BEGIN IMMEDIATE; ROLLBACK");
    let probed = conn.batch_execute(&text);
    probed.is_err_and(|error| sqlite::is_locked(&error))
}
