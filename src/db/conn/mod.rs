//! Connections: addresses, pools, deadlines, transactions, statements and wake-up. No table is
//! named here.

pub(crate) mod address;
pub(crate) mod connection;
pub(crate) mod database;
pub(crate) mod dialect;
pub(crate) mod listening;
pub(crate) mod owned;
pub(crate) mod pooled;
pub(crate) mod pooling;
#[cfg(feature = "postgres")]
pub(crate) mod postgres;
#[cfg(any(feature = "top", feature = "web"))]
#[cfg_attr(
    not(feature = "web"),
    allow(dead_code, reason = "the pages use the rest")
)]
pub(crate) mod reading;
#[cfg(feature = "sqlite")]
pub(crate) mod sqlite;
pub(crate) mod sqlite_file;
pub(crate) mod statement;
#[cfg_attr(not(feature = "sqlite"), allow(dead_code))]
pub(crate) mod turns;
pub(crate) mod typed;
#[cfg(feature = "postgres")]
pub(crate) mod wakeup_postgres;
#[cfg(feature = "sqlite")]
pub(crate) mod wakeup_sqlite;
