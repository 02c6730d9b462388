//! The place of a run: tables, a log of effects, logs of processes.

use crate::Result;
use crate::pooler::{self, Pooler};
use crate::proxy::Proxy;
use diesel::prelude::*;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use windlass::{AsConn, Conn, Database, DbConnection};

/// Removed at the end, unless something was violated.
pub struct Place {
    /// The database's address, through the proxy that loses what it is told to.
    pub url_of_processes: String,
    pub proxy: Option<Proxy>,
    pub database: Database,
    pub directory: PathBuf,
    schema: Option<(String, String)>,
    /// True if a query may take minutes: the books are read when everything has stopped.
    is_patient: AtomicBool,
    _pooler: Option<Pooler>,
}

#[derive(QueryableByName)]
struct N {
    #[diesel(sql_type = diesel::sql_types::BigInt)]
    n: i64,
}

#[derive(QueryableByName)]
struct T {
    #[diesel(sql_type = diesel::sql_types::Text)]
    t: String,
}

impl Place {
    /// With a `pooler`, the processes work through this `PgBouncer`.
    pub fn create(database: Option<&str>, pooler: Option<&Path>) -> Result<Self> {
        let directory =
            std::env::temp_dir().join(format!("windlass-chaos-{:08x}", std::process::id()));
        std::fs::create_dir_all(&directory)?;
        let (url, schema) = match database {
            None => (
                format!("sqlite://{}", directory.join("jobs.db").display()),
                None,
            ),
            Some(server) if server.starts_with("postgres") => {
                let name = format!("windlass_chaos_{:08x}", std::process::id());
                postgres_schema(server, &format!("CREATE SCHEMA {name}"))?;
                let joiner = if server.contains('?') { '&' } else { '?' };
                (
                    format!("{server}{joiner}options=-csearch_path%3D{name}"),
                    Some((server.to_owned(), name)),
                )
            }
            Some(file) => (file.to_owned(), None),
        };
        let database = Database::open(&url)?;
        database.migrate()?;
        let pooler = pooler
            .map(|program| match &schema {
                Some((server, name)) => pooled(program, server, name, &directory),
                None => {
                    Err("a pooler stands before Postgres: pass `--database postgres://..`".into())
                }
            })
            .transpose()?;
        let through = pooler.as_ref().map_or(&url, |(_, through)| through);
        let (proxy, url_of_processes) = behind_proxy(through)?;
        Ok(Place {
            url_of_processes,
            proxy,
            database,
            directory,
            schema,
            is_patient: AtomicBool::new(false),
            _pooler: pooler.map(|(pooler, _)| pooler),
        })
    }

    pub fn is_postgres(&self) -> bool {
        self.schema.is_some()
    }

    /// The schema's name: part of the address of every session of this run.
    pub fn schema(&self) -> Option<&str> {
        self.schema.as_ref().map(|(_, name)| name.as_str())
    }

    pub fn effects(&self) -> PathBuf {
        self.directory.join("effects")
    }

    pub fn acknowledged(&self) -> PathBuf {
        self.directory.join("acknowledged")
    }

    pub fn refused(&self) -> PathBuf {
        self.directory.join("refused")
    }

    /// Lets the queries from here on take minutes: a busy machine reads the rows of half a million jobs for longer than
    /// the limit that a process sets for its statements.
    pub fn be_patient(&self) {
        self.is_patient.store(true, Ordering::Relaxed);
    }

    pub fn connect(&self) -> Result<DbConnection> {
        let mut connection = self.database.connect()?;
        if self.is_postgres() && self.is_patient.load(Ordering::Relaxed) {
            execute(&mut connection, "SET statement_timeout = '10min'")?;
        }
        Ok(connection)
    }

    /// Runs statements one after the other.
    pub fn execute(&self, statements: &[&str]) -> Result<()> {
        let mut connection = self.connect()?;
        for statement in statements {
            execute(&mut connection, statement)?;
        }
        Ok(())
    }

