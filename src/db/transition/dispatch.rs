//! Moves scheduled executions that are due to ready.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::{Dialect, id_list, job_ids};
use crate::db::conn::listening;
use crate::db::conn::sqlite_file::Refusal;
use crate::db::conn::statement::Statement;
use crate::db::model::decision::JobState;
use crate::db::model::outcome::{AttemptOutcome, EXPIRED, ResultOutcome, expired};
use crate::db::table::blocked::{self, RETURNING};
use crate::db::table::expiries::{self, ExpiryOfJob};
use crate::db::table::{executions, jobs};
use crate::db::transition::flows::leave::end_unstarted;
use crate::db::transition::promote::Discarded;
use crate::db::transition::{clear, runnable};
use diesel::QueryResult;
use diesel::prelude::*;
use diesel::sql_types::BigInt;
use std::collections::HashSet;

/// The result of a dispatch.
#[derive(Debug, Default)]
pub(crate) struct DispatchedJobs {
    /// The number of jobs that wait no longer for their time.
    pub(crate) count: usize,
    /// Those that the database has refused to move. They stay as they were.
    pub(crate) refused: Vec<i64>,
    /// Why it has refused the last of them.
    pub(crate) left: Option<String>,
}

/// Makes up to `chunk` due jobs ready, except those that were refused before. Any number of dispatchers may do so at
/// once: each takes different rows.
///
/// If the database refuses a chunk, each half of it is tried, down to the single jobs.
pub(crate) fn dispatch(
    conn: &mut Conn<'_>,
    chunk: usize,
    refused: &[i64],
) -> QueryResult<DispatchedJobs> {
    let due = match refused {
        [] => DueJobs::All,
        refused => DueJobs::Except(refused),
    };
    match move_due(conn, chunk, due) {
        Ok(count) => Ok(DispatchedJobs {
            count,
            ..DispatchedJobs::default()
        }),
        // In a transaction of the caller, an error has ended it.
        Err(error) if Refusal::of(&error) != Refusal::Content || conn.is_in_transaction() => {
            Err(error)
        }
        Err(_) => one_by_one(conn, chunk, refused),
    }
}

/// Does the same, job by job where the database refuses several.
pub(crate) fn one_by_one(
    conn: &mut Conn<'_>,
    chunk: usize,
    refused: &[i64],
) -> QueryResult<DispatchedJobs> {
    let due = DueJobs::Except(refused);
    let text = format!(
        "{} ORDER BY scheduled_at, priority, job_id LIMIT $1",
        due.select()
    );
    let jobs = due.bind(Statement::new(text).uncached().bind(chunk as i64));
    let jobs: Vec<i64> = jobs.load(conn).map(job_ids)?;
    let (parts, left) = clear::one_by_one(conn, &jobs, |conn, part| {
        let count = move_due(conn, part.len(), DueJobs::Only(part))?;
        Ok((count, part.to_vec()))
    })?;
    let (counts, accepted): (Vec<usize>, Vec<Vec<i64>>) = parts.into_iter().unzip();
    let accepted: HashSet<i64> = accepted.into_iter().flatten().collect();
    let refused = jobs.into_iter().filter(|job| !accepted.contains(job));
    Ok(DispatchedJobs {
        count: counts.into_iter().sum(),
        refused: refused.collect(),
        left,
    })
}

/// The due jobs to move.
#[derive(Debug, Clone, Copy)]
enum DueJobs<'d> {
    All,
    Except(&'d [i64]),
    Only(&'d [i64]),
}

impl DueJobs<'_> {
    /// Returns a SELECT of them; the jobs that it names are `$2`.
    fn select(self) -> String {
        let which = match self {
            DueJobs::All => "",
            DueJobs::Except(_) => " AND NOT (job_id IN {in $2})",
            DueJobs::Only(_) => " AND job_id IN {in $2}",
        };
        format!(
            "SELECT job_id FROM solid_queue_scheduled_executions WHERE scheduled_at <= {{now}}{which}"
        )
    }

    /// Binds the jobs. A refusal is rare, so no statement with them is kept prepared.
    fn bind<'v>(self, statement: Statement<'v>) -> Statement<'v> {
        match self {
            DueJobs::All => statement,
            DueJobs::Except(jobs) | DueJobs::Only(jobs) => statement.uncached().bind(id_list(jobs)),
        }
    }
}

/// Moves due jobs in one transaction.
fn move_due(conn: &mut Conn<'_>, chunk: usize, which: DueJobs<'_>) -> QueryResult<usize> {
    match conn.dialect() {
        Dialect::Postgres => insert_or_skip(conn, chunk, which),
        Dialect::Sqlite => conn.transaction(|conn| {
            let text = format!(
                "DELETE FROM solid_queue_scheduled_executions WHERE job_id IN \
                 ({} ORDER BY scheduled_at, priority, job_id LIMIT $1) RETURNING job_id",
                which.select()
            );
            let due = which.bind(Statement::new(text).bind(chunk as i64));
            let jobs: Vec<i64> = due.load(conn).map(job_ids)?;
            if !jobs.is_empty() {
                runnable::make_runnable(conn, &jobs)?;
            }
            Ok(jobs.len())
        }),
    }
}

#[derive(QueryableByName)]
struct Dispatched {
    #[diesel(sql_type = BigInt)]
    count: i64,
}

