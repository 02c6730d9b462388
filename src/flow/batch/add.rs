//! Adding jobs to a batch.

use crate::db::table::flows::batches::{self, Addition};
use crate::db::transition::enqueue::{flows, whole};
use crate::db::{AsConn, own};
use crate::error::{Doing as _, Error, Result};
use crate::flow::batch::to_job::ToNewJob;
use crate::job::enqueued::Enqueued;
use crate::job::id::BatchId;
use crate::job::new_job::enqueue_in;

impl BatchId {
    /// Enqueues jobs that belong to this batch too, all of them or none.
    ///
    /// The batch must not be over: add jobs in the transaction that enqueues the batch, or from a job of the batch. The
    /// batch does not end until the transaction does.
    ///
    /// ```
    /// # use diesel::prelude::*;
    /// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
    /// # windlass::migrate(&mut conn).unwrap();
    /// use windlass::{Batch, NewJob};
    ///
    /// let batch = conn.transaction::<_, windlass::Error, _>(|conn| {
    ///     let batch = Batch::new("import").enqueue(conn)?.id;
    ///     for chunk in ["a", "b"] {
    ///         batch.add(conn, (0..1_000).map(|_| NewJob::of_class("import", format!("\"{chunk}\""))))?;
    ///     }
    ///     Ok(batch)
    /// })?;
    /// assert_eq!(batch.status(&mut conn)?.open, 2_000);
    /// # Ok::<(), windlass::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::BatchOver`] if the batch is over, [`Error::NoSuchBatch`] if there is none, and those of
    /// [`enqueue_all`](crate::enqueue_all).
    pub fn add<C: AsConn + ?Sized, J: ToNewJob>(
        self,
        conn: &mut C,
        jobs: impl IntoIterator<Item = J>,
    ) -> Result<Vec<Enqueued>> {
        let jobs = jobs.into_iter().map(ToNewJob::to_new_job);
        let jobs = jobs.collect::<Result<Vec<_>>>()?;
        let enqueued = whole(&mut own(conn), |conn| {
            match batches::accepts(conn, self.0).doing("look whether the batch is over")? {
                Addition::Accepted => {}
                Addition::Over => return Err(Error::BatchOver { id: self.0 }),
                Addition::Unknown => return Err(Error::NoSuchBatch { id: self.0 }),
            }
            let (enqueued, new) = enqueue_in(conn, self.0, jobs)?;
            flows::add(conn, self.0, &new).doing("add jobs to the batch")?;
            Ok(enqueued)
        })?;
        conn.after_enqueue()?;
        Ok(enqueued)
    }
}
