//! The drivers, each of which enqueues in a transaction.

use diesel::connection::{LoadConnection, SimpleConnection as _};
use diesel::query_dsl::methods::LoadQuery;
use diesel_async::sync_connection_wrapper::SyncConnectionWrapper;
use diesel_async::{AsyncConnection as _, AsyncPgConnection, SimpleAsyncConnection as _};
use sqlx_0_8::Connection as _;
use sqlx_0_9::Connection as _;
use std::error::Error;
use std::fmt;
use std::future::Future;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use windlass_enqueue::diesel::{JobBackend, Number};
use windlass_enqueue::{NewJob, Statement};

pub type Ids = Result<Vec<i64>, Failure>;

/// A connection through a driver. Each method is one transaction.
pub trait Driver {
    /// Enqueues jobs one by one.
    fn enqueue_each(&mut self, jobs: &[NewJob]) -> Ids;
    /// Enqueues jobs as a list.
    fn enqueue_all(&mut self, jobs: &[NewJob]) -> Ids;
}

/// An error of a driver, with its SQLSTATE if the driver has it.
#[derive(Debug)]
pub struct Failure {
    code: Option<String>,
    message: String,
}

impl Failure {
    /// Returns whether the database refuses the job. Other errors end the program.
    pub fn is_refusal(&self) -> bool {
        // SQLSTATEs of class 22 are about values.
        let by_code = self
            .code
            .as_ref()
            .is_some_and(|code| code.starts_with("22"));
        // Diesel has no SQLSTATE.
        let by_message = self.code.is_none()
            && [
                "invalid input syntax",
                "out of range",
                "invalid byte sequence",
            ]
            .iter()
            .any(|words| self.message.contains(words));
        by_code || by_message || self.message.contains("cannot enqueue")
    }

    /// Returns whether the same transaction may succeed next time: the file was locked, or two transactions waited for
    /// each other.
    pub fn is_temporary(&self) -> bool {
        let by_code = self
            .code
            .as_ref()
            .is_some_and(|code| code.starts_with("40"));
        by_code
            || ["database is locked", "deadlock detected"]
                .iter()
                .any(|words| self.message.contains(words))
    }

    fn new(error: &dyn Error, code: Option<&str>) -> Self {
        let mut message = error.to_string();
        let mut source = error.source();
        while let Some(error) = source {
            message = format!("{message}: {error}");
            source = error.source();
        }
        Failure {
            code: code.filter(|code| code.len() == 5).map(str::to_owned),
            message,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.code, self.message)
    }
}

impl Error for Failure {}

impl From<sqlx_0_8::Error> for Failure {
    fn from(error: sqlx_0_8::Error) -> Self {
        let code = error.as_database_error().and_then(|error| error.code());
        Failure::new(&error, code.as_deref())
    }
}

impl From<sqlx_0_9::Error> for Failure {
    fn from(error: sqlx_0_9::Error) -> Self {
        let code = error.as_database_error().and_then(|error| error.code());
        Failure::new(&error, code.as_deref())
    }
}

impl From<tokio_postgres::Error> for Failure {
    fn from(error: tokio_postgres::Error) -> Self {
        Failure::new(&error, error.code().map(|state| state.code()))
    }
}

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Self {
        Failure::new(&error, None)
    }
}

impl From<diesel::result::Error> for Failure {
    fn from(error: diesel::result::Error) -> Self {
        Failure::new(&error, None)
    }
}

/// That of sqlx, which is set in the other drivers.
const BUSY_TIMEOUT: &str = "PRAGMA busy_timeout = 5000";

