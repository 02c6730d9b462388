//! Where a run takes place: tables, a log of effects, logs of processes.

use crate::Result;
use crate::proxy::Proxy;
use diesel::prelude::*;
use std::path::PathBuf;
use windlass::{AsConn, Conn, Database, DbConnection};

/// Removed at the end, unless something was violated.
pub struct Place {
    /// The database's address, through the proxy that loses what it is told to.
    pub url_of_processes: String,
    pub proxy: Option<Proxy>,
    pub database: Database,
    pub directory: PathBuf,
    schema: Option<(String, String)>,
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
    pub fn create(database: Option<&str>) -> Result<Self> {
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
        let (proxy, url_of_processes) = behind_proxy(&url)?;
        Ok(Place {
            url_of_processes,
            proxy,
            database,
            directory,
            schema,
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

    pub fn connect(&self) -> Result<DbConnection> {
        Ok(self.database.connect()?)
    }

    /// Runs statements one after the other.
    pub fn execute(&self, statements: &[&str]) -> Result<()> {
        let mut connection = self.connect()?;
        for statement in statements {
            match connection.as_conn() {
                #[cfg(feature = "sqlite")]
                Conn::Sqlite(c) => diesel::sql_query(*statement).execute(c)?,
                #[cfg(feature = "postgres")]
                Conn::Postgres(c) => diesel::sql_query(*statement).execute(c)?,
                _ => 0,
            };
        }
        Ok(())
    }

    /// The number that a query calls `n`.
    pub fn count(&self, query: &str) -> Result<i64> {
        count(&mut self.connect()?, query)
    }

    /// The texts that a query calls `t`.
    pub fn texts(&self, query: &str) -> Result<Vec<String>> {
        let mut connection = self.connect()?;
        let rows: Vec<T> = match connection.as_conn() {
            #[cfg(feature = "sqlite")]
            Conn::Sqlite(c) => diesel::sql_query(query).load(c)?,
            #[cfg(feature = "postgres")]
            Conn::Postgres(c) => diesel::sql_query(query).load(c)?,
            _ => Vec::new(),
        };
        Ok(rows.into_iter().map(|row| row.t).collect())
    }

    /// Takes everything away.
    pub fn remove(&self) {
        if let Some((server, name)) = &self.schema {
            let _ = postgres_schema(server, &format!("DROP SCHEMA {name} CASCADE"));
        }
        let _ = std::fs::remove_dir_all(&self.directory);
    }
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

/// Starts a proxy before the server of a `postgres://user@host:port/name`.
fn behind_proxy(url: &str) -> Result<(Option<Proxy>, String)> {
    let server = url
        .strip_prefix("postgres://")
        .and_then(|rest| rest.split('/').next())
        .and_then(|authority| authority.rsplit('@').next())
        .filter(|server| server.contains(':'));
    let Some(server) = server else {
        return Ok((None, url.to_owned()));
    };
    let proxy = Proxy::start(server.to_owned())?;
    let url = url.replacen(server, &format!("127.0.0.1:{}", proxy.port), 1);
    Ok((Some(proxy), url))
}
