//! The embedded migrations and the version table of our own.
//!
//! Diesel's own harness would share `__diesel_schema_migrations` with the
//! application, whose `diesel migration revert` would then stumble over a
//! version it does not know.

use super::{AsConn, Conn, Database, on};
use crate::error::{Doing, Error, Result, SchemaError};
use diesel::backend::Backend;
use diesel::migration::{Migration, MigrationSource};
use diesel::prelude::*;
use diesel_migrations::{EmbeddedMigrations, embed_migrations};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

#[cfg(feature = "postgres")]
const POSTGRES: EmbeddedMigrations = embed_migrations!("migrations/postgres");
#[cfg(feature = "sqlite")]
const SQLITE: EmbeddedMigrations = embed_migrations!("migrations/sqlite");

/// Any number that no other program locks: "windlass" in ASCII, cut to 63 bits.
#[cfg(feature = "postgres")]
const LOCK: i64 = 0x7769_6e64_6c61_7373;

/// Applies, to the database behind `conn`, the migrations that it lacks and
/// returns their versions.
///
/// Works on an empty database and on one that a Rails app made (what exists
/// is kept, what is missing is added). Safe to run twice, also at once: one
/// transaction under a lock.
///
/// ```
/// use diesel::prelude::*;
/// let mut conn = SqliteConnection::establish(":memory:").unwrap();
/// assert_eq!(windlass::migrate(&mut conn).unwrap().len(), 10);
/// assert_eq!(windlass::migrate(&mut conn).unwrap().len(), 0);
/// ```
///
/// # Errors
/// When a migration fails; nothing is kept then.
pub fn run<C: AsConn + ?Sized>(conn: &mut C) -> Result<Vec<String>> {
    let mut conn = conn.as_conn();
    conn.transaction(|conn| {
        lock(conn).doing("take the migration lock")?;
        let applied = applied(conn)?;
        match conn {
            #[cfg(feature = "postgres")]
            Conn::Postgres(conn) => run_missing(*conn, &POSTGRES, &applied),
            #[cfg(feature = "sqlite")]
            Conn::Sqlite(conn) => run_missing(*conn, &SQLITE, &applied),
        }
    })
}

fn run_missing<C, DB>(
    conn: &mut C,
    source: &impl MigrationSource<DB>,
    applied: &BTreeSet<String>,
) -> Result<Vec<String>>
where
    DB: Backend,
    C: diesel::connection::BoxableConnection<DB>,
{
    let failed = |version: &str, reason: String| Error::Migration {
        version: version.to_owned(),
        reason,
    };
    let mut migrations: Vec<Box<dyn Migration<DB>>> = source
        .migrations()
        .map_err(|error| failed("list", error.to_string()))?;
    migrations.sort_by_key(|migration| migration.name().version().to_string());
    let mut done = Vec::new();
    for migration in migrations {
        let version = migration.name().version().to_string();
        if !applied.contains(&version) {
            migration
                .run(conn)
                .map_err(|error| failed(&version, explain(&error.to_string())))?;
            done.push(version);
        }
    }
    Ok(done)
}

/// The database's message, and what to do about the one that most meet: since
/// version 15 Postgres lets only the owner of a database create tables in it.
fn explain(message: &str) -> String {
    if message.contains("permission denied for schema") {
        format!("{message}; migrate as the owner of the database, or GRANT CREATE ON that schema")
    } else {
        message.to_owned()
    }
}

/// On SQLite the transaction is the lock.
fn lock(conn: &mut Conn<'_>) -> QueryResult<()> {
    match conn {
        #[cfg(feature = "postgres")]
        Conn::Postgres(conn) => advisory_lock(conn),
        #[cfg(feature = "sqlite")]
        Conn::Sqlite(_) => Ok(()),
    }
}

