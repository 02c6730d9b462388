//! Unique ids: the job that holds one, and those that wait for it.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::{Execution, id_list, job_ids};
use crate::db::conn::statement::Statement;
use crate::db::model::claim::Cursor;
use crate::db::model::job_columns::JobColumns;
use crate::db::model::new_row::{
    EnqueueOutcome, HolderState, NewRow, OnConflict, UNIQUE_SUCCESSOR, UniqueScope,
};
use crate::db::table::executions::{BLOCKED, READY, WAITING};
use crate::db::table::flows::{edges, parents, waits};
use crate::db::table::unique_jobs::{
    NewUniqueRow, UniqueRow, give_unique_id, insert_free_unique_ids, lock_unique_id,
};
use crate::db::table::wanted_keys::{self, NewRequest};
use crate::db::table::{attempts, blocked, classes, expiries, ready, scheduled, steps};
use crate::db::transition::runnable;
use crate::mutant;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Bool, Integer, Nullable, Text};
use serde::Deserialize;
use std::collections::{BTreeSet, HashMap};
use std::sync::LazyLock;

// --- Unique ids after the end of a job: the job that waited for it becomes runnable, a failed ---

/// A condition: no job is left that the one of a blocked execution `b` waits for.
///
/// It counts, as the planner may read all jobs at once for a NOT EXISTS, and has `coalesce`, as it
/// may otherwise read, for each job, all that wait for another.
pub(crate) const IS_FREE: &str = "(SELECT count(*) FROM windlass_unique_jobs u JOIN solid_queue_jobs h ON h.id = coalesce(u.after_job_id, 0) \
     WHERE u.job_id = b.job_id AND h.finished_at IS NULL \
     AND (SELECT count(*) FROM solid_queue_failed_executions f WHERE f.job_id = h.id) = 0) = 0";

/// Makes jobs runnable that waited for one of these jobs to free a unique id.
pub(crate) fn unblock(conn: &mut Conn<'_>, ended: &[i64]) -> QueryResult<()> {
    let behind = "IN (SELECT job_id FROM windlass_unique_jobs WHERE after_job_id IN {in $2})";
    unblock_free(conn, behind, ended).map(drop)
}

/// Makes those of the jobs runnable that wait for none, and returns how many. `which` selects them
/// by the ids `$2`.
fn unblock_free(conn: &mut Conn<'_>, which: &str, ids: &[i64]) -> QueryResult<usize> {
    conn.transaction(|conn| {
        let text = format!(
            "SELECT b.job_id FROM solid_queue_blocked_executions b WHERE b.concurrency_key = $1 \
             AND {IS_FREE} AND b.job_id {which} ORDER BY b.job_id + 0 {{lock skip of b}}"
        );
        let free: Vec<Execution> = Statement::new(text)
            .bind(UNIQUE_SUCCESSOR)
            .bind(id_list(ids))
            .load(conn)?;
        let free = job_ids(free);
        if free.is_empty() {
            return Ok(0);
        }
        let text = "DELETE FROM solid_queue_blocked_executions WHERE job_id IN {in $1}";
        Statement::new(text).bind(id_list(&free)).execute(conn)?;
        runnable::make_ready_or_scheduled(conn, &free)?;
        Ok(free.len())
    })
}

#[derive(QueryableByName)]
struct WaitingForOther {
    #[diesel(sql_type = BigInt)]
    job_id: i64,
    #[diesel(sql_type = Integer)]
    priority: i32,
    #[diesel(sql_type = Bool)]
    is_free: bool,
}

/// The most jobs that one transaction makes runnable.
const AT_ONCE: usize = 500;

/// One page of a scan of the jobs that wait for another.
#[derive(Debug)]
pub(crate) struct UnblockedPage {
    /// The last job that was read; `None` at the end of the scan.
    pub(crate) reached: Option<Cursor>,
    /// The number of jobs that wait no longer.
    #[allow(dead_code, reason = "read by internal tests")]
    pub(crate) unblocked: usize,
}

