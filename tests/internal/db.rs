//! A migrated database for one test: a SQLite file, or a database of the
//! Postgres server that `bin/test` starts. The twin of `tests/suite/support/db.rs`.

use crate::db::conn::connection::{AsConn, Conn};
use crate::db::conn::database::Database;
use crate::db::conn::owned::DbConnection;
use crate::db::conn::typed::with_conn;
use crate::db::internal_tests::template;
use diesel::connection::SimpleConnection;
use diesel::prelude::*;

/// Dropped with everything in it.
pub struct TestDb {
    pub url: String,
    pub database: Database,
    _place: Place,
}

enum Place {
    #[cfg(feature = "sqlite")]
    #[allow(dead_code, reason = "kept for its destructor")]
    File(tempfile::TempDir),
    #[cfg(feature = "postgres")]
    Database { server: String, name: String },
}

impl TestDb {
    #[cfg(feature = "sqlite")]
    pub fn sqlite() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("jobs.db");
        template::copy_sqlite(&file, |file| {
            migrate(&format!("sqlite://{}", file.display()))
        });
        Self::at(
            format!("sqlite://{}", file.display()),
            Place::File(directory),
        )
    }

    #[cfg(feature = "postgres")]
    pub fn postgres() -> Self {
        let server = std::env::var("WINDLASS_TEST_POSTGRES").expect(
            "run ./bin/test, or set WINDLASS_TEST_POSTGRES to the URL of a server whose user may create databases",
        );
        let name = template::copy_postgres(&server, migrate);
        Self::at(
            template::address(&server, &name),
            Place::Database { server, name },
        )
    }

    fn at(url: String, place: Place) -> Self {
        TestDb {
            database: Database::open(&url).unwrap(),
            url,
            _place: place,
        }
    }

    /// The same with the foreign keys that Rails makes, which lock rows too.
    #[cfg(feature = "postgres")]
    pub fn postgres_of_rails() -> Self {
        let db = Self::postgres();
        for table in [
            "ready",
            "claimed",
            "scheduled",
            "blocked",
            "failed",
            "recurring",
        ] {
            let add = format!(
                "ALTER TABLE solid_queue_{table}_executions ADD FOREIGN KEY (job_id) \
                 REFERENCES solid_queue_jobs (id) ON DELETE CASCADE"
            );
            execute(&mut db.connect().as_conn(), &add);
        }
        db
    }

    /// A connection that does not wait for the disk: no test here pulls a plug.
    pub fn connect(&self) -> DbConnection {
        hurried(&self.database)
    }

    /// The same by another address of the database.
    pub fn connect_at(&self, url: &str) -> DbConnection {
        hurried(&Database::open(url).unwrap())
    }

    /// Opens a connection on which no trigger runs, for [`clear`](super::checks::clear) and
    /// [`restore`](super::checks::restore). It is kept for them, because Postgres drops all cached plans of a session
    /// whenever its `session_replication_role` changes.
    pub fn untriggered(&self) -> DbConnection {
        let mut connection = self.connect();
        if self.is_postgres() {
            let conn = &mut connection.as_conn();
            execute(conn, "SET session_replication_role = replica");
        }
        connection
    }

    pub fn is_postgres(&self) -> bool {
        self.database.listens_by_notification()
    }
}

fn hurried(database: &Database) -> DbConnection {
    let mut connection = database.connect().unwrap();
    let hurry = match connection.as_conn() {
        #[cfg(feature = "postgres")]
        Conn::Postgres(_) => "SET synchronous_commit = off; SET jit = off",
        #[cfg(feature = "sqlite")]
        Conn::Sqlite(_) => "PRAGMA synchronous = OFF",
    };
    execute(&mut connection.as_conn(), hurry);
    connection
}

fn migrate(url: &str) {
    let database = Database::open(url).unwrap();
    database.migrate().unwrap();
    crate::db::internal_tests::checks::audit(&mut database.connect().unwrap().as_conn());
}

impl Drop for TestDb {
    fn drop(&mut self) {
        #[cfg(feature = "postgres")]
        #[allow(
            irrefutable_let_patterns,
            reason = "with one feature there is one place"
        )]
        if let Place::Database { server, name } = &self._place {
            template::drop_postgres(server, name);
        }
    }
}

/// Runs statements for their effect.
pub fn execute(conn: &mut Conn<'_>, sql: &str) {
    with_conn!(conn, |c| c.batch_execute(sql)).unwrap_or_else(|error| panic!("{error}: {sql}"));
}

#[derive(QueryableByName)]
struct Text {
    #[diesel(sql_type = diesel::sql_types::Text)]
    t: String,
}

/// The texts that a query selects as `t`.
pub fn texts(conn: &mut Conn<'_>, sql: &str) -> Vec<String> {
    let rows: Vec<Text> = crate::db::conn::statement::Statement::new(sql)
        .uncached()
        .load(conn)
        .unwrap();
    rows.into_iter().map(|row| row.t).collect()
}

/// The same with a statement that is asked often: the connection keeps its plan.
pub fn kept_texts(conn: &mut Conn<'_>, sql: &str) -> Vec<String> {
    let rows: Vec<Text> = crate::db::conn::statement::Statement::new(sql)
        .load(conn)
        .unwrap();
    rows.into_iter().map(|row| row.t).collect()
}

/// Runs functions of the form `fn name(db: &TestDb)` on both databases, each
/// in its own file or database: `name::sqlite`, `name::postgres` and
/// `name::postgres_of_rails`.
macro_rules! on_each_database {
    ($($name:ident),+ $(,)?) => {$(
        mod $name {
            #[cfg(feature = "sqlite")]
            #[test]
            fn sqlite() {
                super::$name(&$crate::db::internal_tests::db::TestDb::sqlite());
            }

            #[cfg(feature = "postgres")]
            #[test]
            fn postgres() {
                super::$name(&$crate::db::internal_tests::db::TestDb::postgres());
            }

            #[cfg(feature = "postgres")]
            #[test]
            fn postgres_of_rails() {
                super::$name(&$crate::db::internal_tests::db::TestDb::postgres_of_rails());
            }
        }
    )+};
}
pub(super) use on_each_database;
