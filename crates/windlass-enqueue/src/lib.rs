//! Enqueues background jobs of Windlass from any program, in its own transaction, through the driver that it uses.
//!
//! TODO
#![cfg_attr(docsrs, feature(doc_cfg))]

mod args;
mod column;
mod concurrency;
mod new_job;
mod policy;
mod statement;
#[cfg(test)]
mod tests;
mod time;

pub use args::{Error, JobArgs};
pub use concurrency::{Concurrency, LimitConflict};
pub use new_job::NewJob;
pub use policy::{Backoff, Delivery, OnConflict, Policy, UniqueScope};
pub use statement::{Database, Insert, Statement, statements_for_all};

#[cfg(any(feature = "diesel", feature = "diesel-async"))]
pub mod diesel;
#[cfg(feature = "diesel-async")]
pub mod diesel_async;
#[cfg(feature = "rusqlite")]
pub mod rusqlite;
#[cfg(feature = "sqlx-0_8")]
pub mod sqlx_0_8;
#[cfg(feature = "sqlx-0_9")]
pub mod sqlx_0_9;
#[cfg(feature = "tokio-postgres")]
pub mod tokio_postgres;