/// Reads `chunk` jobs that wait for another, after a cursor in their order, and makes those
/// runnable whose wait is over. The end of the other job has not seen them, as they were not
/// committed yet.
pub(crate) fn sweep(
    conn: &mut Conn<'_>,
    beyond: Cursor,
    chunk: usize,
) -> QueryResult<UnblockedPage> {
    let text = format!(
        "SELECT b.job_id, b.priority, {IS_FREE} AS is_free FROM solid_queue_blocked_executions b \
         WHERE b.concurrency_key = $1 AND (b.priority, b.job_id) > ($2, $3) \
         ORDER BY b.priority, b.job_id LIMIT $4"
    );
    let seen: Vec<WaitingForOther> = Statement::new(text)
        .bind(UNIQUE_SUCCESSOR)
        .bind(beyond.priority)
        .bind(beyond.job_id)
        .bind(chunk as i64)
        .load(conn)?;
    let free: Vec<&WaitingForOther> = seen
        .iter()
        .filter(|job| job.is_free)
        .take(AT_ONCE)
        .collect();
    // The next stretch begins after the last one that this takes.
    let last = match free.len() < AT_ONCE {
        true => seen.last().filter(|_| seen.len() == chunk),
        false => free.last().copied(),
    };
    let reached = last.map(|last| Cursor {
        priority: last.priority,
        job_id: last.job_id,
    });
    let free: Vec<i64> = free.into_iter().map(|job| job.job_id).collect();
    let unblocked = if free.is_empty() {
        0
    } else {
        unblock_free(conn, "IN {in $2}", &free)?
    };
    Ok(UnblockedPage { reached, unblocked })
}

#[derive(QueryableByName)]
struct FailedUniqueJob {
    #[diesel(sql_type = BigInt)]
    id: i64,
    #[diesel(sql_type = Text)]
    unique_id: String,
    #[diesel(sql_type = Nullable<Text>)]
    policy: Option<String>,
}

#[derive(Deserialize)]
struct ScopePolicy {
    unique_scope: Option<UniqueScope>,
}

/// Takes the unique ids back for failed jobs that run again, and returns the jobs whose unique id
/// another holds by now.
pub(crate) fn retake(conn: &mut Conn<'_>, jobs: &[i64]) -> QueryResult<Vec<i64>> {
    let text = "WITH chosen AS MATERIALIZED (SELECT id, unique_id, policy FROM solid_queue_jobs WHERE id IN {in $1}) \
         SELECT id, unique_id, policy FROM chosen WHERE unique_id IS NOT NULL ORDER BY unique_id, id";
    let named: Vec<FailedUniqueJob> = Statement::new(text).bind(id_list(jobs)).load(conn)?;
    let mut refused = Vec::new();
    let mut had = String::new();
    for job in named {
        // Of two jobs with the same one, only the first can have it.
        if job.unique_id == had || !retake_one(conn, &job)? {
            refused.push(job.id);
        } else {
            had = job.unique_id;
        }
    }
    Ok(refused)
}

fn retake_one(conn: &mut Conn<'_>, job: &FailedUniqueJob) -> QueryResult<bool> {
    let stored: Option<ScopePolicy> = job
        .policy
        .as_deref()
        .and_then(|text| serde_json::from_str(text).ok());
    let scope = stored
        .and_then(|policy| policy.unique_scope)
        .unwrap_or_default();
    let name = &job.unique_id;
    for _ in 0..ROUNDS {
        if !insert_free_unique_ids(conn, &[NewUniqueRow(name, job.id, scope.column())])?.is_empty()
        {
            return Ok(true);
        }
        let Some(hold) = lock_unique_id(conn, name)? else {
            continue;
        };
        if holder(conn, &hold)?.is_some_and(|holder| holder.job_id != job.id) {
            return Ok(false);
        }
        give_unique_id(conn, name, job.id, scope, None)?;
        return Ok(true);
    }
    Err(diesel::result::Error::NotFound)
}

/// Deletes the rows of jobs that are gone, except those that a result still holds and those that
/// another transaction has locked.
pub(crate) fn forget(conn: &mut Conn<'_>, jobs: &[i64]) -> QueryResult<usize> {
    // It counts, as the planner may read all jobs at once for a NOT EXISTS.
    let text = "DELETE FROM windlass_unique_jobs WHERE unique_id IN (SELECT unique_id FROM windlass_unique_jobs u \
         WHERE job_id IN {in $1} \
         AND (SELECT count(*) FROM windlass_results r WHERE r.job_id = u.job_id AND r.expires_at > {now}) = 0 \
         AND (SELECT count(*) FROM solid_queue_jobs h WHERE h.id = u.after_job_id AND h.finished_at IS NULL) = 0 \
         ORDER BY unique_id || '' {lock skip})";
    Statement::new(text)
        .bind(id_list(jobs))
        .uncached()
        .changes(conn)
}

// --- Decides about a new job when another job holds its unique id ---

/// A job to insert, with its id.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NumberedRow<'r> {
    pub(crate) id: i64,
    pub(crate) row: &'r NewRow,
}

/// The result of taking a unique id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Taken {
    /// The new job holds it, and may be inserted.
    Free,
    /// The new job holds it, but starts only after another job has ended.
    Behind,
    /// No job is to be inserted: this one exists.
    Known(i64, EnqueueOutcome),
}

