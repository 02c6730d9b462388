//! Turns for the statements of an application, which Diesel reports.

use crate::db::conn::turns::{Precedence, WriteTurn, WriteTurns};
use diesel::connection::{Instrumentation, InstrumentationEvent, get_default_instrumentation};
use std::fmt::Write as _;
use std::sync::Arc;

/// Takes a turn for each transaction that writes, and for each statement outside of one.
pub(crate) struct TakesTurns {
    turns: Arc<WriteTurns>,
    turn: Option<WriteTurn>,
    /// Set once a turn was asked for. After waiting for it in vain, the transaction goes on without:
    /// it may hold SQLite's lock, for which those wait that have the turn.
    has_asked: bool,
    is_in_transaction: bool,
    /// The program's own.
    next: Option<Box<dyn Instrumentation>>,
}

impl TakesTurns {
    pub(crate) fn new(turns: &Arc<WriteTurns>) -> Self {
        TakesTurns {
            turns: Arc::clone(turns),
            turn: None,
            has_asked: false,
            is_in_transaction: false,
            next: get_default_instrumentation(),
        }
    }

    fn start(&mut self, kind: StatementKind) {
        // Diesel has not reported how the statement or the transaction before it ended.
        if !self.is_in_transaction || matches!(kind, StatementKind::Begin { .. }) {
            self.end();
        }
        if kind.may_write() && !self.has_asked {
            self.has_asked = true;
            self.turn = self.turns.take(Precedence::Normal);
        }
    }

    fn finish(&mut self, kind: StatementKind, has_failed: bool) {
        match kind {
            StatementKind::Begin { .. } if !has_failed => self.is_in_transaction = true,
            StatementKind::Commit if !has_failed => self.is_in_transaction = false,
            // If it fails, SQLite has ended the transaction itself.
            StatementKind::RollBack => self.is_in_transaction = false,
            _ => {}
        }
        if !self.is_in_transaction {
            self.end();
        }
    }

    fn end(&mut self) {
        self.is_in_transaction = false;
        self.turn = None;
        self.has_asked = false;
    }
}

impl Instrumentation for TakesTurns {
    fn on_connection_event(&mut self, event: InstrumentationEvent<'_>) {
        match &event {
            InstrumentationEvent::StartQuery { query, .. } => self.start(kind(*query)),
            InstrumentationEvent::FinishQuery { query, error, .. } => {
                self.finish(kind(*query), error.is_some());
            }
            _ => {}
        }
        if let Some(next) = &mut self.next {
            next.on_connection_event(event);
        }
    }
}

/// The kind of a statement, for the turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StatementKind {
    Begin { is_immediate: bool },
    Commit,
    RollBack,
    Read,
    Write,
}

impl StatementKind {
    fn may_write(self) -> bool {
        matches!(
            self,
            StatementKind::Write | StatementKind::Begin { is_immediate: true }
        )
    }
}

/// The number of bytes of a statement that are read.
const BEGINNING: usize = 64;

/// The first bytes of a statement; neither the rest nor its values are written.
struct Beginning(String);

impl std::fmt::Write for Beginning {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        let room = BEGINNING.saturating_sub(self.0.len());
        self.0.extend(text.chars().take(room));
        if text.len() < room {
            Ok(())
        } else {
            Err(std::fmt::Error)
        }
    }
}

