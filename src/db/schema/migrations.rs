//! The migrations, compiled in as text, and Windlass's own version table.
//!
//! Diesel's own harness would share `__diesel_schema_migrations` with the application, whose
//! `diesel migration revert` would then meet a version it does not know.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::Dialect;
use crate::db::conn::statement::Statement;
use crate::error::{Error, ErrorContext, Result, SchemaError};
use diesel::prelude::*;
use diesel::sql_types::{Bool, Text};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// A migration as text: `(dialect, directory, up.sql, down.sql)`.
type EmbeddedMigration = (Dialect, &'static str, &'static str, &'static str);

/// The migrations of these directories, for each database: `include_str!` takes literals only.
macro_rules! embedded {
    ($($name:literal,)+) => {
        &[
            $((
                Dialect::Postgres,
                $name,
                include_str!(concat!("../../../migrations/postgres/", $name, "/up.sql")),
                include_str!(concat!("../../../migrations/postgres/", $name, "/down.sql")),
            ),)+
            $((
                Dialect::Sqlite,
                $name,
                include_str!(concat!("../../../migrations/sqlite/", $name, "/up.sql")),
                include_str!(concat!("../../../migrations/sqlite/", $name, "/down.sql")),
            ),)+
        ]
    };
}

/// All migrations, in order. The statements of this version need every one, and both databases have
/// the same.
const FILES: &[EmbeddedMigration] = embedded![
    "2026-11-28-000001_solid_queue",
    "2026-11-28-000002_windlass",
];

#[derive(QueryableByName)]
struct VersionTable {
    #[diesel(sql_type = Bool)]
    found: bool,
    #[diesel(sql_type = Text)]
    database: String,
    #[diesel(sql_type = Text)]
    encoding: String,
}

#[derive(QueryableByName)]
struct AppliedVersion {
    #[diesel(sql_type = Text)]
    version: String,
}

/// Returns the versions of the migrations that were applied.
///
/// # Errors
/// Returns an error if the database cannot be read, cannot hold every text, or has the tables of a
/// version of Windlass that was never released.
pub fn applied(conn: &mut Conn<'_>) -> Result<BTreeSet<String>> {
    let text = match conn.dialect() {
        Dialect::Postgres => {
            "SELECT to_regclass('windlass_schema_migrations') IS NOT NULL AS found, \
             current_database()::text AS database, current_setting('server_encoding') AS encoding"
        }
        Dialect::Sqlite => {
            "SELECT count(*) > 0 AS found, 'UTF8' AS encoding, \
             (SELECT coalesce(nullif(file, ''), ':memory:') FROM pragma_database_list WHERE name = 'main') AS database \
             FROM sqlite_schema WHERE name = 'windlass_schema_migrations'"
        }
    };
    let VersionTable {
        found,
        database,
        encoding,
    } = Statement::new(text)
        .uncached()
        .get_result(conn)
        .during("look for the version table")?;
    // One text that it refuses would take others along, which are written with it.
    if encoding != "UTF8" {
        return Err(SchemaError::Encoding { database, encoding }.into());
    }
    if !found {
        return Ok(BTreeSet::new());
    }
    let versions: Vec<AppliedVersion> =
        Statement::new("SELECT version FROM windlass_schema_migrations")
            .uncached()
            .load(conn)
            .during("read the version table")?;
    let versions: BTreeSet<String> = versions.into_iter().map(|row| row.version).collect();
    let known = known();
    // A later version of Windlass has later ones.
    match versions.difference(&known).min() {
        Some(found) if Some(found) < known.last() => Err(SchemaError::Unreleased {
            database,
            found: found.clone(),
        }
        .into()),
        _ => Ok(versions),
    }
}

/// Returns the versions of all migrations.
pub fn known() -> BTreeSet<String> {
    FILES.iter().map(version).collect()
}

/// Returns the version as the version table has it: the digits at the start of the name.
fn version((_, directory, ..): &EmbeddedMigration) -> String {
    let number = directory.split('_').next().unwrap_or_default();
    number.replace('-', "")
}

/// Returns the migrations for this kind of database, in order: the version and the statements of
/// each.
pub(crate) fn texts(dialect: Dialect) -> Vec<(String, &'static str)> {
    let files = FILES.iter().filter(|file| file.0 == dialect);
    files.map(|file| (version(file), file.2)).collect()
}

/// Copies the migrations into the application's own `directory`, for use with Diesel's tools, and
/// returns the directories made. Existing ones are left as they are.
///
/// ```
/// use windlass::database::Dialect;
/// use windlass::schema;
///
/// # let dir = tempfile::tempdir().unwrap();
/// # let migrations = dir.path();
/// for directory in schema::copy_migrations(Dialect::Sqlite, migrations)? {
///     println!("{} was written", directory.display());
/// }
/// # Ok::<(), windlass::Error>(())
/// ```
///
/// # Errors
/// Returns an error if a file cannot be written.
pub fn copy(dialect: Dialect, directory: &Path) -> Result<Vec<PathBuf>> {
    let mut copies = copy_all(dialect, directory)?;
    copies.retain(|copied| copied.outcome == CopyOutcome::Written);
    Ok(copies.into_iter().map(|copied| copied.directory).collect())
}

/// One migration of a [`copy_all`].
#[doc(hidden)]
#[derive(Debug, serde::Serialize)]
pub struct Copied {
    pub directory: PathBuf,
    pub outcome: CopyOutcome,
}

/// The result of copying the files of one migration.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CopyOutcome {
    Written,
    /// They existed with the same content.
    Kept,
    /// They existed with other content: edited, of another version or for the other database.
    Differs,
}

/// Like [`copy`], and also returns the migrations whose files existed.
pub fn copy_all(dialect: Dialect, directory: &Path) -> Result<Vec<Copied>> {
    let files = FILES.iter().filter(|file| file.0 == dialect);
    files
        .map(|(_, name, up, down)| {
            let directory = directory.join(name);
            let outcome = if !directory.exists() {
                write(&directory, &[("up.sql", up), ("down.sql", down)])?;
                CopyOutcome::Written
            } else if std::fs::read(directory.join("up.sql"))
                .is_ok_and(|text| text == up.as_bytes())
            {
                CopyOutcome::Kept
            } else {
                CopyOutcome::Differs
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
