//! Performing jobs when they are enqueued.

use crate::db::conn::connection::sealed::Sealed;
use crate::db::conn::owned::InlineMode;
use crate::db::{AsConn, Conn, Database, DbConnection, TestDatabase};
use crate::error::Result;
use crate::job::registry::Registry;
use crate::testing::drained::Drained;
use crate::testing::options::Drain;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A test's database in inline mode: what is enqueued on it is performed immediately.
///
/// An enqueue on it ([`Job::enqueue`](crate::Job::enqueue), [`NewJob::enqueue`](crate::NewJob::enqueue)
/// or [`enqueue_all`](crate::enqueue_all)) returns after the job has run, on the same thread, with
/// everything else that was ready and what these jobs enqueued themselves. Jobs for later stay. An
/// error of a job is no error of the enqueue: see [`drained`](Self::drained).
///
/// In a transaction of the code under test ([`windlass::transaction`](crate::transaction()) or
/// [`DbConnection::transaction`]), the jobs run after the commit of the outermost one, and not at all
/// after a rollback.
///
/// The mode ends when this is dropped. It is in effect for code that receives this value, as
/// `&mut impl AsConn` or `&mut DbConnection`. Code that needs Diesel's own connection type gets it from
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
pub struct Inline<'a> {
    db: &'a mut TestDatabase,
    mode: Arc<InlineRuns>,
}

struct InlineRuns {
    database: Database,
    has_reached_fault: Arc<AtomicBool>,
    state: Mutex<InlineState>,
}

struct InlineState {
    drain: Drain,
    drained: Drained,
}

impl InlineRuns {
    fn state(&self) -> MutexGuard<'_, InlineState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Performs what is ready. The connection is at its home.
    fn perform(&self) -> Result<()> {
        let mut state = self.state();
        let (drained, is_reached) = state.drain.run_at_home(&self.database)?;
        if is_reached {
            state.drain.forget_fault();
        }
        self.has_reached_fault
            .fetch_or(is_reached, Ordering::Relaxed);
        state.drained.runs.extend(drained.runs);
        Ok(())
    }
}

impl TestDatabase {
    /// Switches the inline mode on, until the returned value is dropped. See [`Inline`].
    pub fn inline(&mut self, registry: &Registry) -> Inline<'_> {
        Drain::new(registry).inline(self)
    }
}

impl Drain {
    /// Switches the inline mode on with these options, until the returned value is dropped.
    ///
    /// [`at_most`](Self::at_most) applies to each enqueue.
    pub fn inline(self, db: &mut TestDatabase) -> Inline<'_> {
        let mode = Arc::new(InlineRuns {
            database: db.database.clone(),
            has_reached_fault: Arc::clone(&db.has_reached_fault),
            state: Mutex::new(InlineState {
                drain: self,
                drained: Drained::default(),
            }),
        });
        let depth = db.as_conn().transaction_depth();
        let performing = Arc::clone(&mode);
        db.set_inline(Some(InlineMode {
            perform: Arc::new(move || performing.perform()),
            depth,
        }));
        Inline { db, mode }
    }
}

impl Inline<'_> {
    /// Returns all runs since the inline mode was switched on.
    pub fn drained(&self) -> Drained {
        self.mode.state().drained.clone()
    }

    /// Performs what is ready and was not enqueued on this value.
    ///
    /// # Errors
    /// As for [`TestDatabase::drain`].
    ///
    /// # Panics
    /// As for [`TestDatabase::drain`].
    pub fn drain(&mut self) -> Result<()> {
        let mode = &self.mode;
        self.db.lend(|| mode.perform())
    }
}

impl Drop for Inline<'_> {
    fn drop(&mut self) {
        self.db.set_inline(None);
    }
}

impl Deref for Inline<'_> {
    type Target = DbConnection;

    fn deref(&self) -> &DbConnection {
        self.db
    }
}

impl DerefMut for Inline<'_> {
    fn deref_mut(&mut self) -> &mut DbConnection {
        self.db
    }
}

impl Sealed for Inline<'_> {
    fn after_enqueue(&mut self) -> Result<()> {
        self.db.after_enqueue()
    }
}

impl AsConn for Inline<'_> {
    fn as_conn(&mut self) -> Conn<'_> {
        self.db.as_conn()
    }
}

impl fmt::Debug for Inline<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Inline").field(&self.drained()).finish()
    }
}
