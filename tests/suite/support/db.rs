//! A migrated database for one test: a SQLite file, or a database of the
//! Postgres server that `bin/test` starts.

use crate::support::template;
use crate::support::wait::eventually;
#[cfg(feature = "postgres")]
use diesel::Connection as _;
use diesel::prelude::*;
use std::os::unix::fs::MetadataExt as _;
use std::sync::Mutex;
use windlass::{AsConn, Conn, Database, DbConnection, Error};

/// Dropped with everything in it.
pub struct TestDb {
    pub url: String,
    pub database: Database,
    _place: Place,
    /// The test's own connections. They are kept, because each new one starts a process of the server, or reads the
    /// whole schema of the file.
    kept: Kept,
    /// The address past the pooler, if `url` leads through one.
    direct: Option<String>,
    #[cfg(feature = "postgres")]
    _pooler: Option<super::bouncer::Bouncer>,
}

/// A pool, opened at its first use, and the inode of its file: a test may put another file in its place.
type Kept = Mutex<Option<(u64, Database)>>;

enum Place {
    #[allow(dead_code, reason = "kept for its destructor")]
    File(tempfile::TempDir),
    /// The test sees to it.
    Elsewhere,
    #[cfg(feature = "postgres")]
    Schema { server: String, name: String },
    #[cfg(feature = "postgres")]
    Database { server: String, name: String },
}

impl TestDb {
    /// A migrated SQLite file.
    pub fn sqlite() -> Self {
        let db = Self::empty_sqlite();
        template::copy_sqlite(db.address().as_ref(), |file| {
            let url = format!("sqlite://{}", file.display());
            Database::open(&url).unwrap().migrate().unwrap();
        });
        db
    }

    /// A migrated SQLite file in a directory of the test's own.
    pub fn sqlite_in(directory: &std::path::Path) -> Self {
        Self::at(&format!("sqlite://{}", directory.join("jobs.db").display()))
    }

    /// A database that the test itself has made, migrated.
    pub fn at(url: &str) -> Self {
        let database = Database::open(url).unwrap();
        database.migrate().unwrap();
        TestDb {
            database,
            url: url.to_owned(),
            _place: Place::Elsewhere,
            kept: Kept::default(),
            direct: None,
            #[cfg(feature = "postgres")]
            _pooler: None,
        }
    }