/// Waits for a migration that is under way, however long it takes: an index
/// on a table of millions takes longer than our sessions let a statement or
/// a lock wait. For table locks the session's own patience counts again.
#[cfg(feature = "postgres")]
fn advisory_lock(conn: &mut PgConnection) -> QueryResult<()> {
    diesel::sql_query(
        "SELECT set_config('windlass.lock_timeout', current_setting('lock_timeout'), true), \
         set_config('lock_timeout', '0', true), set_config('statement_timeout', '0', true)",
    )
    .execute(conn)?;
    diesel::sql_query("SELECT pg_advisory_xact_lock($1)")
        .bind::<diesel::sql_types::BigInt, _>(LOCK)
        .execute(conn)?;
    diesel::sql_query(
        "SELECT set_config('lock_timeout', current_setting('windlass.lock_timeout'), true)",
    )
    .execute(conn)
    .map(drop)
}

#[derive(QueryableByName)]
struct Found {
    #[diesel(sql_type = diesel::sql_types::Bool)]
    found: bool,
}

pub(super) fn applied(conn: &mut Conn<'_>) -> Result<BTreeSet<String>> {
    use super::schema::windlass_schema_migrations::dsl;
    let look = match conn {
        #[cfg(feature = "postgres")]
        Conn::Postgres(_) => {
            "SELECT to_regclass('windlass_schema_migrations') IS NOT NULL AS found"
        }
        #[cfg(feature = "sqlite")]
        Conn::Sqlite(_) => {
            "SELECT count(*) > 0 AS found FROM sqlite_schema WHERE name = 'windlass_schema_migrations'"
        }
    };
    let exists = on!(conn, |c| diesel::sql_query(look).get_result::<Found>(c))
        .doing("look for the version table")?
        .found;
    if !exists {
        return Ok(BTreeSet::new());
    }
    on!(conn, |c| dsl::windlass_schema_migrations
        .select(dsl::version)
        .load::<String>(c))
    .map(BTreeSet::from_iter)
    .doing("read the version table")
}

/// Whether the tables serve this program. Newer tables do: migrations only
/// ever add what older programs do not look at.
pub(crate) fn check(conn: &mut Conn<'_>, database: &Database) -> Result<()> {
    let applied = applied(conn)?;
    let Some(found) = applied.last() else {
        return Err(SchemaError::Missing {
            target: database.target(),
        }
        .into());
    };
    let mut needed = FILES.iter().map(version);
    match needed.find(|version| !applied.contains(version)) {
        None => Ok(()),
        Some(needed) => Err(SchemaError::Old {
            target: database.target(),
            found: found.clone(),
            needed,
        }
        .into()),
    }
}

/// As the version table has it: the digits in front of the name.
fn version((_, directory, ..): &File) -> String {
    let number = directory.split('_').next().unwrap_or_default();
    number.replace('-', "")
}

/// Which of the two databases a set of migration files is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum MigrationDialect {
    /// For Postgres.
    Postgres,
    /// For SQLite.
    Sqlite,
}