/// Dispatches on Postgres. Only another program can insert a ready execution of a scheduled job, so
/// the insert looks for one only after it has met one: ON CONFLICT writes each row twice into the
/// log.
fn insert_or_skip(conn: &mut Conn<'_>, chunk: usize, which: DueJobs<'_>) -> QueryResult<usize> {
    use diesel::result::{DatabaseErrorKind::UniqueViolation, Error::DatabaseError};
    // An error would end the caller's transaction.
    if !conn.is_in_transaction() {
        match in_one_statement(conn, chunk, which, "") {
            Err(DatabaseError(UniqueViolation, _)) => {}
            done => return done,
        }
    }
    in_one_statement(conn, chunk, which, "ON CONFLICT (job_id) DO NOTHING")
}

/// Dispatches in one statement.
fn in_one_statement(
    conn: &mut Conn<'_>,
    chunk: usize,
    which: DueJobs<'_>,
    on_conflict: &str,
) -> QueryResult<usize> {
    let text = format!(
        "WITH picked AS MATERIALIZED ({due} ORDER BY scheduled_at, priority, job_id LIMIT $1 FOR UPDATE SKIP LOCKED), \
         gone AS (DELETE FROM solid_queue_scheduled_executions WHERE job_id = ANY (ARRAY(SELECT job_id FROM picked)) \
           RETURNING job_id), \
         due AS MATERIALIZED (SELECT {RETURNING} FROM solid_queue_jobs WHERE id = ANY (ARRAY(SELECT job_id FROM gone))), \
         {limited}, \
         ready AS (INSERT INTO solid_queue_ready_executions (job_id, queue_name, priority, class_name, cautious, created_at) \
           SELECT id, queue_name, priority, class_name, {{cautious}}, {{now}} FROM due WHERE NOT {has_key} \
           ORDER BY id {on_conflict} RETURNING 1), \
         woken AS (SELECT CASE WHEN EXISTS (SELECT 1 FROM due) THEN {wake} END) \
         SELECT (SELECT count(*) FROM gone) AS count, (SELECT count(*) FROM woken) AS woken",
        due = which.select(),
        limited = blocked::due_ctes("due WHERE", "wanted"),
        has_key = blocked::has_gate(""),
        wake = listening::wake("(SELECT count(*) FROM ready) + (SELECT count(*) FROM wanted)"),
    );
    let due = which.bind(Statement::new(text).bind(chunk as i64));
    let moved: Dispatched = due.get_result(conn)?;
    Ok(usize::try_from(moved.count).unwrap_or(0))
}

// --- Discards jobs that have not started in time ---

/// The result of a look for jobs that have expired.
#[derive(Debug, Default)]
pub(crate) struct Expired {
    pub(crate) discarded: Vec<Discarded>,
    /// True if more may have expired.
    pub(crate) is_full: bool,
    /// True if any job has an expiry.
    pub(crate) is_any: bool,
    /// Why some could not be discarded, if the database has refused it.
    pub(crate) left: Option<String>,
}

/// Discards up to `chunk` waiting jobs that have expired. Those that another transaction has locked,
/// or that the database refuses to discard, are left to the next look, and hold up no others.
pub(crate) fn expire(conn: &mut Conn<'_>, chunk: usize) -> QueryResult<Expired> {
    let next = expiries::next(conn, chunk)?;
    let due = next.iter().filter(|expiry| expiry.is_due);
    let due: Vec<i64> = due.map(|expiry| expiry.job_id).collect();
    let (parts, left) = clear::one_by_one(conn, &due, discard)?;
    let (discarded, done): (Vec<_>, Vec<usize>) = parts.into_iter().unzip();
    Ok(Expired {
        // Without progress, the rest is locked.
        is_full: due.len() == chunk && done.iter().any(|done| *done > 0),
        is_any: !next.is_empty(),
        discarded: discarded.concat(),
        left,
    })
}

/// Discards those of the jobs that still wait and have expired, and deletes the expiries of those
/// that have started or ended. Returns the jobs, and how many expiries are gone.
///
/// The executions are locked first: a job that a process claims meanwhile is left to it. No lock is
/// waited for, since the caller has other work.
fn discard(conn: &mut Conn<'_>, due: &[i64]) -> QueryResult<(Vec<Discarded>, usize)> {
    let mut held = Vec::new();
    for state in JobState::WAITING {
        held.extend(executions::lock_free(conn, state, due)?);
    }
    let (over, rest): (Vec<ExpiryOfJob>, Vec<_>) = expiries::due(conn, due)?
        .into_iter()
        .partition(|expiry| expiry.is_over);
    let of = |expiries: Vec<ExpiryOfJob>| expiries.into_iter().map(|one| one.job_id);
    let mut waiting: Vec<i64> = of(rest).filter(|job| held.contains(job)).collect();
    waiting.sort_unstable();
    let waiting = jobs::lock_free(conn, &waiting)?;
    let waiting = executions::take(conn, &JobState::WAITING, &waiting)?;
    let mut gone: Vec<i64> = of(over).collect();
    gone.extend(&waiting);
    expiries::remove(conn, &gone)?;
    if waiting.is_empty() {
        return Ok((Vec::new(), gone.len()));
    }
    let (attempt, result) = (AttemptOutcome::Discarded, ResultOutcome::Discarded);
    let ended = end_unstarted(conn, &waiting, attempt, result, &expired())?;
    let ended = ended.into_iter();
    let discarded = ended.map(|job| Discarded::of(job, EXPIRED)).collect();
    Ok((discarded, gone.len()))
}

/// Returns whether a claimed job, which a thread is about to start, has expired. If it has not, it
/// cannot any more.
pub(crate) fn has_expired(conn: &mut Conn<'_>, job: i64) -> QueryResult<bool> {
    let Some(expiry) = expiries::of_claimed(conn, job)? else {
        return Ok(false);
    };
    if expiry.is_due && !expiry.is_over {
        return Ok(true);
    }
    expiries::remove(conn, &[job])?;
    Ok(false)
}
