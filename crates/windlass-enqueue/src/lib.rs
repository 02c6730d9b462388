//! Enqueues background jobs of Windlass from any program, in its own transaction, through the driver that it uses.
//!
//! ```rust,ignore
//! use serde::{Deserialize, Serialize};
//! use windlass_enqueue::{JobArgs, NewJob, sqlx_0_9::enqueue};
//!
//! #[derive(Serialize, Deserialize)]
//! struct SendInvoice { order: i64 }
//!
//! impl JobArgs for SendInvoice {
//!     const NAME: &'static str = "send_invoice";
//! }
//!
//! let mut transaction = pool.begin().await?;
//! sqlx::query("INSERT INTO orders (id) VALUES (7)").execute(&mut *transaction).await?;
//! let id = enqueue(&mut *transaction, &NewJob::new(&SendInvoice { order: 7 })?).await?;
//! transaction.commit().await?; // A rollback leaves no job.
//! ```
//!
//! The tables are those that `windlass migrate` creates, in Postgres or SQLite. A worker, which links the crate
//! [`windlass`](https://docs.rs/windlass), runs the job. This crate links neither Windlass nor a database: a web service
//! that enqueues stays as small and as async as it is.
//!
//! # Drivers
//!
//! Each driver is a feature with a module of its own. No driver is on by default.
//!
//! | feature | versions | databases |
//! |---|---|---|
//! | `sqlx-0_9`, `sqlx-0_8` | sqlx 0.9 (from Rust 1.94), 0.8 | Postgres, SQLite |
//! | `tokio-postgres` | 0.7.17 and later | Postgres |
//! | `rusqlite` | 0.31 to 0.43 | SQLite |
//! | `diesel` | 2.3 | Postgres, SQLite |
//! | `diesel-async` | 0.9 | Postgres, SQLite |
//!
//! The module of each has `enqueue` for one job, and `enqueue_all` for many: about one statement for 500 jobs of a class.
//! Both return the ids of the jobs. A job whose unique id or idempotency key is taken has the id of the existing job.
//!
//! Use [`NewJob::insert`] and [`statements_for_all`] with other drivers.
//!
//! On SQLite, link version 3.51.3 or later, such as that of sqlx 0.9 or rusqlite 0.39: older ones can lose a commit when
//! one process checkpoints while another writes.
//!
//! # Jobs
//!
//! - [`NewJob::new`] takes arguments of a type that implements [`JobArgs`]. Share these types with the worker.
//! - [`NewJob::of_class`] takes the name of a class and JSON. The queue, the priority and the policy are those of the
//!   class, once a worker has stored them.
//!
//! Set anything else by the methods of [`NewJob`], which have the names that they have in `windlass`.
//!
//! # Errors
//!
//! [`NewJob::new`] fails if the arguments are not JSON or too large. The database checks everything else, so a refused
//! job is an error of the driver, whose text names the value and the reason. On Postgres, such an error ends the
//! transaction: set a savepoint to continue.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod args;
mod concurrency;
mod new_job;
mod policy;
mod rate;
mod statement;
#[cfg(test)]
mod tests;
mod time;

pub use args::{Error, JobArgs};
pub use concurrency::{Concurrency, LimitConflict};
pub use new_job::NewJob;
pub use policy::{Backoff, Delivery, On, OnConflict, Policy, UniqueScope};
pub use rate::Rate;
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
