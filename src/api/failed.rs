//! Failed jobs: as `windlass failed` groups, retries and discards them.
//!
//! [`Jobs::failed`](crate::jobs::Jobs::failed) selects them.
//!
//! ```
//! # use diesel::prelude::*;
//! # let mut conn = SqliteConnection::establish(":memory:").unwrap();
//! # windlass::migrate(&mut conn).unwrap();
//! use windlass::failed;
//! use windlass::jobs::{Change, Jobs};
//!
//! for group in failed::groups(&mut conn, 20)?.groups {
//!     println!("{} jobs of {}: {}", group.count, group.class_name, group.shape);
//!     let jobs = Jobs::failed().fingerprint(group.fingerprint);
//!     jobs.change(&mut conn, Change::Retry { even_at_most_once: false })?;
//! }
//! # Ok::<(), windlass::Error>(())
//! ```

pub use crate::admin::groups::{FailedGroup, FailedGroups, failed_groups as groups};
pub use crate::admin::rate::RetryRate;
