//! The migrations that make the tables, and adding what a database lacks.

pub(crate) mod beside_rails;
pub(crate) mod compare;
pub(crate) mod functions;
pub(crate) mod items;
pub(crate) mod migrate;
#[cfg(feature = "postgres")]
pub(crate) mod migrate_postgres;
#[cfg(feature = "sqlite")]
pub(crate) mod migrate_sqlite;
pub(crate) mod migrations;
pub(crate) mod plan;
