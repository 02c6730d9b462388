//! Connections: addresses, pools, deadlines, transactions, statements and wake-up. No table is
//! named here.

pub mod address;
pub mod connection;
pub mod database;
pub mod dialect;
pub mod listening;
pub(crate) mod owned;
mod places;
pub(crate) mod pooled;
pub mod pooling;
#[cfg(feature = "postgres")]
pub(crate) mod postgres;
pub mod reading;
#[cfg(feature = "sqlite")]
pub mod sqlite;
pub(crate) mod sqlite_file;
pub mod statement;
#[cfg_attr(not(feature = "sqlite"), allow(dead_code))]
pub mod turns;
pub mod typed;
#[cfg(feature = "postgres")]
pub(crate) mod wakeup_postgres;
#[cfg(feature = "sqlite")]
pub(crate) mod wakeup_sqlite;
