//! Sends new jobs: one, many in one transaction, and jobs of batches.

use crate::db::model::new_row::{EnqueueOutcome, NewRow};
use crate::db::table::flows::batches::{self, Addition};
use crate::db::transition::enqueue::rank::rank_by_time;
use crate::db::transition::enqueue::{self, all_or_none, flows, group};
use crate::db::{AsConn, Conn, own};
use crate::error::{Error, ErrorContext, Result};
use crate::job::Enqueued;
use crate::job::extras::{
    PublicAccess, all_of, explain_missing, insert_with_tokens, name_locked, refuse_named,
    refuse_unknown,
};
use crate::job::new_job::NewJob;
use crate::job::policy::quota;
use crate::job::trace::spans;
use std::collections::BTreeSet;

impl NewJob {
    /// Enqueues the job on the given connection, as part of its transaction if one is open.
    ///
    /// # Errors
    /// If a limit is exceeded (before any SQL is sent) or a statement fails. Also if another job
    /// holds the unique id and the policy is [`OnConflict::Refuse`](crate::OnConflict::Refuse), or
    /// the class is [internal](crate::Job::INTERNAL) and was named [by name](Self::of_class), or if a strict
    /// [`Quota`](crate::Quota) is exceeded.
    pub fn enqueue<C: AsConn + ?Sized>(self, conn: &mut C) -> Result<Enqueued> {
        let enqueued = match self.row.batch_id {
            Some(_) => self.insert_into_batch(conn)?,
            None => self.insert_new_job(conn)?,
        };
        conn.after_enqueue().map(|()| enqueued)
    }

    fn insert_into_batch<C: AsConn + ?Sized>(self, conn: &mut C) -> Result<Enqueued> {
        let row = self.row.clone();
        let enqueued = enqueue_rows(&mut own(conn), None, [self])?;
        unless_refused(&row, enqueued[0])
    }

    fn insert_new_job<C: AsConn + ?Sized>(self, conn: &mut C) -> Result<Enqueued> {
        let (access, writers) = (self.access, conn.writers());
        let (mut rows, mut conn) = ([self.into_row()?], own(conn));
        refuse_named(&mut conn, &mut rows)?;
        refuse_unknown(&mut conn, &rows)?;
        spans::send_one(&mut rows, |rows| {
            rank_by_time(&mut conn, rows).during("read the time")?;
            let enqueued: Result<Enqueued> = if access.wants_token {
                insert_with_tokens(&mut conn, rows, &[access]).map(|mut all| all.remove(0))
            } else if rows[0].quota.is_some() {
                quota::enqueue_all(&mut conn, rows).map(|mut all| all.remove(0).into())
            } else {
                let inserted = match &writers {
                    Some(writers) => group::insert_together(&mut conn, writers, &rows[0]),
                    None => enqueue::insert_job(&mut conn, &rows[0]),
                };
                let inserted = inserted.during("enqueue the job");
                explain_missing(&mut conn, all_of(rows), inserted).map(Enqueued::from)
            };
            let enqueued = name_locked(rows, enqueued)?;
            unless_refused(&rows[0], enqueued)
        })
    }
}

// --- Enqueueing many jobs in one transaction ---

/// Enqueues many jobs, of different types if needed, in few statements: all of them or none.
///
/// The results are in the order of the jobs, one for each. A unique id that is already held does
/// not affect the other jobs. A job rejected by [`OnConflict::Refuse`](crate::OnConflict::Refuse)
/// is not an error here, but has the outcome [`EnqueueOutcome::Refused`](crate::jobs::EnqueueOutcome::Refused).
///
/// ```
/// # use serde::{Deserialize, Serialize};
/// # use windlass::{Context, Job, JobResult, NewJob};
/// # #[derive(Serialize, Deserialize)] struct Import { file: String }
/// # impl Job for Import {
/// #     const NAME: &'static str = "import";
/// #     type State = (); type Output = ();
/// #     fn perform(self, _: &Context<'_, ()>) -> JobResult { Ok(()) }
/// # }
/// # use diesel::prelude::*;
/// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
/// # windlass::migrate(&mut conn).unwrap();
/// let jobs = ["a.csv", "b.csv"].map(|file| NewJob::new(&Import { file: file.into() }));
/// let jobs = jobs.into_iter().collect::<windlass::Result<Vec<_>>>()?;
/// assert_eq!(windlass::enqueue_all(&mut conn, jobs)?.len(), 2);
/// # Ok::<(), windlass::Error>(())
/// ```
///
/// # Errors
/// If one job exceeds a limit (before any SQL is sent), is of an [internal](crate::Job::INTERNAL)
/// class that was named by name, or a statement fails. Also if the jobs exceed a strict
/// [`Quota`](crate::Quota) together: then none is enqueued. A quota that sheds discards the last
/// ones.
pub fn enqueue_all<C: AsConn + ?Sized>(
    conn: &mut C,
    jobs: impl IntoIterator<Item = NewJob>,
) -> Result<Vec<Enqueued>> {
    let enqueued = enqueue_rows(&mut own(conn), None, jobs)?;
    conn.after_enqueue()?;
    Ok(enqueued)
}