    /// The address of a SQLite file that does not exist yet.
    pub fn empty_sqlite() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let url = format!("sqlite://{}", directory.path().join("jobs.db").display());
        TestDb {
            database: Database::open(&url).unwrap(),
            url,
            _place: Place::File(directory),
            kept: Kept::default(),
            direct: None,
            #[cfg(feature = "postgres")]
            _pooler: None,
        }
    }

    /// A migrated SQLite file on a disk, where others are in memory.
    pub fn durable_sqlite() -> Self {
        let disk =
            std::env::var_os("WINDLASS_TEST_DISK").map_or_else(std::env::temp_dir, Into::into);
        let directory = tempfile::tempdir_in(disk).unwrap();
        let db = Self::sqlite_in(directory.path());
        TestDb {
            _place: Place::File(directory),
            kept: Kept::default(),
            direct: None,
            #[cfg(feature = "postgres")]
            _pooler: None,
            database: db.database.clone(),
            url: db.url.clone(),
        }
    }

    /// A migrated database of the Postgres server. NOTIFY is heard in all schemas of one, so other tests would wake the
    /// workers of this one.
    #[cfg(feature = "postgres")]
    pub fn postgres() -> Self {
        let server = postgres_server();
        let name = template::copy_postgres(&server, |url| {
            Database::open(url).unwrap().migrate().unwrap();
        });
        Self::whole(server, name)
    }

    /// A migrated schema of the server that is as durable as in production.
    #[cfg(feature = "postgres")]
    pub fn durable_postgres() -> Self {
        let durable = std::env::var("WINDLASS_TEST_POSTGRES_DURABLE");
        Self::schema(durable.unwrap_or_else(|_| postgres_server())).migrated()
    }

    /// A schema without tables.
    #[cfg(feature = "postgres")]
    pub fn empty_postgres() -> Self {
        Self::schema(postgres_server())
    }

    /// A migrated database behind a pooler in transaction mode with few sessions, past which workers listen. The test's
    /// own statements go past it, too.
    /// `None`: this run does not say where `PgBouncer` is.
    #[cfg(feature = "postgres")]
    pub fn pooled() -> Option<Self> {
        let mut db = Self::pooled_as("?pooling=transaction")?;
        let direct = db.direct.clone()?;
        db.database = db.database.clone().listen_url(&direct).unwrap();
        // Also for the programs that a test starts.
        let listen = direct.replace('@', "%40");
        db.url.push_str(&format!("&listen_url={listen}"));
        Some(db.migrated())
    }

    /// The same without tables, at an address with these parameters.
    #[cfg(feature = "postgres")]
    pub fn pooled_as(parameters: &str) -> Option<Self> {
        let mut db = Self::empty_lone_postgres();
        let Some(pooler) = super::bouncer::Bouncer::by_transaction(&db.url) else {
            eprintln!("NOT TESTED: `bin/test` says where PgBouncer is");
            return None;
        };
        let pooler = pooler.listening();
        let url = format!("{}{parameters}", pooler.url(&db.url));
        db.database = Database::open(&url).unwrap();
        db.direct = Some(std::mem::replace(&mut db.url, url));
        db._pooler = Some(pooler);
        Some(db)
    }

    #[cfg(feature = "postgres")]
    fn migrated(self) -> Self {
        self.database.migrate().unwrap();
        self
    }

    #[cfg(feature = "postgres")]
    fn schema(server: String) -> Self {
        let name = format!("test_{:016x}", fastrand::u64(..));
        let mut conn = PgConnection::establish(&server).unwrap();
        diesel::sql_query(format!("CREATE SCHEMA {name}"))
            .execute(&mut conn)
            .unwrap();
        let url = format!("{server}?options=-csearch_path%3D{name}");
        TestDb {
            database: Database::open(&url).unwrap(),
            url,
            _place: Place::Schema { server, name },
            kept: Kept::default(),
            direct: None,
            #[cfg(feature = "postgres")]
            _pooler: None,
        }
    }

    /// A database without tables: an index that is built `CONCURRENTLY` waits
    /// for the transactions of all other tests in the same database.
    #[cfg(feature = "postgres")]
    pub fn empty_lone_postgres() -> Self {
        let server = postgres_server();
        let name = format!("test_{:016x}", fastrand::u64(..));
        let mut conn = PgConnection::establish(&server).unwrap();
        execute(&mut conn, &format!("CREATE DATABASE {name}"));
        Self::whole(server, name)
    }

    /// A database without tables, in an encoding of its own.
    #[cfg(feature = "postgres")]
    pub fn empty_in_encoding(encoding: &str) -> Self {
        let server = postgres_server();
        let name = format!("test_{:016x}", fastrand::u64(..));
        let mut conn = PgConnection::establish(&server).unwrap();
        let text = format!(
            "CREATE DATABASE {name} ENCODING '{encoding}' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"
        );
        execute(&mut conn, &text);
        Self::whole(server, name)
    }

    #[cfg(feature = "postgres")]
    fn whole(server: String, name: String) -> Self {
        let url = template::address(&server, &name);
        TestDb {
            database: Database::open(&url).unwrap(),
            url,
            _place: Place::Database { server, name },
            kept: Kept::default(),
            direct: None,
            #[cfg(feature = "postgres")]
            _pooler: None,
        }
    }

    /// Opens a new connection: for statements that change their session, such as `BEGIN`, `SET` and locks.
    pub fn connect(&self) -> DbConnection {
        eventually_connect(|| self.database.connect())
    }

    /// Returns a kept connection, for statements that leave their session as it was: the next caller gets the same one.
    pub fn connection(&self) -> DbConnection {
        match self.direct {
            Some(_) => self.connect(),
            None => self.connect_past(),
        }
    }

    /// Returns the same past a pooler.
    pub fn connect_past(&self) -> DbConnection {
        let file = std::fs::metadata(self.address()).map_or(0, |file| file.ino());
        let url = self.direct.as_ref().unwrap_or(&self.url);
        let mut kept = self.kept.lock().unwrap();
        if kept.as_ref().is_none_or(|(of, _)| *of != file) {
            *kept = Some((file, Database::open_with_pool(url, 100).unwrap()));
        }
        let database = kept.as_ref().map(|(_, database)| database.clone());
        drop(kept);
        eventually_connect(|| database.as_ref().unwrap().get())
    }

    /// Closes the kept connections. Later statements then run in new sessions, with the current settings of the database
    /// or role; until then no session of a file is open.
    pub fn forget_sessions(&self) {
        *self.kept.lock().unwrap() = None;
    }

    /// Returns the address for Diesel's own `establish`, for a connection that is the user's and not ours.
    pub fn address(&self) -> &str {
        let url = self.direct.as_deref().unwrap_or(&self.url);
        url.strip_prefix("sqlite://").unwrap_or(url)
    }

    pub fn is_postgres(&self) -> bool {
        self.url.starts_with("postgres")
    }

    /// Runs SQL for its effect.
    pub fn execute(&self, sql: &str) -> usize {
        execute(&mut self.connect_past(), sql)
    }

    /// Runs statements in one transaction.
    pub fn in_transaction(&self, statements: &[&str]) {
        let mut connection = self.connect_past();
        // As Rails' adapters begin theirs.
        let begin = if self.is_postgres() {
            "BEGIN"
        } else {
            "BEGIN IMMEDIATE"
        };
        execute(&mut connection, begin);
        for statement in statements {
            execute(&mut connection, statement);
        }
        execute(&mut connection, "COMMIT");
    }

    /// The one number that a query selects.
    pub fn count(&self, sql: &str) -> i64 {
        self.look(|connection| try_count(connection, sql))
    }

    /// Runs a query on a kept connection and, if a server has closed that, on a new one.
    fn look<T>(&self, query: impl Fn(&mut DbConnection) -> QueryResult<T>) -> T {
        match query(&mut self.connect_past()) {
            Err(_) if self.is_postgres() => {
                self.forget_sessions();
                query(&mut self.connect_past()).unwrap()
            }
            done => done.unwrap(),
        }
    }

    /// The rows of a table, `solid_queue_` left out: `rows("ready_executions")`.
    pub fn rows(&self, table: &str) -> i64 {
        self.count(&format!("SELECT count(*) AS n FROM solid_queue_{table}"))
    }

    /// The rows of a table of our own.
    pub fn rows_of(&self, table: &str) -> i64 {
        self.count(&format!("SELECT count(*) AS n FROM {table}"))
    }

    /// The texts that a query selects as `t`.
    pub fn texts(&self, sql: &str) -> Vec<String> {
        self.look(|connection| try_texts(connection, sql))
    }
}

