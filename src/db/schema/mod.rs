//! The tables: their columns, the migrations that make them, and adding what a database lacks.

pub(crate) mod action;
pub(crate) mod beside_rails;
pub(crate) mod catalog;
pub(crate) mod column;
pub(crate) mod compare;
pub(crate) mod declared;
pub(crate) mod fresh;
pub(crate) mod migrate;
#[cfg(feature = "postgres")]
pub(crate) mod migrate_postgres;
#[cfg(feature = "sqlite")]
pub(crate) mod migrate_sqlite;
pub(crate) mod migration_files;
pub(crate) mod migrations;
pub(crate) mod plan;
pub(crate) mod postgres;
#[cfg(feature = "postgres")]
pub(crate) mod postgres_locks;
pub(crate) mod reference;
pub(crate) mod tables;
pub(crate) mod tables_audit;
pub(crate) mod tables_solid_queue;
pub(crate) mod tables_web;
