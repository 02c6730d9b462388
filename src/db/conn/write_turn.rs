//! The turns of one process' writers of a SQLite file.
//!
//! SQLite has one writer at a time, and its busy handler sleeps between its attempts: with many
//! threads, nothing is written most of the time. So the connections of a process take turns here, from
//! the statement that needs the write lock to the end of its transaction. A turn is only for speed:
//! what waits too long for it goes on without, to the plain lock.

use diesel::connection::{Instrumentation, InstrumentationEvent};
use std::fmt::Write as _;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// As long as SQLite itself waits for the write lock.
const LONGEST: Duration = Duration::from_secs(5);

/// Lets one writer after the other write.
#[derive(Debug, Default)]
pub(crate) struct WriteTurns {
    is_taken: Mutex<bool>,
    ended: Condvar,
}

/// A turn, until it is dropped.
#[derive(Debug)]
pub(crate) struct WriteTurn(Arc<WriteTurns>);

impl WriteTurns {
    /// Waits for a turn. Returns `None` if that takes longer than SQLite would wait.
    pub(crate) fn take(self: &Arc<Self>) -> Option<WriteTurn> {
        let waited = self
            .ended
            .wait_timeout_while(self.is_taken(), LONGEST, |is_taken| *is_taken);
        let (mut is_taken, waited) = waited.unwrap_or_else(PoisonError::into_inner);
        if waited.timed_out() && *is_taken {
            return None;
        }
        *is_taken = true;
        drop(is_taken);
        Some(WriteTurn(Arc::clone(self)))
    }

    fn is_taken(&self) -> MutexGuard<'_, bool> {
        self.is_taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for WriteTurn {
    fn drop(&mut self) {
        *self.0.is_taken() = false;
        self.0.ended.notify_one();
    }
}

/// Takes turns for the statements of an application, which Diesel reports.
pub(crate) struct TakesTurns {
    turns: Arc<WriteTurns>,
    turn: Option<WriteTurn>,
    is_in_transaction: bool,
}

impl TakesTurns {
    pub(crate) fn new(turns: &Arc<WriteTurns>) -> Self {
        TakesTurns {
            turns: Arc::clone(turns),
            turn: None,
            is_in_transaction: false,
        }
    }
}

impl Instrumentation for TakesTurns {
    fn on_connection_event(&mut self, event: InstrumentationEvent<'_>) {
        match event {
            InstrumentationEvent::StartQuery { query, .. }
                if self.turn.is_none() && may_write(&beginning(query)) =>
            {
                self.turn = self.turns.take();
            }
            InstrumentationEvent::FinishQuery { .. } if !self.is_in_transaction => self.turn = None,
            // Each is reported before its statement.
            InstrumentationEvent::BeginTransaction { depth, .. } if depth.get() == 1 => {
                self.is_in_transaction = true;
            }
            InstrumentationEvent::CommitTransaction { depth, .. }
            | InstrumentationEvent::RollbackTransaction { depth, .. }
                if depth.get() == 1 =>
            {
                self.is_in_transaction = false;
            }
            _ => {}
        }
    }
}

/// The first bytes of a statement; neither the rest nor its values are written.
struct Beginning(String);

impl std::fmt::Write for Beginning {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        let room = 16_usize.saturating_sub(self.0.len());
        self.0.extend(text.chars().take(room));
        if text.len() < room {
            Ok(())
        } else {
            Err(std::fmt::Error)
        }
    }
}

fn beginning(statement: &dyn std::fmt::Display) -> String {
    let mut beginning = Beginning(String::with_capacity(16));
    // An error is the end of the room.
    let _ = write!(beginning, "{statement}");
    beginning.0
}

/// Returns whether a statement may need the write lock, by its first words.
fn may_write(beginning: &str) -> bool {
    const READS: [&str; 9] = [
        "SELECT",
        "PRAGMA",
        "EXPLAIN",
        "VALUES",
        "COMMIT",
        "END",
        "ROLLBACK",
        "SAVEPOINT",
        "RELEASE",
    ];
    let mut words = beginning.split_whitespace();
    let first = words.next().unwrap_or_default();
    if first.eq_ignore_ascii_case("BEGIN") {
        return words.next().is_some_and(|kind| {
            kind.eq_ignore_ascii_case("IMMEDIATE") || kind.eq_ignore_ascii_case("EXCLUSIVE")
        });
    }
    !READS.iter().any(|word| first.eq_ignore_ascii_case(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_that_write_are_known_by_their_first_words() {
        for text in [
            "INSERT INTO a VALUES (1)",
            "update a set b = 1",
            " WITH x AS (SELECT 1) DELETE FROM a",
            "BEGIN IMMEDIATE",
            "begin exclusive transaction",
            "CREATE TABLE a (b)",
        ] {
            assert!(may_write(&beginning(&text)), "{text}");
        }
        for text in [
            "SELECT 1",
            "BEGIN",
            "begin deferred",
            "COMMIT",
            "ROLLBACK TO a",
            "PRAGMA x",
        ] {
            assert!(!may_write(&beginning(&text)), "{text}");
        }
    }

    #[test]
    fn a_turn_ends_when_it_is_dropped() {
        let turns = Arc::new(WriteTurns::default());
        let first = turns.take();
        let waiting = std::thread::spawn({
            let turns = Arc::clone(&turns);
            move || turns.take().is_some()
        });
        drop(first);
        assert!(waiting.join().unwrap());
    }
}
