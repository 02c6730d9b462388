//! Limits of concurrency keys: as `windlass limits` sets them while programs run, and the slots that jobs hold; and the
//! [rates](Rate) at which jobs start, in code and while programs run.
//!
//! [`Concurrency`](crate::Concurrency) is the limit that a type of jobs has in its code.
//!
//! ```
//! # use diesel::prelude::*;
//! # let mut conn = SqliteConnection::establish(":memory:").unwrap();
//! # windlass::migrate(&mut conn).unwrap();
//! use windlass::limits::{self, LimitConflict};
//! use windlass::{Concurrency, NewJob};
//!
//! let one = Concurrency::new(7).group("import").on_conflict(LimitConflict::Block);
//! NewJob::of_class("import", "{}").concurrency(one).enqueue(&mut conn)?;
//! let semaphore = &limits::semaphores(&mut conn)?[0];
//! assert_eq!(semaphore.key, "import/7");
//! assert!(limits::check_semaphores(&mut conn)?.is_empty(), "no slot is lost");
//!
//! limits::set(&mut conn, "import/*", 3, "ada", "the new disk is fast")?;
//! assert_eq!(limits::list(&mut conn)?[0].slots, Some(3));
//! assert!(limits::clear(&mut conn, "import/*")?);
//! # Ok::<(), windlass::Error>(())
//! ```

pub use crate::admin::limits::{
    clear_limit as clear, clear_rate, limits as list, rates, reopen, set_limit as set, set_rate,
};
pub use crate::db::table::rates::{RateStatus, StartRate};
pub use crate::db::table::run_time::limits::RunTimeLimit;
pub use crate::db::table::semaphores::SemaphoreStatus;
pub use crate::job::concurrency::{LimitConflict, check_semaphores, semaphores};
pub use crate::job::rate::Rate;
