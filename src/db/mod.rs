//! Everything that knows SQL: one file a table, one function a transition.
//!
//! No threads, no settings and no log lines here. Due times are judged by the
//! database's clock (`{now}` in the statements), never by a host's.
//!
//! Lock order of every transaction, ascending within a table:
//! processes, claimed, scheduled, ready, failed, jobs, and last the tables
//! `windlass_*`. Concurrency keys are locked by promotions alone, which are
//! transactions of their own and lock them first of all, ascending; blocked
//! executions come after scheduled ones. Steps that skip locked rows never wait
//! and may come out of order, and a ready execution is inserted after its job has
//! changed. Whoever enqueues jobs with unique ids locks those
//! first of all; see `unique`. A recurring task is locked before the
//! job that it enqueues, which nobody else can know yet.

pub(crate) mod conn;
pub(crate) mod model;
pub(crate) mod query;
pub(crate) mod schema;
pub(crate) mod table;
pub(crate) mod test_support;
pub(crate) mod transition;

pub(crate) use conn::connection::own;
pub(crate) use conn::connection::{AsConn, Conn};
pub(crate) use conn::database::Database;
pub(crate) use conn::owned::DbConnection;
#[cfg(not(feature = "postgres"))]
pub(crate) use conn::owned::Session;
#[cfg(feature = "postgres")]
pub(crate) use conn::postgres::Session;
pub(crate) use conn::settings::{ping, prefer_indexes};
pub(crate) use conn::sqlite_file::{FileId, Refusal};
pub(crate) use conn::typed::Typed;
#[cfg(feature = "cli")]
pub(crate) use query::connection_limit::{Room, room};
pub(crate) use test_support::database::TestDatabase;
pub(crate) use transition::briefly::briefly;

#[cfg(test)]
#[cfg(feature = "internal-tests")]
#[path = "../../tests/internal/mod.rs"]
mod internal_tests;
#[cfg(test)]
#[cfg(feature = "internal-tests")]
#[path = "../../tests/internal/plans/mod.rs"]
mod plans;
