//! Cancelling and retrying batches.

use crate::admin::bulk::change::Change;
use crate::admin::changed::Changed;
use crate::admin::jobs::Jobs;
use crate::db::AsConn;
use crate::error::Result;
use crate::job::id::BatchId;

impl BatchId {
    /// Selects all jobs of the batch that have not ended, and those of the batches in it.
    ///
    /// They are found when they are changed: jobs that are added to the batch until the change has passed all of them
    /// are changed too. Nothing else can select among them; [`Jobs::batch`] does that.
    ///
    /// ```
    /// # use diesel::prelude::*;
    /// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
    /// # windlass::migrate(&mut conn).unwrap();
    /// use windlass::{Batch, Change, NewJob};
    ///
    /// let batch = Batch::new("import").add([NewJob::of_class("import", "{}")]).enqueue(&mut conn)?.id;
    /// let jobs = batch.open_jobs().by("ada").reason("the file was wrong");
    /// let operation = jobs.in_background(Change::Cancel).start(&mut conn)?;
    /// println!("operation {} cancels the batch", operation.id);
    /// # Ok::<(), windlass::Error>(())
    /// ```
    pub fn open_jobs(self) -> Jobs {
        self.whole(Jobs::waiting_or_running())
    }

    /// Selects all failed jobs of the batch, and those of the batches in it, as [`open_jobs`](Self::open_jobs) does.
    /// Jobs that were cancelled are not failed.
    pub fn failed_jobs(self) -> Jobs {
        self.whole(Jobs::failed())
    }

    fn whole(self, mut jobs: Jobs) -> Jobs {
        jobs.filter.whole_batch = Some(self.0);
        jobs
    }

    /// Cancels all jobs of the batch that have not ended, and those of the batches in it: waiting ones at once, running
    /// ones are asked to stop. The batch is over, and has failed, when the last of them has ended; what follows failure
    /// then runs.
    ///
    /// It cancels 500 jobs in a transaction. If it is interrupted, cancel again, or use
    /// [`open_jobs`](Self::open_jobs) with [`Jobs::in_background`].
    ///
    /// ```
    /// # use diesel::prelude::*;
    /// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
    /// # windlass::migrate(&mut conn).unwrap();
    /// use windlass::{Batch, NewJob};
    ///
    /// let batch = Batch::new("import").add([NewJob::of_class("import", "{}")]).enqueue(&mut conn)?.id;
    /// assert_eq!(batch.cancel(&mut conn)?.changed, 1);
    /// # Ok::<(), windlass::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NoSuchBatch`](crate::Error::NoSuchBatch) if there is none, [`Error::BatchOfRuby`](crate::Error::BatchOfRuby)
    /// if it is of Ruby. Also if the database does not answer or has no tables; jobs that were cancelled stay so.
    pub fn cancel<C: AsConn + ?Sized>(self, conn: &mut C) -> Result<Changed> {
        self.open_jobs().change(conn, Change::Cancel)
    }

    /// Retries all failed jobs of the batch, and those of the batches in it, without those that may run at most once.
    ///
    /// A batch that is over stays so, and nothing follows, unless a job still
    /// [waits for retries](crate::Batch::wait_for_retries).
    ///
    /// # Errors
    /// As for [`cancel`](Self::cancel).
    pub fn retry<C: AsConn + ?Sized>(self, conn: &mut C) -> Result<Changed> {
        let change = Change::Retry {
            even_at_most_once: false,
        };
        self.failed_jobs().change(conn, change)
    }
}
