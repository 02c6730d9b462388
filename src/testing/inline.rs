//! Performing jobs when they are enqueued.

use crate::db::conn::connection::sealed::Sealed;
use crate::db::{AsConn, Conn, TestDatabase};
use crate::error::Result;
use crate::job::registry::Registry;
use crate::testing::drained::Drained;
use crate::testing::options::Drain;
use std::mem;

/// A test's database in inline mode: what is enqueued on it is performed immediately.
///
/// An enqueue on it ([`Job::enqueue`](crate::Job::enqueue), [`NewJob::enqueue`](crate::NewJob::enqueue)
/// or [`enqueue_all`](crate::enqueue_all)) returns after the job has run, on the same thread, with
/// everything else that was ready and what these jobs enqueued themselves. Jobs for later stay. An
/// error of a job is no error of the enqueue: see [`drained`](Self::drained).
///
/// The mode ends when this is dropped. It is in effect for code that receives this value, as
/// `&mut impl AsConn`. Code that needs Diesel's own connection type gets it from
/// [`as_conn`](AsConn::as_conn), and what it enqueues is performed with the next enqueue or by
/// [`drain`](Self::drain).
///
/// ```
/// # use serde::{Deserialize, Serialize};
/// # use windlass::{Context, Job, JobResult, Registry};
/// # #[derive(Serialize, Deserialize)] struct Import;
/// # impl Job for Import {
/// #     const NAME: &'static str = "import";
/// #     type State = (); type Output = ();
/// #     fn perform(self, _: &Context<'_, ()>) -> JobResult { Ok(()) }
/// # }
/// use windlass::testing::TestDatabase;
///
/// let mut db = TestDatabase::in_memory()?;
/// let registry = Registry::new().register::<Import>(());
/// let mut inline = db.inline(&registry);
/// Import.enqueue(&mut inline)?; // performed here
/// inline.drained().assert_all_finished(1);
/// # Ok::<(), windlass::Error>(())
/// ```
#[derive(Debug)]
pub struct Inline<'a> {
    db: &'a mut TestDatabase,
    drain: Drain<'a>,
    drained: Drained,
}

impl TestDatabase {
    /// Switches the inline mode on, until the returned value is dropped. See [`Inline`].
    pub fn inline<'a>(&'a mut self, registry: &'a Registry) -> Inline<'a> {
        Drain::new(registry).inline(self)
    }
}

impl<'a> Drain<'a> {
    /// Switches the inline mode on with these options, until the returned value is dropped.
    ///
    /// [`at_most`](Self::at_most) applies to each enqueue.
    pub fn inline(self, db: &'a mut TestDatabase) -> Inline<'a> {
        Inline {
            db,
            drain: self,
            drained: Drained::default(),
        }
    }
}

impl Inline<'_> {
    /// Returns all runs since the inline mode was switched on.
    pub fn drained(&self) -> &Drained {
        &self.drained
    }

    /// Performs what is ready and was not enqueued on this value.
    ///
    /// # Errors
    /// As for [`TestDatabase::drain`].
    ///
    /// # Panics
    /// As for [`TestDatabase::drain`].
    pub fn drain(&mut self) -> Result<()> {
        let had_reached = mem::replace(&mut self.db.has_reached_fault, false);
        let drained = self.drain.run(self.db)?;
        if self.db.has_reached_fault {
            self.drain.forget_fault();
        }
        self.db.has_reached_fault |= had_reached;
        self.drained.runs.extend(drained.runs);
        Ok(())
    }
}

impl Sealed for Inline<'_> {
    fn after_enqueue(&mut self) -> Result<()> {
        self.drain()
    }
}

impl AsConn for Inline<'_> {
    fn as_conn(&mut self) -> Conn<'_> {
        self.db.as_conn()
    }
}
