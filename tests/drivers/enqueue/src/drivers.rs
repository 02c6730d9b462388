//! The drivers, each of which enqueues in a transaction.

use diesel::connection::LoadConnection;
use diesel::query_dsl::methods::LoadQuery;
use diesel_async::sync_connection_wrapper::SyncConnectionWrapper;
use diesel_async::{AsyncConnection as _, AsyncPgConnection};
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

/// A connection through a driver.
pub trait Driver {
    fn enqueue(&mut self, job: &NewJob) -> Result<i64, Failure>;
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
            let conn = <diesel::SqliteConnection as diesel::Connection>::establish(database)?;
            Box::new(Diesel(conn))
        }
        ("diesel-async", true) => {
            let conn = runtime.block_on(AsyncPgConnection::establish(&url))?;
            Box::new(DieselAsync { conn, runtime })
        }
        ("diesel-async", false) => {
            let conn = SyncConnectionWrapper::<diesel::SqliteConnection>::establish(database);
            let conn = runtime.block_on(conn)?;
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
    fn enqueue(&mut self, job: &NewJob) -> Result<i64, Failure> {
        let Sqlx08 { conn, runtime } = self;
        runtime.block_on(sent(async {
            let mut transaction = conn.begin().await?;
            let id = windlass_enqueue::sqlx_0_8::enqueue(&mut *transaction, job).await?;
            transaction.commit().await?;
            Ok(id)
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
    fn enqueue(&mut self, job: &NewJob) -> Result<i64, Failure> {
        let Sqlx09 { conn, runtime } = self;
        runtime.block_on(sent(async {
            let mut transaction = conn.begin().await?;
            let id = windlass_enqueue::sqlx_0_9::enqueue(&mut *transaction, job).await?;
            transaction.commit().await?;
            Ok(id)
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
    fn enqueue(&mut self, job: &NewJob) -> Result<i64, Failure> {
        let TokioPostgres { client, runtime } = self;
        runtime.block_on(sent(async {
            let transaction = client.transaction().await?;
            let id = windlass_enqueue::tokio_postgres::enqueue(&transaction, job).await?;
            transaction.commit().await?;
            Ok(id)
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
    fn enqueue(&mut self, job: &NewJob) -> Result<i64, Failure> {
        let transaction = self.transaction()?;
        let id = windlass_enqueue::rusqlite::enqueue(&transaction, job)?;
        transaction.commit()?;
        Ok(id)
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
    fn enqueue(&mut self, job: &NewJob) -> Result<i64, Failure> {
        let enqueue = |conn: &mut C| windlass_enqueue::diesel::enqueue(conn, job);
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
    fn enqueue(&mut self, job: &NewJob) -> Result<i64, Failure> {
        let enqueued = self.conn.transaction(async |conn: &mut C| {
            windlass_enqueue::diesel_async::enqueue(conn, job).await
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
