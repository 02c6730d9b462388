//! How far a batch is.

use crate::db::query;
use crate::db::{AsConn, own};
use crate::error::{Doing as _, Error, Result};
use crate::job::id::BatchId;
use chrono::{DateTime, Utc};
use serde::Serialize;

/// How far a [`Batch`](crate::Batch) is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct BatchStatus {
    /// The batch's id.
    pub id: BatchId,
    /// Its name.
    pub name: String,
    /// Its metadata as JSON.
    pub metadata: Option<String>,
    /// How many jobs it has had, and batches in it. Jobs that were added later are counted some milliseconds after they
    /// were committed.
    pub total: u64,
    /// How many of them have not ended.
    pub open: u64,
    /// How many have failed, or were cancelled.
    pub failures: u64,
    /// When it was enqueued.
    pub enqueued_at: Option<DateTime<Utc>>,
    /// When the last of its jobs had ended.
    pub finished_at: Option<DateTime<Utc>>,
}

impl BatchStatus {
    /// Returns whether the batch is over.
    pub fn is_over(&self) -> bool {
        self.finished_at.is_some() && self.open == 0
    }

    /// Returns whether a job of it has failed or was cancelled, so far.
    pub fn has_failed(&self) -> bool {
        self.failures > 0
    }
}

impl BatchId {
    /// Returns how far the batch is. It counts the jobs that have not ended, which takes 0.1 s for a million.
    ///
    /// # Errors
    /// [`Error::NoSuchBatch`] if there is none, or it is not kept any more. Also if the database does not answer or has
    /// no tables.
    pub fn status<C: AsConn + ?Sized>(self, conn: &mut C) -> Result<BatchStatus> {
        let found = query::batches::status(&mut own(conn), self.0).doing("read the batch")?;
        let row = found.ok_or(Error::NoSuchBatch { id: self.0 })?;
        let count = |count: i64| u64::try_from(count).unwrap_or(0);
        Ok(BatchStatus {
            id: self,
            name: row.name,
            metadata: row.metadata,
            total: count(row.total),
            open: count(row.open),
            failures: count(row.failures),
            enqueued_at: row.enqueued_at.map(|time| time.and_utc()),
            finished_at: row.finished_at.map(|time| time.and_utc()),
        })
    }
}
