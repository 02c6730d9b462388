//! Parts of [`Error`](crate::Error): the reasons why tables, a job or settings were refused.
//!
//! ```
//! # use diesel::prelude::*;
//! # let mut conn = SqliteConnection::establish(":memory:").unwrap();
//! # windlass::migrate(&mut conn).unwrap();
//! use windlass::errors::EditRefusal;
//! use windlass::{Error, NewJob, jobs};
//!
//! let job = NewJob::of_class("import", "{}").enqueue(&mut conn)?.id;
//! jobs::cancel(&mut conn, job)?;
//! match jobs::edit_arguments(&mut conn, job, r#"{"file":"b.csv"}"#, None) {
//!     Err(Error::Edit { reason: EditRefusal::Ended, .. }) => println!("it was too late"),
//!     other => panic!("{other:?}"),
//! }
//! # Ok::<(), windlass::Error>(())
//! ```

pub use crate::error::{EditRefusal, Problem, SchemaError};
