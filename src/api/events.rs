//! Events that jobs wait for: as `windlass events` emits them.
//!
//! [`Context::wait_event`](crate::Context::wait_event) waits for one. The events of processes, for hooks and metrics,
//! are [`Event`](crate::Event).
//!
//! ```
//! # use diesel::prelude::*;
//! # let mut conn = SqliteConnection::establish(":memory:").unwrap();
//! # windlass::migrate(&mut conn).unwrap();
//! use windlass::events;
//!
//! events::emit(&mut conn, "order/7/paid", &42)?; // the job that waits for it runs again
//! # Ok::<(), windlass::Error>(())
//! ```

pub use crate::flow::waits::{emit, max_payload};