    /// The number that a query calls `n`.
    pub fn count(&self, query: &str) -> Result<i64> {
        count(&mut self.connect()?, query)
    }

    /// The texts that a query calls `t`.
    pub fn texts(&self, query: &str) -> Result<Vec<String>> {
        texts(&mut self.connect()?, query)
    }

    /// Takes everything away.
    pub fn remove(&self) {
        if let Some((server, name)) = &self.schema {
            let _ = postgres_schema(server, &format!("DROP SCHEMA {name} CASCADE"));
        }
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// Runs a statement.
pub fn execute(connection: &mut DbConnection, statement: &str) -> QueryResult<usize> {
    match connection.as_conn() {
        #[cfg(feature = "sqlite")]
        Conn::Sqlite(c) => diesel::sql_query(statement).execute(c),
        #[cfg(feature = "postgres")]
        Conn::Postgres(c) => diesel::sql_query(statement).execute(c),
        _ => Ok(0),
    }
}

/// The texts that a query calls `t`.
pub fn texts(connection: &mut DbConnection, query: &str) -> Result<Vec<String>> {
    let rows: Vec<T> = match connection.as_conn() {
        #[cfg(feature = "sqlite")]
        Conn::Sqlite(c) => diesel::sql_query(query).load(c)?,
        #[cfg(feature = "postgres")]
        Conn::Postgres(c) => diesel::sql_query(query).load(c)?,
        _ => Vec::new(),
    };
    Ok(rows.into_iter().map(|row| row.t).collect())
}

/// The number that a query calls `n`.
pub fn count(connection: &mut DbConnection, query: &str) -> Result<i64> {
    let row: N = match connection.as_conn() {
        #[cfg(feature = "sqlite")]
        Conn::Sqlite(c) => diesel::sql_query(query).get_result(c)?,
        #[cfg(feature = "postgres")]
        Conn::Postgres(c) => diesel::sql_query(query).get_result(c)?,
        _ => N { n: 0 },
    };
    Ok(row.n)
}

#[cfg(feature = "postgres")]
fn postgres_schema(server: &str, statement: &str) -> Result<()> {
    let mut conn = <PgConnection as Connection>::establish(server)?;
    diesel::sql_query(statement).execute(&mut conn)?;
    Ok(())
}

#[cfg(not(feature = "postgres"))]
fn postgres_schema(_server: &str, _statement: &str) -> Result<()> {
    Err("this program was built without Postgres; leave `--no-default-features` out".into())
}

/// `host:port` of a `postgres://user@host:port/name`.
fn server_of(url: &str) -> Option<&str> {
    let authority = url.strip_prefix("postgres://")?.split('/').next()?;
    let server = authority.rsplit('@').next()?;
    Some(server).filter(|server| server.contains(':'))
}

/// Starts a pooler before the server, and returns it with the address through it.
fn pooled(program: &Path, url: &str, schema: &str, directory: &Path) -> Result<(Pooler, String)> {
    let server = server_of(url).ok_or("the address of the database has no port")?;
    let (before, path) = url.split_at(url.find(server).unwrap_or(0) + server.len());
    let name = path.trim_start_matches('/').split('?').next();
    let name = name.unwrap_or_default();
    let pooler = Pooler::start(program, server, name, schema, directory)?;
    let through = before.replacen(server, &pooler.server, 1);
    let through = format!("{through}/{}?pooling=transaction", pooler::DATABASE);
    Ok((pooler, through))
}

/// Starts a proxy before the server of a `postgres://user@host:port/name`.
fn behind_proxy(url: &str) -> Result<(Option<Proxy>, String)> {
    let Some(server) = server_of(url) else {
        return Ok((None, url.to_owned()));
    };
    let proxy = Proxy::start(server.to_owned())?;
    let url = url.replacen(server, &format!("127.0.0.1:{}", proxy.port), 1);
    Ok((Some(proxy), url))
}
