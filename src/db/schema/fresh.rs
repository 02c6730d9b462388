//! Creates the tables in a database without any of them: Diesel runs the migrations unchanged.
//! Windlass has its own version table, as Diesel's harness would share `__diesel_schema_migrations`
//! with the application.

use crate::db::conn::connection::Conn;
use crate::db::schema::compare::explain;
use crate::error::{Error, Result};
use diesel::backend::Backend;
use diesel::connection::BoxableConnection;
use diesel::migration::{Migration, MigrationSource};
use diesel_migrations::{EmbeddedMigrations, embed_migrations};

#[cfg(feature = "postgres")]
const POSTGRES: EmbeddedMigrations = embed_migrations!("migrations/postgres");

#[cfg(feature = "sqlite")]
const SQLITE: EmbeddedMigrations = embed_migrations!("migrations/sqlite");

/// Runs all migrations in one transaction.
pub(crate) fn run(conn: &mut Conn<'_>) -> Result<()> {
    conn.transaction(|conn| match conn {
        #[cfg(feature = "postgres")]
        Conn::Postgres(conn) => each(*conn, &POSTGRES),
        #[cfg(feature = "sqlite")]
        Conn::Sqlite(conn) => each(*conn, &SQLITE),
    })
}

fn each<C, DB>(conn: &mut C, source: &impl MigrationSource<DB>) -> Result<()>
where
    DB: Backend,
    C: BoxableConnection<DB>,
{
    let failed = |version: &str, reason: String| Error::Migration {
        version: version.to_owned(),
        reason: explain(reason),
    };
    let mut migrations: Vec<Box<dyn Migration<DB>>> = source
        .migrations()
        .map_err(|error| failed("list", error.to_string()))?;
    migrations.sort_by_key(|migration| migration.name().version().to_string());
    for migration in migrations {
        let version = migration.name().version().to_string();
        let ran = migration.run(conn);
        ran.map_err(|error| failed(&version, error.to_string()))?;
    }
    Ok(())
}
