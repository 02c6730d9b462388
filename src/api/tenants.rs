//! Fair shares: the threads of a queue are shared between tenants, however many jobs each has enqueued.
//!
//! ```
//! # use diesel::prelude::*;
//! # let mut conn = SqliteConnection::establish(":memory:").unwrap();
//! # windlass::migrate(&mut conn).unwrap();
//! use windlass::NewJob;
//! use windlass::tenants::{self, ShareBy};
//!
//! tenants::share(&mut conn, "mail", ShareBy::Jobs)?;
//! tenants::set_weight(&mut conn, "mail", "acme", 3)?;
//! NewJob::of_class("send", "{}").queue("mail").tenant("acme").enqueue(&mut conn)?;
//! let acme = &tenants::list(&mut conn, "mail")?[0];
//! assert_eq!((&*acme.tenant, acme.weight), ("acme", 3));
//! # Ok::<(), windlass::Error>(())
//! ```

pub use crate::admin::tenants::{list, queues, set_weight, share, unshare};
pub use crate::db::table::shares::{FairQueue, ShareBy, TenantStatus};
