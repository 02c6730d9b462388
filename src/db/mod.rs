//! The only module with SQL: one file per table, one function per transition.
//!
//! It has no threads, no settings and no log lines. Due times are compared with the database's
//! clock (`{now}` in the statements), never with a host's.
//!
//! Lock order of every transaction, ascending by id within a table: processes, claimed, scheduled,
//! ready, failed, jobs, and last the tables `windlass_*`.
//!
//! - Blocked executions are locked after scheduled ones.
//! - Concurrency keys are locked only by promotions. These are transactions of their own, and lock
//!   the keys before anything else, without waiting.
//! - An enqueue with unique ids locks those before anything else; see `resolve_conflict`.
//! - A recurring task is locked before the job that it enqueues, which no other transaction can see
//!   yet.
//! - Steps that skip locked rows never wait, so they may break the order. A ready execution is
//!   inserted after its job has changed.

pub mod conn;
pub mod model;
pub mod query;
pub mod schema;
pub mod table;
pub(crate) mod test_support;
pub mod transition;

pub use crate::db::conn::database::{ping, prefer_indexes};
pub(crate) use crate::db::conn::turns::Precedence;
pub(crate) use crate::db::test_support::TestDatabase;
pub(crate) use crate::db::transition::pause::{LockWait, with_lock_wait};
pub use conn::connection::{AsConn, Conn, own};
pub use conn::database::Database;
pub use conn::owned::DbConnection;
#[cfg(not(feature = "postgres"))]
pub(crate) use conn::owned::ServerSession;
#[cfg(feature = "postgres")]
pub(crate) use conn::pooling::recognise::ServerSession;
pub use conn::sqlite_file::{FileId, Refusal};
pub(crate) use conn::typed::Typed;

#[cfg(test)]
#[cfg(feature = "internal-tests")]
#[path = "../../tests/internal/mod.rs"]
mod internal_tests;
#[cfg(test)]
#[cfg(feature = "internal-tests")]
#[path = "../../tests/internal/plans/mod.rs"]
mod plans;