/// Connects, again while the server of a busy machine is late: that is not the result of a test.
fn eventually_connect(connect: impl Fn() -> Result<DbConnection, Error>) -> DbConnection {
    let is_late = |error: &Error| error.to_string().contains("timeout expired");
    eventually("the server lets the test connect", || match connect() {
        Err(error) if is_late(&error) => None,
        done => Some(done.unwrap()),
    })
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

/// Runs the body with a plain connection of the user's own: a
/// `SqliteConnection` or a `PgConnection` that Windlass has not set up.
#[macro_export]
macro_rules! with_own_connection {
    ($db:expr, |$conn:ident| $body:expr) => {{
        use diesel::Connection as _;
        if $db.is_postgres() {
            #[cfg(feature = "postgres")]
            {
                #[allow(unused_mut)]
                let mut $conn = diesel::PgConnection::establish($db.address()).unwrap();
                $body
            }
            #[cfg(not(feature = "postgres"))]
            unreachable!()
        } else {
            let mut $conn = diesel::SqliteConnection::establish($db.address()).unwrap();
            $crate::support::db::execute(&mut $conn, "PRAGMA busy_timeout = 10000");
            $body
        }
    }};
}

pub fn execute<C: AsConn>(conn: &mut C, sql: &str) -> usize {
    try_execute(conn, sql).unwrap()
}

pub fn try_execute<C: AsConn>(conn: &mut C, sql: &str) -> QueryResult<usize> {
    match conn.as_conn() {
        Conn::Sqlite(c) => diesel::sql_query(sql).execute(c),
        #[cfg(feature = "postgres")]
        Conn::Postgres(c) => diesel::sql_query(sql).execute(c),
        _ => unreachable!(),
    }
}

/// The query must call its number `n`.
pub fn count<C: AsConn>(conn: &mut C, sql: &str) -> i64 {
    try_count(conn, sql).unwrap()
}

fn try_count<C: AsConn>(conn: &mut C, sql: &str) -> QueryResult<i64> {
    match conn.as_conn() {
        Conn::Sqlite(c) => diesel::sql_query(sql).get_result::<N>(c),
        #[cfg(feature = "postgres")]
        Conn::Postgres(c) => diesel::sql_query(sql).get_result::<N>(c),
        _ => unreachable!(),
    }
    .map(|row| row.n)
}

/// The texts that a query selects as `t`.
pub fn texts<C: AsConn>(conn: &mut C, sql: &str) -> Vec<String> {
    try_texts(conn, sql).unwrap()
}

fn try_texts<C: AsConn>(conn: &mut C, sql: &str) -> QueryResult<Vec<String>> {
    let rows: Vec<T> = match conn.as_conn() {
        Conn::Sqlite(c) => diesel::sql_query(sql).load(c),
        #[cfg(feature = "postgres")]
        Conn::Postgres(c) => diesel::sql_query(sql).load(c),
        _ => unreachable!(),
    }?;
    Ok(rows.into_iter().map(|row| row.t).collect())
}

/// The server that `bin/test` starts.
#[cfg(feature = "postgres")]
pub fn postgres_server() -> String {
    std::env::var("WINDLASS_TEST_POSTGRES")
        .expect("run ./bin/test, or set WINDLASS_TEST_POSTGRES to the URL of a server whose user may create schemas")
}

impl Drop for TestDb {
    fn drop(&mut self) {
        // A worker that still runs may hold locks; the server goes with the run anyway.
        #[cfg(feature = "postgres")]
        match &self._place {
            Place::Schema { server, name } => {
                if let Ok(mut conn) = PgConnection::establish(server) {
                    let _ = diesel::sql_query("SET lock_timeout = '2s'").execute(&mut conn);
                    let _ =
                        diesel::sql_query(format!("DROP SCHEMA {name} CASCADE")).execute(&mut conn);
                }
            }
            Place::Database { server, name } => template::drop_postgres(server, name),
            Place::File(_) | Place::Elsewhere => {}
        }
    }
}
