//! Queues: as `windlass queues` lists, pauses, resumes and clears them.
//!
//! ```
//! # use diesel::prelude::*;
//! # let mut conn = SqliteConnection::establish(":memory:").unwrap();
//! # windlass::migrate(&mut conn).unwrap();
//! use windlass::{NewJob, queues};
//!
//! NewJob::of_class("send", "{}").queue("mail").enqueue(&mut conn)?;
//! assert_eq!(queues::size(&mut conn, "mail")?, 1);
//! assert!(queues::latency(&mut conn, "mail")?.is_some());
//!
//! queues::pause(&mut conn, "mail", "ada", "the provider is down")?;
//! let mail = &queues::list(&mut conn)?[0];
//! assert_eq!((mail.paused, mail.ready), (true, 1));
//! queues::resume(&mut conn, "mail")?;
//! assert_eq!(queues::clear(&mut conn, "mail")?, 1);
//! # Ok::<(), windlass::Error>(())
//! ```

pub use crate::admin::queues::{
    clear_queue as clear, pause_queue as pause, queue_latency as latency, queue_size as size,
    queues as list, resume_queue as resume,
};
pub use crate::db::query::status::QueueStatus;
pub use crate::queue::QueueSelector;
