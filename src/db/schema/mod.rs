//! The migrations that make the tables, and adding what a database lacks.

pub mod beside_rails;
pub mod compare;
pub(crate) mod functions;
pub(crate) mod items;
pub mod migrate;
#[cfg(feature = "postgres")]
pub(crate) mod migrate_postgres;
#[cfg(feature = "sqlite")]
pub(crate) mod migrate_sqlite;
pub mod migrations;
pub mod plan;
