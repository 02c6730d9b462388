//! Helpers for tests of applications: inspect enqueued jobs, perform them immediately, and advance
//! time.
//!
//! These helpers start no threads (except for a [frozen](Fault::Frozen) run), do not wait and need no
//! files. Each test has its own database: a
//! [`TestDatabase`], or an application's connection within Diesel's `test_transaction`.
//!
//! ```
//! # use serde::{Deserialize, Serialize};
//! # use windlass::{Context, Job, JobResult, NewJob, Registry};
//! use std::time::Duration;
//! use windlass::testing::{self, TestDatabase};
//!
//! #[derive(Serialize, Deserialize)]
//! struct SendWelcome { email: String }
//!
//! #[derive(Serialize, Deserialize)]
//! struct Remind { email: String }
//!
//! impl Job for SendWelcome {
//!     const NAME: &'static str = "send_welcome";
//!     type State = ();
//!     type Output = ();
//!     fn perform(self, cx: &Context<'_, ()>) -> JobResult {
//!         let remind = NewJob::new(&Remind { email: self.email })?;
//!         remind.after(Duration::from_secs(86_400)).enqueue(&mut cx.connection()?)?;
//!         Ok(())
//!     }
//! }
//! # impl Job for Remind {
//! #     const NAME: &'static str = "remind";
//! #     type State = (); type Output = ();
//! #     fn perform(self, _: &Context<'_, ()>) -> JobResult { Ok(()) }
//! # }
//!
//! let mut db = TestDatabase::in_memory()?;
//! let registry = Registry::new().register::<SendWelcome>(()).register::<Remind>(());
//!
//! SendWelcome { email: "ada@example.com".into() }.enqueue(&mut db)?; // the code under test
//!
//! let job = testing::assert_enqueued::<SendWelcome>(&mut db);
//! assert_eq!((job.queue_name.as_str(), job.arguments.email.as_str()), ("default", "ada@example.com"));
//!
//! db.drain(&registry)?.assert_all_finished(1);
//! let remind = testing::assert_enqueued::<Remind>(&mut db);
//! assert!(remind.wait > Duration::from_secs(86_000));
//!
//! testing::travel(&mut db, Duration::from_secs(86_400))?;
//! db.drain(&registry)?.assert_all_finished(1);
//! testing::assert_not_enqueued::<Remind>(&mut db);
//! # Ok::<(), windlass::Error>(())
//! ```
//!
//! [`Drain`] has options, [`Inline`] performs jobs when they are enqueued, and [`for_each_fault`]
//! finds jobs that are not idempotent.
//!
//! Tests of process behaviour (heartbeats, signals, stops) need real processes: start a
//! [`Worker`](crate::Worker) on a separate database.

pub(crate) mod drain;
pub(crate) mod drained;
pub(crate) mod draining;
pub(crate) mod fault;
pub(crate) mod inline;

use crate::db::{AsConn, test_support as rows};
use crate::error::{ErrorContext, Result};
use crate::process::upkeep::sweep;
use std::time::Duration;

pub use crate::db::test_support::TestDatabase;
pub use crate::testing::drain::{perform, perform_by};
pub use crate::testing::drained::{
    EnqueuedJob, assert_enqueued, assert_not_enqueued, enqueued, enqueued_any,
};
pub use crate::testing::fault::for_each_fault;
pub use crate::testing::inline::{Drain, drain};
pub use drained::{Drained, Performed, RunOutcome};
pub use fault::{Fault, FaultPoint};
pub use inline::Inline;

/// Advances time by `by`, as far as the tables are concerned.
///
/// All stored times move into the past by this much. A job scheduled in an hour is due after
/// `travel(conn, hour)`, and the latency of a queue grows by an hour.
///
/// The database's clock does not change. So a job enqueued afterwards waits for its full delay, and
/// a test may compute future times from any clock. Times in arguments and priorities do not change
/// either.
///
/// ```
/// use std::time::Duration;
/// use windlass::testing::{self, TestDatabase};
/// use windlass::{NewJob, queues};
///
/// let mut db = TestDatabase::in_memory()?;
/// NewJob::of_class("remind", "{}").enqueue(&mut db)?;
/// testing::travel(&mut db, Duration::from_secs(3600))?;
/// assert!(queues::latency(&mut db, "default")? >= Some(Duration::from_secs(3600)));
/// # Ok::<(), windlass::Error>(())
/// ```
///
/// # Errors
/// If the database does not answer or has no tables.
pub fn travel<C: AsConn + ?Sized>(conn: &mut C, by: Duration) -> Result<()> {
    let conn = &mut conn.as_conn();
    // The starts until now were before that time.
    if rows::count_starts(conn).during("count the starts of rates")? {
        sweep::promote_all(conn).during("promote blocked jobs")?;
    }
    rows::travel(conn, by).during("let time pass")
}