/// Takes the unique ids of new jobs, whose ids are assigned already. Each unique id may appear only
/// once.
pub(crate) fn take(
    conn: &mut Conn<'_>,
    wanted: &[NumberedRow<'_>],
) -> QueryResult<HashMap<i64, Taken>> {
    let entries: Vec<NewUniqueRow<'_>> = wanted
        .iter()
        .filter_map(|NumberedRow { id, row }| {
            let name = row.unique_id.as_deref()?;
            Some(NewUniqueRow(name, *id, row.unique_scope.column()))
        })
        .collect();
    if entries.is_empty() {
        return Ok(HashMap::new());
    }
    let free: BTreeSet<String> = insert_free_unique_ids(conn, &entries)?;
    let mut taken = HashMap::with_capacity(wanted.len());
    let mut others = Vec::new();
    for &NumberedRow { id, row } in wanted {
        let Some(name) = row.unique_id.as_deref() else {
            continue;
        };
        if free.contains(name) {
            taken.insert(id, Taken::Free);
        } else {
            others.push(Contender { name, id, row });
        }
    }
    others.sort_unstable_by_key(|new| new.name);
    for new in &others {
        taken.insert(new.id, resolve(conn, new)?);
    }
    Ok(taken)
}

/// A new job whose unique id has a row already.
struct Contender<'a> {
    name: &'a str,
    id: i64,
    row: &'a NewRow,
}

/// The job that holds a unique id.
#[derive(Debug, Clone, Copy)]
pub(crate) struct UniqueHolder {
    pub(crate) job_id: i64,
    pub(crate) state: HolderState,
}

/// Each round finds one more change of the existing job, which can make only a few.
pub(crate) const ROUNDS: usize = 10;

fn resolve(conn: &mut Conn<'_>, new: &Contender<'_>) -> QueryResult<Taken> {
    let Contender { name, id, row } = *new;
    for _ in 0..ROUNDS {
        let Some(hold) = lock_unique_id(conn, name)? else {
            // Deleted meanwhile.
            if !insert_free_unique_ids(conn, &[NewUniqueRow(name, id, row.unique_scope.column())])?
                .is_empty()
            {
                return Ok(Taken::Free);
            }
            continue;
        };
        let Some(holder) = holder(conn, &hold)? else {
            give_unique_id(conn, name, id, row.unique_scope, None)?;
            return Ok(Taken::Free);
        };
        if let Some(taken) = settle(conn, new, &hold, holder)? {
            return Ok(taken);
        }
    }
    Err(diesel::result::Error::NotFound)
}

/// Returns the actual holder: the job that the row names, or else the one that has to end before
/// it.
pub(crate) fn holder(conn: &mut Conn<'_>, hold: &UniqueRow) -> QueryResult<Option<UniqueHolder>> {
    let scope = UniqueScope::of_column(&hold.scope);
    for job in std::iter::once(hold.job_id).chain(hold.after_job_id) {
        let state = state(conn, job)?;
        if scope.holds(state) {
            return Ok(Some(UniqueHolder { job_id: job, state }));
        }
    }
    Ok(None)
}

#[derive(QueryableByName)]
struct HolderRow {
    #[diesel(sql_type = Integer)]
    place: i32,
    #[diesel(sql_type = Bool)]
    kept: bool,
}

/// Returns the current state of a job, in one snapshot.
fn state(conn: &mut Conn<'_>, job: i64) -> QueryResult<HolderState> {
    let text = "SELECT CASE WHEN EXISTS (SELECT 1 FROM solid_queue_ready_executions WHERE job_id = $1) THEN 0 \
           WHEN EXISTS (SELECT 1 FROM solid_queue_scheduled_executions WHERE job_id = $1) THEN 1 \
           WHEN EXISTS (SELECT 1 FROM solid_queue_blocked_executions WHERE job_id = $1) THEN 2 \
           WHEN EXISTS (SELECT 1 FROM solid_queue_claimed_executions WHERE job_id = $1) THEN 3 ELSE 4 END AS place, \
         EXISTS (SELECT 1 FROM windlass_results WHERE job_id = $1 AND expires_at > {now}) AS kept";
    let row: HolderRow = Statement::new(text).bind(job).get_result(conn)?;
    let table = usize::try_from(row.place).ok();
    Ok(match table.and_then(|place| WAITING.get(place)) {
        Some(table) => HolderState::Waiting(table),
        None if row.place == 3 => HolderState::Claimed,
        None if row.kept => HolderState::Kept,
        None => HolderState::Ended,
    })
}

