//! Database access for the tests of applications.

use crate::db::conn::connection::sealed::Sealed;
use crate::db::conn::connection::{AsConn, Conn};
use crate::db::conn::database::{Database, DatabaseBackend};
use crate::db::conn::dialect::{Execution, Lossy, job_ids};
#[cfg(feature = "sqlite")]
use crate::db::conn::owned::ConnectionKind;
use crate::db::conn::owned::{BorrowHook, BorrowedConnection, DbConnection, SharedConnection};
use crate::db::conn::statement::Statement;
#[cfg(feature = "sqlite")]
use crate::db::conn::turns::Precedence;
use crate::db::model::extras::MaybeBareArguments;
use crate::db::model::new_row::waits_for_others_sql;
use crate::db::schema::items::{ItemKind, items};
use crate::db::table::semaphores::DOES_NOT_WAIT;
use crate::db::table::{rates, ready};
#[cfg(feature = "sqlite")]
use crate::error::Error;
use crate::error::{ErrorContext, Result};
use chrono::NaiveDateTime;
use diesel::connection::Connection as _;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Bool, Integer, Nullable, Text, Timestamp};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

// --- Databases for tests: in memory, or in a transaction that never commits ---

/// A database for one test, on one connection, of which nothing is kept.
///
/// The test enqueues on it, has the jobs performed, and examines the results. A running job borrows
/// the connection by [`Context::connection`](crate::Context::connection) and sees what the test has
/// written. See [`testing`](crate::testing).
///
/// It is a [`DbConnection`] for code that takes one: `&mut db` becomes `&mut DbConnection`.
#[derive(Debug)]
pub struct TestDatabase {
    connection: DbConnection,
    pub(crate) database: Database,
    /// True if the fault of a drain was reached.
    pub(crate) has_reached_fault: Arc<AtomicBool>,
}

impl TestDatabase {
    /// Opens a migrated SQLite database in memory.
    ///
    /// The best start for most tests: it needs nothing, takes a few milliseconds, and any number of
    /// tests run in parallel.
    ///
    /// # Errors
    /// Returns an error if SQLite cannot be set up, which does not happen in practice.
    #[cfg(feature = "sqlite")]
    pub fn in_memory() -> Result<Self> {
        let refused = |error: String| Error::Connect {
            target: ":memory:".to_owned(),
            reason: error,
        };
        let mut conn =
            SqliteConnection::establish(":memory:").map_err(|error| refused(error.to_string()))?;
        diesel::sql_query("PRAGMA foreign_keys = ON")
            .execute(&mut conn)
            .during("set up the database")?;
        crate::db::schema::migrate::migrate(&mut conn)?;
        Ok(Self::on(DbConnection {
            kind: ConnectionKind::Sqlite(Box::new(conn)),
            turns: None,
            writers: None,
            precedence: Precedence::Normal,
            limit: crate::db::conn::owned::STATEMENT,
        }))
    }

    /// Opens an existing database, in a transaction that is rolled back when this is dropped.
    ///
    /// The tables must exist. On Postgres, tests run in parallel; on a SQLite file, one of them
    /// holds the write lock, and [`in_memory`](Self::in_memory) is better.
    ///
    /// # Errors
    /// Returns an error if the database cannot be reached, or if its tables are missing or too old.
    pub fn open(url: &str) -> Result<Self> {
        let database = Database::open(url)?;
        let mut connection = database.connect()?;
        crate::db::schema::migrate::check(&mut connection.as_conn(), &database)?;
        match connection.borrow() {
            #[cfg(feature = "postgres")]
            Conn::Postgres(conn) => {
                // A test paused in a debugger is not a frozen client.
                diesel::sql_query("SET idle_in_transaction_session_timeout = 0")
                    .execute(conn)
                    .during("set up the connection")?;
                conn.begin_test_transaction().during("begin the test")?;
            }
            #[cfg(feature = "sqlite")]
            Conn::Sqlite(conn) => conn.begin_test_transaction().during("begin the test")?,
        }
        Ok(Self::on(connection))
    }

