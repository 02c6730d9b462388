//! Batches that were enqueued: as `windlass batches` shows, cancels and retries them.
//!
//! [`Batch`](crate::Batch) makes one, and its [`BatchId`](crate::BatchId) has the methods for that one.
//!
//! ```
//! # use diesel::prelude::*;
//! # let mut conn = SqliteConnection::establish(":memory:").unwrap();
//! # windlass::migrate(&mut conn).unwrap();
//! use windlass::batches::{self, BatchFilter};
//! use windlass::{Batch, NewJob};
//!
//! let import = Batch::new("import").add([NewJob::of_class("import", "{}")]).enqueue(&mut conn)?;
//! let open = batches::list(&mut conn, BatchFilter::Open, None, 20)?;
//! assert_eq!((open[0].id, open[0].total), (import.id, 1));
//! assert!(!import.id.status(&mut conn)?.is_over());
//!
//! assert_eq!(import.id.cancel(&mut conn)?.changed, 1);
//! let details = import.id.details(&mut conn)?; // the batch, what follows it, and its first failures
//! assert_eq!(details.failed.len(), 1);
//! # Ok::<(), windlass::Error>(())
//! ```

pub use crate::admin::batches::{
    BatchDetails, BatchFilter, BatchFollower, BatchState, BatchSummary, FailedOfBatch,
    FollowerState, batches as list,
};
pub use crate::flow::batch::{BatchStatus, EnqueuedBatch};
