//! Enqueueing many jobs in one transaction.

use crate::db::model::new_row::{EnqueueOutcome, NewRow};
use crate::db::transition::enqueue;
use crate::db::transition::enqueue::insert::rank_by_time;
use crate::db::{AsConn, Conn, own};
use crate::error::{Doing, Result};
use crate::job::enqueued::Enqueued;
use crate::job::extras::access::{PublicAccess, insert_with_tokens};
use crate::job::extras::internal::refuse_named;
use crate::job::extras::locked::name_locked;
use crate::job::new_job::NewJob;
use crate::job::policy::quota;
use crate::job::trace::spans;
use crate::job::unknown_parents::{all_of, name_unknown, refuse_unknown};

/// Enqueues many jobs, of different types if needed, in few statements: all of them or none.
///
/// The results are in the order of the jobs, one for each. A unique id that is already held does
/// not affect the other jobs. A job rejected by [`OnConflict::Refuse`](crate::OnConflict::Refuse)
/// is not an error here, but has the outcome [`EnqueueOutcome::Refused`](crate::EnqueueOutcome::Refused).
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
    let waits = |job: &&Enqueued| {
        matches!(job.outcome, EnqueueOutcome::New | EnqueueOutcome::Again) && job.is_new
    };
    let new = enqueued.iter().filter(waits).map(|job| job.id.0).collect();
    Ok((enqueued, new))
}

/// Enqueues jobs in the transaction that is open.
pub(crate) fn enqueue_each(
    conn: &mut Conn<'_>,
    jobs: impl IntoIterator<Item = NewJob>,
) -> Result<Vec<Enqueued>> {
    enqueue_rows(conn, None, jobs)
}

fn enqueue_rows(
    conn: &mut Conn<'_>,
    batch_id: Option<i64>,
    jobs: impl IntoIterator<Item = NewJob>,
) -> Result<Vec<Enqueued>> {
    let (mut rows, mut accesses) = (Vec::new(), Vec::new());
    for job in jobs {
        accesses.push(job.access);
        let row = job.into_row()?;
        rows.push(NewRow { batch_id, ..row });
    }
    refuse_named(conn, &mut rows)?;
    refuse_unknown(conn, &rows)?;
    spans::send_batch(&mut rows, |rows| {
        rank_by_time(conn, rows).doing("read the time")?;
        let inserted = name_locked(rows, insert_all(conn, rows, &accesses));
        name_unknown(conn, all_of(rows), inserted)
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
        enqueue::insert_all(conn, rows).doing("enqueue the jobs")?
    };
    Ok(inserted.into_iter().map(Enqueued::from).collect())
}