    fn on(connection: DbConnection) -> Self {
        let shelf = Arc::new(SharedConnection::default());
        TestDatabase {
            connection: BorrowedConnection::with_home(&shelf, connection),
            database: Database {
                inner: Arc::new(DatabaseBackend::Shared(shelf)),
                limit: crate::db::conn::owned::STATEMENT,
                is_read_only: false,
            },
            has_reached_fault: Arc::default(),
        }
    }
}

impl Sealed for TestDatabase {
    fn after_enqueue(&mut self) -> Result<()> {
        self.connection.after_enqueue()
    }
}

impl AsConn for TestDatabase {
    fn as_conn(&mut self) -> Conn<'_> {
        self.connection.borrow()
    }
}

impl Deref for TestDatabase {
    type Target = DbConnection;

    fn deref(&self) -> &DbConnection {
        &self.connection
    }
}

impl DerefMut for TestDatabase {
    fn deref_mut(&mut self) -> &mut DbConnection {
        &mut self.connection
    }
}

impl Database {
    /// Returns the same database of a test, with a hook that runs when a job borrows its connection.
    pub(crate) fn with_borrow_hook(&self, hook: BorrowHook) -> Self {
        let mut database = self.clone();
        if let DatabaseBackend::Shared(shelf) = &*self.inner {
            let shelf = Arc::new(shelf.with_hook(hook));
            database.inner = Arc::new(DatabaseBackend::Shared(shelf));
        }
        database
    }

    /// Borrows the connection of a test without its hook. Returns `None` if a job has kept it.
    pub(crate) fn borrow_for_test(&self) -> Option<DbConnection> {
        match &*self.inner {
            DatabaseBackend::Shared(shelf) => BorrowedConnection::from(shelf),
            _ => None,
        }
    }

    /// Returns a database without a connection, for a job that a test performs by itself.
    pub(crate) fn none() -> Self {
        Database {
            inner: Arc::new(DatabaseBackend::Unconnected),
            limit: crate::db::conn::owned::STATEMENT,
            is_read_only: false,
        }
    }
}

// --- The drain of a test beside the transitions of a worker ---

/// Makes the jobs ready that wait for a slot of their concurrency key or a token of a rate, or their share, as if they had none. Jobs
/// that wait for another one with their unique id, or for a batch, stay.
pub(crate) fn ignore_limits(conn: &mut Conn<'_>) -> QueryResult<()> {
    conn.transaction(|conn| {
        let text = format!(
            "DELETE FROM solid_queue_blocked_executions WHERE gate IS NOT NULL OR NOT {} RETURNING job_id",
            waits_for_others_sql("concurrency_key")
        );
        let blocked: Vec<Execution> = Statement::new(text).uncached().load(conn)?;
        ready::insert_ready(conn, &job_ids(blocked))
    })
}

/// A job that is scheduled for later, on a queue that is not paused.
#[derive(Debug, QueryableByName)]
pub(crate) struct LaterJob {
    #[diesel(sql_type = BigInt)]
    pub(crate) id: i64,
    #[diesel(sql_type = Text, deserialize_as = Lossy)]
    pub(crate) class_name: String,
    #[diesel(sql_type = Text, deserialize_as = Lossy)]
    pub(crate) queue_name: String,
    /// True if an earlier run of it failed or crashed.
    #[diesel(sql_type = Bool)]
    pub(crate) is_retry: bool,
}

/// Returns the jobs that are scheduled for later, the earliest first.
pub(crate) fn later(conn: &mut Conn<'_>) -> QueryResult<Vec<LaterJob>> {
    let text = "SELECT j.id, j.class_name, j.queue_name, j.attempts > 0 OR j.crash_count > 0 AS is_retry \
         FROM solid_queue_scheduled_executions s JOIN solid_queue_jobs j ON j.id = s.job_id \
         WHERE NOT EXISTS (SELECT 1 FROM solid_queue_pauses p WHERE p.queue_name = j.queue_name) \
         ORDER BY s.scheduled_at, s.job_id";
    Statement::new(text).uncached().load(conn)
}

/// Makes a scheduled job due now.
pub(crate) fn bring_forward(conn: &mut Conn<'_>, job: i64) -> QueryResult<()> {
    let text = "UPDATE solid_queue_scheduled_executions SET scheduled_at = {now} WHERE job_id = $1";
    Statement::new(text).bind(job).uncached().execute(conn)
}

