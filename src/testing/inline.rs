//! Performing jobs when they are enqueued.

use crate::db::conn::connection::sealed::Sealed;
use crate::db::conn::owned::InlineMode;
use crate::db::model::claim::ClaimQueues;
use crate::db::{AsConn, Conn, Database, DbConnection, TestDatabase};
use crate::error::Result;
use crate::job::class::Job;
use crate::job::registry::Registry;
use crate::testing::drain::InlineWorker;
use crate::testing::drained::Drained;
use crate::testing::draining::{BorrowedTarget, DrainTarget, Draining, LaterJobs, OwnTarget};
use crate::testing::fault::Fault;
use std::collections::BTreeSet;
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

// --- Performs enqueued jobs immediately: all that are ready, or those that options name ---

/// Performs the jobs that are ready or due, as a worker would.
///
/// Jobs whose classes are registered run one after the other on this thread, until none is left.
/// That includes jobs that they enqueue, but not jobs that are due later. Paused queues are
/// skipped.
///
/// With the application's own connection inside `test_transaction`,
/// [`Context::connection`](crate::Context::connection) returns no connection. Jobs that call it
/// need [`TestDatabase::drain`].
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
/// use diesel::prelude::*;
/// use windlass::testing;
/// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
/// # windlass::migrate(&mut conn).unwrap();
/// conn.test_transaction::<_, windlass::Error, _>(|conn| {
///     Import.enqueue(conn)?;
///     let registry = Registry::new().register::<Import>(());
///     testing::drain(conn, &registry)?.assert_all_finished(1);
///     Ok(())
/// });
/// ```
///
/// # Errors
/// If the database does not answer or has no tables.
///
/// # Panics
/// After 10,000 runs, because a job enqueues itself endlessly.
pub fn drain<C: AsConn + ?Sized>(conn: &mut C, registry: &Registry) -> Result<Drained> {
    Drain::new(registry).run_on(conn)
}

impl TestDatabase {
    /// Performs the jobs that are ready or due and whose classes are registered, until none is
    /// left; see [`drain`].
    ///
    /// Jobs may borrow the connection, one at a time.
    ///
    /// # Errors
    /// As for [`drain`].
    ///
    /// # Panics
    /// After 10,000 runs, because a job enqueues itself endlessly. Also if a job does not return
    /// the connection that it borrowed.
    pub fn drain(&mut self, registry: &Registry) -> Result<Drained> {
        Drain::new(registry).run(self)
    }
}

/// Performs the jobs that are ready or due, with options.
///
/// Without options it does the same as [`TestDatabase::drain`].
///
/// ```
/// # use serde::{Deserialize, Serialize};
/// # use std::time::Duration;
/// # use windlass::{Context, Job, JobResult, NewJob, Registry};
/// # #[derive(Serialize, Deserialize)] struct Import;
/// # impl Job for Import {
/// #     const NAME: &'static str = "import";
/// #     type State = (); type Output = ();
/// #     fn perform(self, _: &Context<'_, ()>) -> JobResult { Ok(()) }
/// # }
/// use windlass::testing::{Drain, TestDatabase};
///
/// let mut db = TestDatabase::in_memory()?;
/// let registry = Registry::new().register::<Import>(());
/// NewJob::new(&Import)?.after(Duration::from_secs(3_600)).enqueue(&mut db)?;
///
/// Drain::new(&registry).run(&mut db)?.assert_all_finished(0);
/// Drain::new(&registry).scheduled().run(&mut db)?.assert_all_finished(1);
/// # Ok::<(), windlass::Error>(())
/// ```
#[derive(Debug, Clone)]
#[must_use = "it performs jobs by `run`, `run_on` or `inline`"]
pub struct Drain {
    registry: Registry,
    queues: Vec<String>,
    classes: Vec<String>,
    later: LaterJobs,
    at_most: usize,
    is_limited: bool,
    fault: Option<Fault>,
}

impl Drain {
    /// Creates a drain of all jobs that are ready or due and whose classes are registered.
    pub fn new(registry: &Registry) -> Self {
        Drain {
            registry: registry.clone(),
            queues: Vec::new(),
            classes: Vec::new(),
            later: LaterJobs::default(),
            at_most: usize::MAX,
            is_limited: true,
            fault: None,
        }
    }

