//! Quotas of enqueues: as `windlass quotas` lists their use.
//!
//! ```
//! # use diesel::prelude::*;
//! # let mut conn = SqliteConnection::establish(":memory:").unwrap();
//! # windlass::migrate(&mut conn).unwrap();
//! use windlass::{NewJob, Quota, quotas};
//!
//! let mail = Quota::named("mail").per_minute(100);
//! NewJob::of_class("send", "{}").quota(mail).enqueue(&mut conn)?;
//! let used = &quotas::list(&mut conn)?[0];
//! assert_eq!((used.this_minute, used.most_per_minute), (1, Some(100)));
//! # Ok::<(), windlass::Error>(())
//! ```

pub use crate::job::policy::quota::{QuotaStatus, quotas as list};