// --- Statements that only tests of applications run ---

/// A job that waits.
#[derive(Debug, QueryableByName)]
pub(crate) struct WaitingJob {
    #[diesel(sql_type = BigInt)]
    pub(crate) id: i64,
    #[diesel(sql_type = Text)]
    pub(crate) class_name: String,
    #[diesel(sql_type = Nullable<Text>, deserialize_as = MaybeBareArguments)]
    pub(crate) arguments: Option<String>,
    #[diesel(sql_type = Text)]
    pub(crate) queue_name: String,
    #[diesel(sql_type = Integer)]
    pub(crate) priority: i32,
    #[diesel(sql_type = Integer)]
    pub(crate) attempts: i32,
    #[diesel(sql_type = Nullable<Text>)]
    pub(crate) idempotency_key: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    pub(crate) policy: Option<String>,
    /// `None` if it may run now.
    #[diesel(sql_type = Nullable<Timestamp>)]
    pub(crate) scheduled_at: Option<NaiveDateTime>,
    #[diesel(sql_type = Timestamp)]
    pub(crate) now: NaiveDateTime,
}

/// Returns the jobs that are ready, scheduled or blocked, in the order of their enqueue.
pub(crate) fn waiting(conn: &mut Conn<'_>) -> QueryResult<Vec<WaitingJob>> {
    let text = "SELECT j.id, j.class_name, j.arguments, j.queue_name, j.priority, j.attempts, j.idempotency_key, j.policy, \
         s.scheduled_at, {now} AS now FROM solid_queue_jobs j \
         LEFT JOIN solid_queue_scheduled_executions s ON s.job_id = j.id \
         WHERE s.id IS NOT NULL \
         OR EXISTS (SELECT 1 FROM solid_queue_ready_executions r WHERE r.job_id = j.id) \
         OR EXISTS (SELECT 1 FROM solid_queue_blocked_executions b WHERE b.job_id = j.id) ORDER BY j.id";
    Statement::new(text).uncached().load(conn)
}

/// Tables that are not changed: migrations, ticks of recurring tasks, which are calendar times, and the
/// audit, whose rows no statement may change.
const FIXED: [&str; 3] = [
    "windlass_schema_migrations",
    "solid_queue_recurring_executions",
    "windlass_audit",
];

/// Makes all rates due whose starts are not counted yet. Returns whether there are any.
pub(crate) fn count_starts(conn: &mut Conn<'_>) -> QueryResult<bool> {
    rates::count_soon(conn)
}

/// Makes all stored times older, as if that much time had passed.
pub(crate) fn travel(conn: &mut Conn<'_>, by: Duration) -> QueryResult<()> {
    let micros = crate::db::conn::dialect::micros(by);
    conn.transaction(|conn| {
        let items = items(conn.dialect());
        for table in items.iter().filter(|item| item.kind == ItemKind::Table) {
            let times = items
                .iter()
                .filter(|item| item.table == table.name && item.is_time());
            let earlier: Vec<String> = times.map(|column| earlier(conn, &column.name)).collect();
            if earlier.is_empty() || FIXED.contains(&&*table.name) {
                continue;
            }
            let text = format!("UPDATE {} SET {}", table.name, earlier.join(", "));
            Statement::new(text).bind(micros).uncached().execute(conn)?;
        }
        rates::travel(conn, micros)
    })
}

/// Times in the last days of the calendar mean that a job waits, or how: they stay.
fn earlier(conn: &Conn<'_>, column: &str) -> String {
    let earlier = match conn {
        #[cfg(feature = "postgres")]
        Conn::Postgres(_) => format!("{column} - $1 * interval '1 microsecond'"),
        #[cfg(feature = "sqlite")]
        Conn::Sqlite(_) => {
            format!("strftime('%Y-%m-%d %H:%M:%f000', {column}, (-$1 / 1000000.0) || ' seconds')")
        }
    };
    format!("{column} = CASE WHEN {column} >= '{DOES_NOT_WAIT}' THEN {column} ELSE {earlier} END")
}