/// Returns the kind of a statement, by its first words.
fn kind(statement: &dyn std::fmt::Display) -> StatementKind {
    const READS: [&str; 6] = [
        "SELECT",
        "PRAGMA",
        "EXPLAIN",
        "VALUES",
        "SAVEPOINT",
        "RELEASE",
    ];
    let mut beginning = Beginning(String::with_capacity(BEGINNING));
    // An error is the end of the room.
    let _ = write!(beginning, "{statement}");
    let (first, rest) = beginning.0.split_once(';').unwrap_or((&beginning.0, ""));
    let is_alone = rest.trim().is_empty();
    let mut words = first.split_whitespace();
    let word = words.next().unwrap_or_default();
    let is = |other: &str| word.eq_ignore_ascii_case(other);
    let next = words.next().unwrap_or_default();
    if is("BEGIN") {
        // With others in one text, it may be over when that is.
        let is_immediate = ["IMMEDIATE", "EXCLUSIVE"]
            .iter()
            .any(|kind| next.eq_ignore_ascii_case(kind));
        return match is_alone {
            true => StatementKind::Begin { is_immediate },
            false => StatementKind::Write,
        };
    }
    if is("COMMIT") || is("END") {
        return StatementKind::Commit;
    }
    if is("ROLLBACK") {
        let to = |word: &str| word.eq_ignore_ascii_case("TO");
        return match to(next) || words.any(to) {
            true => StatementKind::Read,
            false => StatementKind::RollBack,
        };
    }
    match READS.iter().any(|word| is(word)) {
        true => StatementKind::Read,
        false => StatementKind::Write,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::conn::sqlite;
    use diesel::connection::{Connection as _, SimpleConnection as _};
    use diesel::prelude::*;

    fn file() -> (tempfile::TempDir, Arc<WriteTurns>, SqliteConnection) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("jobs.db");
        sqlite::create(&path).unwrap();
        let turns = WriteTurns::of(&path);
        let mut conn = sqlite::connect(&path).unwrap();
        conn.batch_execute("CREATE TABLE a (b); PRAGMA busy_timeout = 0")
            .unwrap();
        conn.set_instrumentation(TakesTurns::new(&turns));
        (directory, turns, conn)
    }

    #[test]
    fn a_failed_begin_leaves_no_turn_behind() {
        let (directory, turns, mut conn) = file();
        let mut other = sqlite::connect(&directory.path().join("jobs.db")).unwrap();
        other.batch_execute("BEGIN IMMEDIATE").unwrap();
        for _ in 0..2 {
            conn.immediate_transaction(|_| QueryResult::Ok(()))
                .unwrap_err();
            assert!(!turns.is_taken());
        }
        conn.batch_execute("INSERT INTO a VALUES (1)").unwrap_err();
        assert!(!turns.is_taken());
        other.batch_execute("ROLLBACK").unwrap();
        conn.immediate_transaction(|conn| {
            conn.batch_execute("INSERT INTO a VALUES (1)")?;
            assert!(turns.is_taken());
            QueryResult::Ok(())
        })
        .unwrap();
        assert!(!turns.is_taken());
    }

    /// A value that Diesel cannot bind.
    #[derive(Debug, diesel::expression::AsExpression)]
    #[diesel(sql_type = diesel::sql_types::Text)]
    struct Unbindable;

    impl diesel::serialize::ToSql<diesel::sql_types::Text, diesel::sqlite::Sqlite> for Unbindable {
        fn to_sql<'b>(
            &'b self,
            _: &mut diesel::serialize::Output<'b, '_, diesel::sqlite::Sqlite>,
        ) -> diesel::serialize::Result {
            Err("no".into())
        }
    }

    /// Diesel reports only its start.
    #[test]
    fn a_statement_whose_values_cannot_be_bound_delays_others_once() {
        let (_directory, turns, mut conn) = file();
        let insert = |conn: &mut SqliteConnection| {
            let insert = diesel::sql_query("INSERT INTO a VALUES (?)");
            insert
                .bind::<diesel::sql_types::Text, _>(Unbindable)
                .execute(conn)
        };
        insert(&mut conn).unwrap_err();
        for _ in 0..2 {
            assert!(turns.take(Precedence::Normal).is_some());
            assert!(!turns.is_taken());
        }
        // The next statements of the same connection are unaffected.
        insert(&mut conn).unwrap_err();
        conn.batch_execute("INSERT INTO a VALUES (1)").unwrap();
        assert!(!turns.is_taken());
    }

    #[test]
    fn a_row_that_is_returned_leaves_no_turn_behind() {
        let (_directory, turns, mut conn) = file();
        let insert = diesel::sql_query("INSERT INTO a VALUES (1), (2) RETURNING b AS n");
        #[derive(QueryableByName)]
        struct Row {
            #[diesel(sql_type = diesel::sql_types::BigInt)]
            n: i64,
        }
        let row: Row = insert.get_result(&mut conn).unwrap();
        assert_eq!(row.n, 1);
        assert!(!turns.is_taken());
    }

    /// It holds SQLite's lock, for which another writer may wait with the turn.
    #[test]
    fn a_transaction_asks_for_its_turn_once() {
        let (_directory, turns, mut conn) = file();
        conn.batch_execute("BEGIN IMMEDIATE").unwrap();
        let mut takes = TakesTurns::new(&turns);
        (takes.has_asked, takes.is_in_transaction) = (true, true);
        conn.set_instrumentation(takes);
        let arrived = turns.arrived();
        conn.batch_execute("INSERT INTO a VALUES (1)").unwrap();
        conn.batch_execute("SAVEPOINT x").unwrap();
        conn.batch_execute("INSERT INTO a VALUES (2)").unwrap();
        conn.batch_execute("ROLLBACK TO x").unwrap();
        conn.batch_execute("INSERT INTO a VALUES (3)").unwrap();
        assert_eq!(turns.arrived(), arrived);
        conn.batch_execute("COMMIT").unwrap();
        conn.batch_execute("INSERT INTO a VALUES (4)").unwrap();
        assert_eq!(turns.arrived(), arrived + 1);
    }

    #[test]
    fn statements_are_known_by_their_first_words() {
        let begin = |is_immediate| StatementKind::Begin { is_immediate };
        for (text, expected) in [
            ("INSERT INTO a VALUES (1)", StatementKind::Write),
            ("update a set b = 1", StatementKind::Write),
            (" WITH x AS (SELECT 1) DELETE FROM a", StatementKind::Write),
            ("CREATE TABLE a (b)", StatementKind::Write),
            (
                "BEGIN IMMEDIATE; DELETE FROM a; COMMIT",
                StatementKind::Write,
            ),
            ("BEGIN IMMEDIATE", begin(true)),
            ("begin exclusive transaction;", begin(true)),
            ("BEGIN", begin(false)),
            ("begin deferred", begin(false)),
            ("COMMIT", StatementKind::Commit),
            ("end transaction", StatementKind::Commit),
            ("ROLLBACK", StatementKind::RollBack),
            ("ROLLBACK TO a", StatementKind::Read),
            ("rollback transaction to savepoint a", StatementKind::Read),
            ("SELECT 1", StatementKind::Read),
            ("PRAGMA x", StatementKind::Read),
        ] {
            assert_eq!(kind(&text), expected, "{text}");
        }
    }
}