    /// Performs only jobs of this queue. Several calls name several queues, the first of them first.
    pub fn queue(mut self, name: impl Into<String>) -> Self {
        self.queues.push(name.into());
        self
    }

    /// Performs only jobs of this type. Several calls name several types.
    pub fn class<J: Job>(mut self) -> Self {
        let names = [J::NAME].into_iter().chain(J::ALIASES.iter().copied());
        self.classes.extend(names.map(str::to_owned));
        self
    }

    /// Performs at most so many runs. The default is no limit, but a drain panics after 10,000 runs.
    pub fn at_most(mut self, runs: usize) -> Self {
        self.at_most = runs;
        self
    }

    /// Also performs jobs that are scheduled for later, the earliest first, once nothing is due.
    ///
    /// This does not change any other time: see [`travel`](crate::testing::travel) for that. Jobs
    /// that snooze during the drain stay.
    pub fn scheduled(mut self) -> Self {
        self.later.scheduled = true;
        self
    }

    /// Also performs further attempts of jobs that failed, without waiting for their back-off.
    pub fn retries(mut self) -> Self {
        self.later.retries = true;
        self
    }

    /// Ignores concurrency limits, rates and shares: jobs that wait for a slot, a token or a turn run, also those that would
    /// be discarded without a slot. Unique ids still count.
    pub fn without_limits(mut self) -> Self {
        self.is_limited = false;
        self
    }

    /// Lets this fault happen once, in the first run that reaches it.
    pub fn fault(mut self, fault: Fault) -> Self {
        self.fault = Some(fault);
        self
    }

    /// Performs the jobs.
    ///
    /// # Errors
    /// If the database does not answer or has no tables.
    ///
    /// # Panics
    /// After 10,000 runs, because a job enqueues itself endlessly. Also if a job does not return
    /// the connection that it borrowed.
    pub fn run(&self, db: &mut TestDatabase) -> Result<Drained> {
        let database = db.database.clone();
        let (drained, is_reached) = db.lend(|| self.run_at_home(&database))?;
        db.has_reached_fault.fetch_or(is_reached, Ordering::Relaxed);
        Ok(drained)
    }

    /// Performs the jobs of a test's database whose connection is at its home. Returns the runs, and
    /// whether the fault was reached.
    pub(crate) fn run_at_home(&self, database: &Database) -> Result<(Drained, bool)> {
        self.run_in(BorrowedTarget(database))
    }

    /// Performs the jobs on the application's own connection, as [`drain`](crate::testing::drain)
    /// does: they cannot borrow a connection, and no fault at a connection is reached.
    ///
    /// # Errors
    /// If the database does not answer or has no tables.
    ///
    /// # Panics
    /// After 10,000 runs, because a job enqueues itself endlessly.
    pub fn run_on<C: AsConn + ?Sized>(&self, conn: &mut C) -> Result<Drained> {
        let database = Database::none();
        let (drained, _) = self.run_in(OwnTarget { conn, database })?;
        Ok(drained)
    }

    /// Removes the fault once it was reached.
    pub(crate) fn forget_fault(&mut self) {
        self.fault = None;
    }

    /// Returns the runs, and whether the fault was reached.
    fn run_in(&self, target: impl DrainTarget) -> Result<(Drained, bool)> {
        let mut worker = InlineWorker::new(&self.registry);
        worker.is_limited = self.is_limited;
        if !self.classes.is_empty() {
            worker.classes.retain(|class| self.classes.contains(class));
        }
        if !self.queues.is_empty() {
            worker.queues = ClaimQueues::Named(self.queues.clone());
        }
        let mut draining = Draining {
            worker: &worker,
            target,
            later: self.later,
            at_most: self.at_most,
            fault: self.fault,
            drained: Drained::default(),
            snoozed: BTreeSet::new(),
        };
        draining.run()?;
        let is_reached = self.fault.is_some() && draining.fault.is_none();
        Ok((draining.drained, is_reached))
    }
}