/// Connects with a driver. The database is the URL of a Postgres server or the path of a SQLite file.
///
/// # Errors
/// If the driver does not work with this database, or does not connect.
pub fn open(driver: &str, database: &str) -> Result<Box<dyn Driver>, Box<dyn Error>> {
    let is_postgres = database.starts_with("postgres");
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let url = match is_postgres {
        true => database.to_owned(),
        false => format!("sqlite://{database}"),
    };
    Ok(match (driver, is_postgres) {
        ("sqlx-0.8", true) => {
            let conn = runtime.block_on(sqlx_0_8::PgConnection::connect(&url))?;
            Box::new(Sqlx08 { conn, runtime })
        }
        #[cfg(feature = "sqlite-of-sqlx-0_8")]
        ("sqlx-0.8", false) => {
            let conn = runtime.block_on(sqlx_0_8::SqliteConnection::connect(&url))?;
            Box::new(Sqlx08 { conn, runtime })
        }
        ("sqlx-0.9", true) => {
            let conn = runtime.block_on(sqlx_0_9::PgConnection::connect(&url))?;
            Box::new(Sqlx09 { conn, runtime })
        }
        ("sqlx-0.9", false) => {
            let conn = runtime.block_on(sqlx_0_9::SqliteConnection::connect(&url))?;
            Box::new(Sqlx09 { conn, runtime })
        }
        ("tokio-postgres", true) => Box::new(TokioPostgres::open(&url, runtime)?),
        ("rusqlite", false) => {
            let conn = rusqlite::Connection::open(database)?;
            conn.busy_timeout(Duration::from_secs(5))?;
            Box::new(conn)
        }
        ("diesel", true) => {
            let conn = <diesel::PgConnection as diesel::Connection>::establish(&url)?;
            Box::new(Diesel(conn))
        }
        ("diesel", false) => {
            let mut conn = <diesel::SqliteConnection as diesel::Connection>::establish(database)?;
            conn.batch_execute(BUSY_TIMEOUT)?;
            Box::new(Diesel(conn))
        }
        ("diesel-async", true) => {
            let conn = runtime.block_on(AsyncPgConnection::establish(&url))?;
            Box::new(DieselAsync { conn, runtime })
        }
        ("diesel-async", false) => {
            let conn = SyncConnectionWrapper::<diesel::SqliteConnection>::establish(database);
            let mut conn = runtime.block_on(conn)?;
            runtime.block_on(conn.batch_execute(BUSY_TIMEOUT))?;
            Box::new(DieselAsync { conn, runtime })
        }
        _ => return Err(format!("{driver} does not open {database}").into()),
    })
}

/// A server runs such futures on any of its threads.
fn sent<F: Future + Send>(future: F) -> F {
    future
}

struct Sqlx08<C> {
    conn: C,
    runtime: Runtime,
}

impl<C: windlass_enqueue::sqlx_0_8::JobConnection> Driver for Sqlx08<C> {
    fn enqueue_each(&mut self, jobs: &[NewJob]) -> Ids {
        let Sqlx08 { conn, runtime } = self;
        runtime.block_on(sent(async {
            let mut transaction = conn.begin().await?;
            let mut ids = Vec::new();
            for job in jobs {
                ids.push(windlass_enqueue::sqlx_0_8::enqueue(&mut *transaction, job).await?);
            }
            transaction.commit().await?;
            Ok(ids)
        }))
    }

    fn enqueue_all(&mut self, jobs: &[NewJob]) -> Ids {
        let Sqlx08 { conn, runtime } = self;
        runtime.block_on(sent(async {
            let mut transaction = conn.begin().await?;
            let ids = windlass_enqueue::sqlx_0_8::enqueue_all(&mut *transaction, jobs).await?;
            transaction.commit().await?;
            Ok(ids)
        }))
    }
}

struct Sqlx09<C> {
    conn: C,
    runtime: Runtime,
}

impl<C: windlass_enqueue::sqlx_0_9::JobConnection> Driver for Sqlx09<C> {
    fn enqueue_each(&mut self, jobs: &[NewJob]) -> Ids {
        let Sqlx09 { conn, runtime } = self;
        runtime.block_on(sent(async {
            let mut transaction = conn.begin().await?;
            let mut ids = Vec::new();
            for job in jobs {
                ids.push(windlass_enqueue::sqlx_0_9::enqueue(&mut *transaction, job).await?);
            }
            transaction.commit().await?;
            Ok(ids)
        }))
    }

    fn enqueue_all(&mut self, jobs: &[NewJob]) -> Ids {
        let Sqlx09 { conn, runtime } = self;
        runtime.block_on(sent(async {
            let mut transaction = conn.begin().await?;
            let ids = windlass_enqueue::sqlx_0_9::enqueue_all(&mut *transaction, jobs).await?;
            transaction.commit().await?;
            Ok(ids)
        }))
    }
}