/// A migration, as text: `(directory, up.sql, down.sql)`.
type File = (MigrationDialect, &'static str, &'static str, &'static str);

/// All migrations, in order: the statements of this version need every one,
/// and both databases have the same.
const FILES: [File; 20] = [
    (
        MigrationDialect::Postgres,
        "2026-11-21-000001_solid_queue",
        include_str!("../../migrations/postgres/2026-11-21-000001_solid_queue/up.sql"),
        include_str!("../../migrations/postgres/2026-11-21-000001_solid_queue/down.sql"),
    ),
    (
        MigrationDialect::Postgres,
        "2026-11-21-000002_windlass",
        include_str!("../../migrations/postgres/2026-11-21-000002_windlass/up.sql"),
        include_str!("../../migrations/postgres/2026-11-21-000002_windlass/down.sql"),
    ),
    (
        MigrationDialect::Postgres,
        "2026-11-21-000003_policies",
        include_str!("../../migrations/postgres/2026-11-21-000003_policies/up.sql"),
        include_str!("../../migrations/postgres/2026-11-21-000003_policies/down.sql"),
    ),
    (
        MigrationDialect::Postgres,
        "2026-11-21-000005_names",
        include_str!("../../migrations/postgres/2026-11-21-000005_names/up.sql"),
        include_str!("../../migrations/postgres/2026-11-21-000005_names/down.sql"),
    ),
    (
        MigrationDialect::Postgres,
        "2026-11-21-000006_speed",
        include_str!("../../migrations/postgres/2026-11-21-000006_speed/up.sql"),
        include_str!("../../migrations/postgres/2026-11-21-000006_speed/down.sql"),
    ),
    (
        MigrationDialect::Postgres,
        "2026-11-21-000007_recurring",
        include_str!("../../migrations/postgres/2026-11-21-000007_recurring/up.sql"),
        include_str!("../../migrations/postgres/2026-11-21-000007_recurring/down.sql"),
    ),
    (
        MigrationDialect::Postgres,
        "2026-11-21-000008_pauses",
        include_str!("../../migrations/postgres/2026-11-21-000008_pauses/up.sql"),
        include_str!("../../migrations/postgres/2026-11-21-000008_pauses/down.sql"),
    ),
    (
        MigrationDialect::Postgres,
        "2026-11-21-000009_concurrency",
        include_str!("../../migrations/postgres/2026-11-21-000009_concurrency/up.sql"),
        include_str!("../../migrations/postgres/2026-11-21-000009_concurrency/down.sql"),
    ),
    (
        MigrationDialect::Postgres,
        "2026-11-21-000010_cheaper_ends",
        include_str!("../../migrations/postgres/2026-11-21-000010_cheaper_ends/up.sql"),
        include_str!("../../migrations/postgres/2026-11-21-000010_cheaper_ends/down.sql"),
    ),
    (
        MigrationDialect::Postgres,
        "2026-11-21-000013_classes",
        include_str!("../../migrations/postgres/2026-11-21-000013_classes/up.sql"),
        include_str!("../../migrations/postgres/2026-11-21-000013_classes/down.sql"),
    ),
    (
        MigrationDialect::Sqlite,
        "2026-11-21-000001_solid_queue",
        include_str!("../../migrations/sqlite/2026-11-21-000001_solid_queue/up.sql"),
        include_str!("../../migrations/sqlite/2026-11-21-000001_solid_queue/down.sql"),
    ),
    (
        MigrationDialect::Sqlite,
        "2026-11-21-000002_windlass",
        include_str!("../../migrations/sqlite/2026-11-21-000002_windlass/up.sql"),
        include_str!("../../migrations/sqlite/2026-11-21-000002_windlass/down.sql"),
    ),
    (
        MigrationDialect::Sqlite,
        "2026-11-21-000003_policies",
        include_str!("../../migrations/sqlite/2026-11-21-000003_policies/up.sql"),
        include_str!("../../migrations/sqlite/2026-11-21-000003_policies/down.sql"),
    ),
    (
        MigrationDialect::Sqlite,
        "2026-11-21-000005_names",
        include_str!("../../migrations/sqlite/2026-11-21-000005_names/up.sql"),
        include_str!("../../migrations/sqlite/2026-11-21-000005_names/down.sql"),
    ),
    (
        MigrationDialect::Sqlite,
        "2026-11-21-000006_speed",
        include_str!("../../migrations/sqlite/2026-11-21-000006_speed/up.sql"),
        include_str!("../../migrations/sqlite/2026-11-21-000006_speed/down.sql"),
    ),
    (
        MigrationDialect::Sqlite,
        "2026-11-21-000007_recurring",
        include_str!("../../migrations/sqlite/2026-11-21-000007_recurring/up.sql"),
        include_str!("../../migrations/sqlite/2026-11-21-000007_recurring/down.sql"),
    ),
    (
        MigrationDialect::Sqlite,
        "2026-11-21-000008_pauses",
        include_str!("../../migrations/sqlite/2026-11-21-000008_pauses/up.sql"),
        include_str!("../../migrations/sqlite/2026-11-21-000008_pauses/down.sql"),
    ),
    (
        MigrationDialect::Sqlite,
        "2026-11-21-000009_concurrency",
        include_str!("../../migrations/sqlite/2026-11-21-000009_concurrency/up.sql"),
        include_str!("../../migrations/sqlite/2026-11-21-000009_concurrency/down.sql"),
    ),
    (
        MigrationDialect::Sqlite,
        "2026-11-21-000010_cheaper_ends",
        include_str!("../../migrations/sqlite/2026-11-21-000010_cheaper_ends/up.sql"),
        include_str!("../../migrations/sqlite/2026-11-21-000010_cheaper_ends/down.sql"),
    ),
    (
        MigrationDialect::Sqlite,
        "2026-11-21-000013_classes",
        include_str!("../../migrations/sqlite/2026-11-21-000013_classes/up.sql"),
        include_str!("../../migrations/sqlite/2026-11-21-000013_classes/down.sql"),
    ),
];

/// The versions that this program would apply to a database of this kind.
pub(super) fn versions(dialect: MigrationDialect) -> Vec<String> {
    let files = FILES.iter().filter(|file| file.0 == dialect);
    // Diesel takes a directory's name up to the first `_`, without the `-`.
    files
        .map(|(_, name, ..)| name.split('_').next().unwrap_or(name).replace('-', ""))
        .collect()
}

/// The indexes that the migrations leave behind, each with its table.
pub(super) fn indexes(dialect: MigrationDialect) -> Vec<(String, String)> {
    let mut indexes: Vec<(String, String)> = Vec::new();
    let files = FILES.iter().filter(|file| file.0 == dialect);
    for statement in files.flat_map(|(_, _, up, _)| up.split(';')) {
        let lines = statement
            .lines()
            .filter(|line| !line.trim_start().starts_with("--"));
        let words: Vec<&str> = lines.flat_map(str::split_whitespace).collect();
        let words: Vec<&str> = words
            .into_iter()
            .filter(|word| !["UNIQUE", "IF", "NOT", "EXISTS"].contains(word))
            .collect();
        match words[..] {
            ["CREATE", "INDEX", index, "ON", table, ..] => {
                indexes.push((index.to_owned(), table.to_owned()));
            }
            ["DROP", "INDEX", index, ..] => indexes.retain(|(name, _)| name != index),
            _ => {}
        }
    }
    indexes
}

/// Writes the migrations into the application's own `directory`, for those
/// who run theirs with Diesel's tools, and returns the directories made.
/// Those that exist are left as they are.
///
/// # Errors
/// When a file cannot be written.
pub fn copy(dialect: MigrationDialect, directory: &Path) -> Result<Vec<PathBuf>> {
    let mut copies = copy_all(dialect, directory)?;
    copies.retain(|copied| copied.outcome == Outcome::Written);
    Ok(copies.into_iter().map(|copied| copied.directory).collect())
}

/// One migration of a [`copy_all`].
#[derive(Debug, serde::Serialize)]
pub(crate) struct Copied {
    pub(crate) directory: PathBuf,
    pub(crate) outcome: Outcome,
}

/// What became of its files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Outcome {
    Written,
    /// They were there.
    Kept,
    /// They were there and are others: edited, of another version or for the
    /// other database.
    Differs,
}

/// Like [`copy`], and tells of what existed.
pub(crate) fn copy_all(dialect: MigrationDialect, directory: &Path) -> Result<Vec<Copied>> {
    let files = FILES.iter().filter(|file| file.0 == dialect);
    files
        .map(|(_, name, up, down)| {
            let directory = directory.join(name);
            let outcome = if !directory.exists() {
                write(&directory, &[("up.sql", up), ("down.sql", down)])?;
                Outcome::Written
            } else if std::fs::read(directory.join("up.sql"))
                .is_ok_and(|text| text == up.as_bytes())
            {
                Outcome::Kept
            } else {
                Outcome::Differs
            };
            Ok(Copied { directory, outcome })
        })
        .collect()
}

fn write(directory: &Path, files: &[(&str, &str)]) -> Result<()> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| Error::Io {
            action: "write",
            path,
            source,
        }
    };
    std::fs::create_dir_all(directory).map_err(failed(directory))?;
    for (name, text) in files {
        let path = directory.join(name);
        std::fs::write(&path, text).map_err(failed(&path))?;
    }
    Ok(())
}