/// Decides about the new job when another holds its unique id. Returns `None` if that one has
/// changed meanwhile.
fn settle(
    conn: &mut Conn<'_>,
    contender: &Contender<'_>,
    hold: &UniqueRow,
    holder: UniqueHolder,
) -> QueryResult<Option<Taken>> {
    let Contender { name, id, row } = *contender;
    let UniqueHolder { job_id: job, state } = holder;
    let known = |outcome| Ok(Some(Taken::Known(job, outcome)));
    if row.on_conflict == OnConflict::Refuse {
        return known(EnqueueOutcome::Refused);
    }
    match (state, row.on_conflict) {
        (HolderState::Waiting(table), policy) => {
            // From here on it cannot be claimed before this transaction ends.
            if !lock_execution(conn, table, job)? {
                return Ok(None);
            }
            if policy != OnConflict::Replace {
                return known(EnqueueOutcome::Existing);
            }
            if row.by_name && classes::has_internal(conn, job)? {
                return known(EnqueueOutcome::Refused);
            }
            let after = hold.after_job_id.filter(|_| job == hold.job_id);
            give_unique_id(conn, name, job, row.unique_scope, after)?;
            replace(conn, table, job, row)?;
            known(EnqueueOutcome::Replaced)
        }
        (HolderState::Claimed, OnConflict::Replace | OnConflict::RunAgain) => {
            give_unique_id(conn, name, id, row.unique_scope, Some(job))?;
            Ok(Some(Taken::Behind))
        }
        _ => known(EnqueueOutcome::Existing),
    }
}

fn lock_execution(conn: &mut Conn<'_>, table: &str, job: i64) -> QueryResult<bool> {
    let text = format!("SELECT job_id FROM {table} WHERE job_id = $1 {{lock}}");
    let found: Vec<Execution> = Statement::new(text).bind(job).load(conn)?;
    Ok(!found.is_empty())
}

/// Replaces a waiting job, whose execution is locked, by another. It keeps only its id.
fn replace(conn: &mut Conn<'_>, table: &str, job: i64, row: &NewRow) -> QueryResult<()> {
    static REPLACE: LazyLock<(JobColumns, String)> = LazyLock::new(|| {
        let columns = JobColumns::replaced();
        let text = format!(
            "UPDATE solid_queue_jobs SET {}, active_job_id = ${}, attempts = 0, crash_count = 0, updated_at = {{now}} \
             WHERE id = ${}",
            columns.assignments(),
            columns.len() + 1,
            columns.len() + 2
        );
        (columns, text)
    });
    let (columns, text) = &*REPLACE;
    let update = columns.bind(Statement::new(text), row);
    // Only a job of Ruby brings one. It says which of both performs the job.
    update
        .bind(row.active_job_id.clone())
        .bind(job)
        .execute(conn)?;
    // It starts to count again, and attempts are deleted by that count.
    attempts::keep_newest(conn, &[job])?;
    // Stored after this, if the new one has one.
    expiries::remove(conn, &[job])?;
    // The steps of the old one, which are undone, and the jobs and events that it waits for.
    steps::remove(conn, &[job])?;
    waits::delete(conn, &[job])?;
    edges::delete(conn, job)?;
    start_undos(conn, job)?;
    if table == BLOCKED && waits_for_another(conn, job, row)? {
        return Ok(());
    }
    if table == READY {
        ready::delete(conn, &[job])?;
    } else if table == BLOCKED {
        blocked::take(conn, &[job])?;
    } else {
        scheduled::delete(conn, &[job])?;
    }
    runnable::make_ready_or_scheduled(conn, &[job])
}

/// Starts what undoes the steps of a waiting job, which the caller replaces by another.
fn start_undos(conn: &mut Conn<'_>, job: i64) -> QueryResult<()> {
    if mutant::is("replaced_undos_stay") {
        return Ok(());
    }
    let undos = parents::let_go(conn, job)?;
    wanted_keys::request(conn, undos.into_iter().map(NewRequest::Child))
}

/// Changes the blocked execution of a job that waits for another to end: it stays blocked whatever
/// its new time is.
fn waits_for_another(conn: &mut Conn<'_>, job: i64, row: &NewRow) -> QueryResult<bool> {
    let text = "UPDATE solid_queue_blocked_executions SET queue_name = $1, priority = $2 \
         WHERE job_id = $3 AND concurrency_key = $4 RETURNING job_id";
    let waits: Vec<Execution> = Statement::new(text)
        .bind(&row.queue_name)
        .bind(row.priority)
        .bind(job)
        .bind(UNIQUE_SUCCESSOR)
        .load(conn)?;
    Ok(!waits.is_empty())
}
