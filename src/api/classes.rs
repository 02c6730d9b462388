//! Classes of jobs: as `windlass classes` pauses and resumes them.
//!
//! ```
//! # use diesel::prelude::*;
//! # let mut conn = SqliteConnection::establish(":memory:").unwrap();
//! # windlass::migrate(&mut conn).unwrap();
//! use windlass::classes;
//!
//! classes::pause(&mut conn, "send_invoice", "ada", "wrong amounts")?; // no worker starts such a job
//! assert_eq!(classes::paused(&mut conn)?[0].class_name, "send_invoice");
//! assert!(classes::resume(&mut conn, "send_invoice")?);
//!
//! assert!(!classes::strict(&mut conn)?); // unknown names are accepted
//! # Ok::<(), windlass::Error>(())
//! ```

pub use crate::admin::classes::{
    pause_class as pause, paused_classes as paused, resume_class as resume,
    strict_classes as strict,
};
pub use crate::db::table::run_time::PausedClass;