/// Enqueues jobs of a batch, and returns which of them are new and wait.
pub(crate) fn enqueue_in(
    conn: &mut Conn<'_>,
    batch: i64,
    jobs: Vec<NewJob>,
) -> Result<(Vec<Enqueued>, Vec<i64>)> {
    let enqueued = enqueue_rows(conn, Some(batch), jobs)?;
    let new = enqueued.iter().filter(|job| waits(job));
    let new = new.map(|job| job.id.0).collect();
    Ok((enqueued, new))
}

/// Enqueues jobs in the transaction that is open.
pub(crate) fn enqueue_each(
    conn: &mut Conn<'_>,
    jobs: impl IntoIterator<Item = NewJob>,
) -> Result<Vec<Enqueued>> {
    enqueue_rows(conn, None, jobs)
}

/// Returns the error of a single job that was refused because of its unique id.
fn unless_refused(row: &NewRow, enqueued: Enqueued) -> Result<Enqueued> {
    match enqueued.outcome {
        EnqueueOutcome::Refused => Err(Error::UniqueIdTaken {
            class: row.class_name.clone(),
            unique_id: row.unique_id.clone().unwrap_or_default(),
            existing: enqueued.id.0,
        }),
        _ => Ok(enqueued),
    }
}

/// Enqueues jobs that name their batches, or are all of one that the caller has locked and fills.
fn enqueue_rows(
    conn: &mut Conn<'_>,
    batch_id: Option<i64>,
    jobs: impl IntoIterator<Item = NewJob>,
) -> Result<Vec<Enqueued>> {
    let (mut rows, mut accesses) = (Vec::new(), Vec::new());
    for job in jobs {
        accesses.push(job.access);
        let mut row = job.into_row()?;
        if let (Some(batch), Some(own)) = (batch_id, row.batch_id)
            && batch != own
        {
            return Err(Error::InvalidJob {
                class: row.class_name,
                reason: format!("it names the batch {own}, and is added to another"),
            });
        }
        row.batch_id = batch_id.or(row.batch_id);
        rows.push(row);
    }
    let joined: BTreeSet<i64> = match batch_id {
        Some(_) => BTreeSet::new(),
        None => rows.iter().filter_map(|row| row.batch_id).collect(),
    };
    if joined.is_empty() {
        return insert_rows(conn, &mut rows, &accesses);
    }
    all_or_none(conn, |conn| {
        for batch in &joined {
            keep_open(conn, *batch)?;
        }
        let enqueued = insert_rows(conn, &mut rows, &accesses)?;
        for batch in joined {
            let pairs = rows.iter().zip(&enqueued);
            let of_it = pairs.filter(|(row, job)| row.batch_id == Some(batch) && waits(job));
            let new: Vec<i64> = of_it.map(|(_, job)| job.id.0).collect();
            flows::add(conn, batch, &new).during("add jobs to the batch")?;
        }
        Ok(enqueued)
    })
}

/// Keeps a batch from ending until the transaction does.
///
/// # Errors
/// If it is over, or there is none.
pub(crate) fn keep_open(conn: &mut Conn<'_>, batch: i64) -> Result<()> {
    match batches::accepts(conn, batch).during("look whether the batch is over")? {
        Addition::Accepted => Ok(()),
        Addition::Ended => Err(Error::BatchOver { id: batch }),
        Addition::Unknown => Err(Error::NoSuchBatch { id: batch }),
    }
}

/// Returns whether a job is new, and has not ended.
fn waits(job: &Enqueued) -> bool {
    matches!(job.outcome, EnqueueOutcome::New | EnqueueOutcome::Again) && job.is_new
}

fn insert_rows(
    conn: &mut Conn<'_>,
    rows: &mut [NewRow],
    accesses: &[PublicAccess],
) -> Result<Vec<Enqueued>> {
    refuse_named(conn, rows)?;
    refuse_unknown(conn, rows)?;
    spans::send_batch(rows, |rows| {
        rank_by_time(conn, rows).during("read the time")?;
        let inserted = name_locked(rows, insert_all(conn, rows, accesses));
        explain_missing(conn, all_of(rows), inserted)
    })
}

fn insert_all(
    conn: &mut Conn<'_>,
    rows: &[NewRow],
    accesses: &[PublicAccess],
) -> Result<Vec<Enqueued>> {
    if accesses.iter().any(|access| access.wants_token) {
        return insert_with_tokens(conn, rows, accesses);
    }
    let inserted = if rows.iter().any(|row| row.quota.is_some()) {
        quota::enqueue_all(conn, rows)?
    } else {
        enqueue::insert_all(conn, rows).during("enqueue the jobs")?
    };
    Ok(inserted.into_iter().map(Enqueued::from).collect())
}