struct TokioPostgres {
    client: tokio_postgres::Client,
    runtime: Runtime,
}

impl TokioPostgres {
    fn open(url: &str, runtime: Runtime) -> Result<Self, tokio_postgres::Error> {
        let connected = tokio_postgres::connect(url, tokio_postgres::NoTls);
        let (client, connection) = runtime.block_on(connected)?;
        runtime.spawn(connection);
        Ok(TokioPostgres { client, runtime })
    }
}

impl Driver for TokioPostgres {
    fn enqueue_each(&mut self, jobs: &[NewJob]) -> Ids {
        let TokioPostgres { client, runtime } = self;
        runtime.block_on(sent(async {
            let transaction = client.transaction().await?;
            let mut ids = Vec::new();
            for job in jobs {
                ids.push(windlass_enqueue::tokio_postgres::enqueue(&transaction, job).await?);
            }
            transaction.commit().await?;
            Ok(ids)
        }))
    }

    fn enqueue_all(&mut self, jobs: &[NewJob]) -> Ids {
        let TokioPostgres { client, runtime } = self;
        runtime.block_on(sent(async {
            let transaction = client.transaction().await?;
            let ids = windlass_enqueue::tokio_postgres::enqueue_all(&transaction, jobs).await?;
            transaction.commit().await?;
            Ok(ids)
        }))
    }
}

impl Driver for rusqlite::Connection {
    fn enqueue_each(&mut self, jobs: &[NewJob]) -> Ids {
        let transaction = self.transaction()?;
        let ids = jobs.iter();
        let ids = ids.map(|job| windlass_enqueue::rusqlite::enqueue(&transaction, job));
        let ids = ids.collect::<Result<_, _>>()?;
        transaction.commit()?;
        Ok(ids)
    }

    fn enqueue_all(&mut self, jobs: &[NewJob]) -> Ids {
        let transaction = self.transaction()?;
        let ids = windlass_enqueue::rusqlite::enqueue_all(&transaction, jobs)?;
        transaction.commit()?;
        Ok(ids)
    }
}

struct Diesel<C>(C);

impl<C> Driver for Diesel<C>
where
    C: LoadConnection<Backend: JobBackend>,
    Statement: for<'q> LoadQuery<'q, C, Number>,
{
    fn enqueue_each(&mut self, jobs: &[NewJob]) -> Ids {
        let enqueue = |conn: &mut C| {
            let ids = jobs.iter();
            let ids = ids.map(|job| windlass_enqueue::diesel::enqueue(conn, job));
            ids.collect()
        };
        Ok(self.0.transaction(enqueue)?)
    }

    fn enqueue_all(&mut self, jobs: &[NewJob]) -> Ids {
        let enqueue = |conn: &mut C| windlass_enqueue::diesel::enqueue_all(conn, jobs);
        Ok(self.0.transaction(enqueue)?)
    }
}

struct DieselAsync<C> {
    conn: C,
    runtime: Runtime,
}

impl<C> Driver for DieselAsync<C>
where
    C: diesel_async::AsyncConnection<Backend: JobBackend>,
    Statement: for<'q> diesel_async::methods::LoadQuery<'q, C, Number>,
{
    fn enqueue_each(&mut self, jobs: &[NewJob]) -> Ids {
        let enqueued = self.conn.transaction(async |conn: &mut C| {
            let mut ids = Vec::new();
            for job in jobs {
                ids.push(windlass_enqueue::diesel_async::enqueue(conn, job).await?);
            }
            diesel::QueryResult::Ok(ids)
        });
        Ok(self.runtime.block_on(sent(enqueued))?)
    }

    fn enqueue_all(&mut self, jobs: &[NewJob]) -> Ids {
        let enqueued = self.conn.transaction(async |conn: &mut C| {
            windlass_enqueue::diesel_async::enqueue_all(conn, jobs).await
        });
        Ok(self.runtime.block_on(sent(enqueued))?)
    }
}
