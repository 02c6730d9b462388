//! For the tests of applications: what was enqueued, performing it at once,
//! and letting time pass.
//!
//! Nothing here starts a thread, waits, or needs a file. Each test has a
//! database of its own: a [`TestDatabase`], or a connection of the
//! application's within `test_transaction` of Diesel.
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
//! SendWelcome { email: "ada@example.com".into() }.enqueue(&mut db)?; // what is tested
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
//! What depends on processes (crashes, heartbeats, signals) needs real ones:
//! start a [`Worker`](crate::Worker) on a database of its own for that.

pub(crate) mod drain;
pub(crate) mod enqueued;

use crate::db::AsConn;
use crate::db::test_support::travel as rows;
use crate::error::{Doing, Result};
use std::time::Duration;

pub use crate::db::test_support::database::TestDatabase;
pub use drain::{Drained, Fate, Performed, drain, perform};
pub use enqueued::{EnqueuedJob, assert_enqueued, assert_not_enqueued, enqueued, enqueued_any};

/// Lets so much time pass, as far as the tables are concerned.
///
/// Everything stored becomes so much older. What was to run in an hour is due after
/// `travel(conn, hour)`, and a queue has waited for an hour longer.
///
/// The database's clock is not touched, so times to come that a test computes
/// from it, or from its own clock, are as before: a job enqueued afterwards
/// waits for as long as it says. Times in arguments and priorities stay.
///
/// # Errors
/// When the database does not answer or has no tables.
pub fn travel<C: AsConn + ?Sized>(conn: &mut C, by: Duration) -> Result<()> {
    rows::travel(&mut conn.as_conn(), by).doing("let time pass")
}
