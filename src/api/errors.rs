//! Parts of [`Error`](crate::Error): the reasons why tables, a job or settings were refused.
//!
//! ```
//! # use diesel::prelude::*;
//! use windlass::errors::SchemaError;
//! use windlass::{Error, NewJob};
//!
//! let mut conn = SqliteConnection::establish(":memory:").unwrap(); // without tables
//! match NewJob::of_class("import", "{}").enqueue(&mut conn) {
//!     Err(Error::Schema(SchemaError::Missing { .. })) => println!("run `windlass migrate`"),
//!     other => panic!("{other:?}"),
//! }
//! # Ok::<(), windlass::Error>(())
//! ```

pub use crate::error::{EditRefusal, Problem, SchemaError};
