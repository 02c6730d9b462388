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
//! and may come out of order. Whoever enqueues jobs with unique ids locks those
//! first of all; see `unique`. A recurring task is locked before the
//! job that it enqueues, which nobody else can know yet.

mod address;
pub(crate) mod attempts;
#[cfg(feature = "cli")]
pub(crate) mod bench;
pub(crate) mod blocked;
mod bulk;
pub(crate) mod claimed;
pub(crate) mod classes;
pub(crate) mod clear;
pub(crate) mod completion;
mod conn;
mod database;
pub(crate) mod declared;
pub(crate) mod details;
pub(crate) mod doctor;
mod execution;
pub(crate) mod explain;
pub(crate) mod failed;
mod fatal;
mod finish;
mod foreign;
pub(crate) mod jobs;
pub(crate) mod migrations;
pub(crate) mod moves;
mod named;
pub(crate) mod names;
pub(crate) mod notes;
pub(crate) mod pauses;
#[cfg(test)]
#[cfg(feature = "internal-tests")]
#[path = "../../tests/internal/plans/mod.rs"]
mod plans;
pub(crate) mod processes;
pub(crate) mod pruned;
pub(crate) mod ranks;
pub(crate) mod ready;
pub(crate) mod recovery;
pub(crate) mod recurring;
pub(crate) mod results;
#[cfg(feature = "cli")]
mod room;
pub(crate) mod scheduled;
pub(crate) mod schema;
pub(crate) mod select;
pub(crate) mod semaphores;
mod sql;
pub(crate) mod status;
pub(crate) mod steps;
pub(crate) mod task;
pub(crate) mod test_bench;
pub(crate) mod ticks;
pub(crate) mod unique;
pub(crate) mod wakeup;

#[cfg(feature = "config")]
pub(crate) use address::without_secrets;
pub use conn::{AsConn, Conn};
pub(crate) use conn::{briefly, on, own, ping, prefer_indexes};
pub(crate) use database::Session;
#[cfg(feature = "postgres")]
pub use database::TypedPostgres;
#[cfg(feature = "sqlite")]
pub use database::TypedSqlite;
pub use database::{Database, DbBackend, DbConnection, TestDatabase, Typed};
#[cfg(feature = "postgres")]
pub(crate) use database::{arm, tagged};
pub(crate) use fatal::{FileId, Refusal};
#[cfg(feature = "cli")]
pub(crate) use room::{Room, room};

#[cfg(test)]
#[cfg(feature = "internal-tests")]
#[path = "../../tests/internal/mod.rs"]
mod internal_tests;
