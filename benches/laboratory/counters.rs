//! Counts the statements of this process and the bytes written by a database.

use crate::clock;
use crate::db::Conn;
use diesel::connection::{
    Instrumentation, InstrumentationEvent, SimpleConnection as _, set_default_instrumentation,
};
use diesel::prelude::*;
use diesel::sql_types::BigInt;
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

static STATEMENTS: AtomicU64 = AtomicU64::new(0);

static TRANSACTIONS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// The time at which this thread last sent a statement or started a transaction.
    static SENT: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// Returns when this thread sent its last statement or started its last transaction, since the host
/// was started.
pub(crate) fn sent_last() -> Duration {
    SENT.get()
}

/// The statements that this process has sent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Counted {
    /// All statements, including those that start and end transactions.
    pub(crate) statements: u64,
    /// Transactions; each statement outside a transaction counts as one.
    pub(crate) transactions: u64,
}

/// Counts the statements of connections that are opened from now on.
pub(crate) fn count_statements() {
    // Fails only if a thread panicked while doing the same.
    let _ = set_default_instrumentation(|| Some(Box::<Counter>::default()));
}

/// Returns the counts so far.
pub(crate) fn counted() -> Counted {
    Counted {
        statements: STATEMENTS.load(Ordering::Relaxed),
        transactions: TRANSACTIONS.load(Ordering::Relaxed),
    }
}

/// In microseconds; 0: none is logged.
static SLOW: AtomicU64 = AtomicU64::new(0);

/// Logs statements of this process that take longer.
pub(crate) fn log_slower_than(time: Option<Duration>) {
    let micros = time.map_or(0, |time| {
        u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
    });
    SLOW.store(micros, Ordering::Relaxed);
}

fn log_if_slow(took: Duration, query: &dyn std::fmt::Display) {
    let slow = Duration::from_micros(SLOW.load(Ordering::Relaxed));
    if !slow.is_zero() && took > slow {
        let ms = took.as_millis();
        log::warn!("bench: a statement took {ms} ms: {query}");
    }
}

#[derive(Debug, Default)]
struct Counter {
    in_transaction: bool,
    /// The statement that ends the transaction is next.
    is_ending: bool,
    /// The start of the last statement.
    started: Duration,
}

impl Instrumentation for Counter {
    fn on_connection_event(&mut self, event: InstrumentationEvent<'_>) {
        match event {
            InstrumentationEvent::StartQuery { .. } => self.started = clock::since_boot(),
            InstrumentationEvent::FinishQuery { query, .. } => {
                log_if_slow(clock::since_boot().saturating_sub(self.started), query);
            }
            _ => {}
        }
        match event {
            InstrumentationEvent::BeginTransaction { depth, .. } if depth.get() == 1 => {
                self.in_transaction = true;
                SENT.set(clock::since_boot());
                TRANSACTIONS.fetch_add(1, Ordering::Relaxed);
            }
            InstrumentationEvent::CommitTransaction { depth, .. }
            | InstrumentationEvent::RollbackTransaction { depth, .. }
                if depth.get() == 1 =>
            {
                self.is_ending = true;
            }
            InstrumentationEvent::StartQuery { .. } if !self.in_transaction => {
                SENT.set(clock::since_boot());
            }
            InstrumentationEvent::FinishQuery { .. } => {
                STATEMENTS.fetch_add(1, Ordering::Relaxed);
                if self.is_ending {
                    (self.in_transaction, self.is_ending) = (false, false);
                } else if !self.in_transaction {
                    TRANSACTIONS.fetch_add(1, Ordering::Relaxed);
                }
            }
            _ => {}
        }
    }
}

#[derive(QueryableByName)]
struct Position {
    #[diesel(sql_type = BigInt)]
    position: i64,
}

/// Returns how many bytes the server has written to its log since it was set up, for all clients.
/// Returns `None` on SQLite, where the process writes itself.
pub(crate) fn written(conn: &mut Conn<'_>) -> QueryResult<Option<i64>> {
    match conn {
        Conn::Postgres(conn) => diesel::sql_query(
            "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint AS position",
        )
        .get_result::<Position>(*conn)
        .map(|row| Some(row.position)),
        Conn::Sqlite(_) => Ok(None),
    }
}

/// Opens a transaction that keeps its snapshot of the database for as long as the connection lives.
pub(crate) fn open_snapshot(conn: &mut Conn<'_>) -> QueryResult<()> {
    match conn {
        Conn::Postgres(conn) => conn.batch_execute(
            "SET idle_in_transaction_session_timeout = 0; BEGIN ISOLATION LEVEL REPEATABLE READ; \
             SELECT count(*) FROM solid_queue_pauses",
        ),
        Conn::Sqlite(conn) => conn.batch_execute("BEGIN; SELECT count(*) FROM solid_queue_pauses"),
    }
}
