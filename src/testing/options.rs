//! Performs enqueued jobs immediately: all that are ready, or those that options name.

use crate::db::model::claim::ClaimQueues;
use crate::db::{AsConn, Database, TestDatabase};
use crate::error::Result;
use crate::job::class::Job;
use crate::job::registry::Registry;
use crate::testing::drain::InlineWorker;
use crate::testing::drained::Drained;
use crate::testing::draining::{BorrowedTarget, DrainTarget, Draining, LaterJobs, OwnTarget};
use crate::testing::fault::Fault;
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

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

    /// Ignores concurrency limits: jobs that wait for a slot run, also those that would be discarded
    /// without one. Unique ids still count.
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
