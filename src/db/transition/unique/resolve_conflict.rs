//! Decides about a new job when another job holds its unique id.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::Execution;
use crate::db::conn::statement::Statement;
use crate::db::model::job_columns::JobColumns;
use crate::db::model::new_row::{EnqueueOutcome, HolderState, NewRow, OnConflict, UniqueScope};
use crate::db::model::wait_keys::UNIQUE_SUCCESSOR;
use crate::db::table::flows::{edges, parents, waits};
use crate::db::table::unique_jobs::{BLOCKED, READY, WAITING};
use crate::db::table::wanted_keys::{self, NewRequest};
use crate::db::table::{attempts, blocked, classes, expiries, ready, scheduled, steps};
use crate::db::transition::place;
use crate::mutant;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Bool, Integer, Nullable, Text};
use serde::Serialize;
use std::collections::{BTreeSet, HashMap};
use std::sync::LazyLock;

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

#[derive(QueryableByName)]
pub(crate) struct UniqueRow {
    #[diesel(sql_type = BigInt)]
    job_id: i64,
    #[diesel(sql_type = Text)]
    scope: String,
    #[diesel(sql_type = Nullable<BigInt>)]
    after_job_id: Option<i64>,
}

#[derive(QueryableByName)]
struct TakenUniqueId {
    #[diesel(sql_type = Text)]
    unique_id: String,
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
    let free: BTreeSet<String> = insert(conn, &entries)?.into_iter().collect();
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

/// A row to insert: the unique id, its job and its scope.
#[derive(Debug, Serialize)]
pub(crate) struct NewUniqueRow<'a>(pub(crate) &'a str, pub(crate) i64, pub(crate) &'static str);

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

/// Inserts unique ids that have no row, waits for transactions that are inserting the same ones,
/// and returns the inserted ones.
pub(crate) fn insert(
    conn: &mut Conn<'_>,
    entries: &[NewUniqueRow<'_>],
) -> QueryResult<Vec<String>> {
    let text = "INSERT INTO windlass_unique_jobs (unique_id, job_id, scope) \
         SELECT value ->> 0, CAST(value ->> 1 AS bigint), value ->> 2 FROM {rows $1} WHERE true \
         ORDER BY 1 ON CONFLICT (unique_id) DO NOTHING RETURNING unique_id";
    let entries = serde_json::to_string(entries).unwrap_or_default();
    let rows: Vec<TakenUniqueId> = Statement::new(text).bind(&entries).load(conn)?;
    Ok(rows.into_iter().map(|row| row.unique_id).collect())
}

/// Each round finds one more change of the existing job, which can make only a few.
pub(crate) const ROUNDS: usize = 10;

fn resolve(conn: &mut Conn<'_>, new: &Contender<'_>) -> QueryResult<Taken> {
    let Contender { name, id, row } = *new;
    for _ in 0..ROUNDS {
        let Some(hold) = lock(conn, name)? else {
            // Deleted meanwhile.
            if !insert(conn, &[NewUniqueRow(name, id, row.unique_scope.column())])?.is_empty() {
                return Ok(Taken::Free);
            }
            continue;
        };
        let Some(holder) = holder(conn, &hold)? else {
            take_over(conn, name, id, row.unique_scope, None)?;
            return Ok(Taken::Free);
        };
        if let Some(taken) = settle(conn, new, &hold, holder)? {
            return Ok(taken);
        }
    }
    Err(diesel::result::Error::NotFound)
}

/// Locks the row of a unique id.
pub(crate) fn lock(conn: &mut Conn<'_>, name: &str) -> QueryResult<Option<UniqueRow>> {
    let text =
        "SELECT job_id, scope, after_job_id FROM windlass_unique_jobs WHERE unique_id = $1 {lock}";
    Statement::new(text).bind(name).get_result(conn).optional()
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
struct FoundHolder {
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
    let found: FoundHolder = Statement::new(text).bind(job).get_result(conn)?;
    let table = usize::try_from(found.place).ok();
    Ok(match table.and_then(|place| WAITING.get(place)) {
        Some(table) => HolderState::Waiting(table),
        None if found.place == 3 => HolderState::Claimed,
        None if found.kept => HolderState::Kept,
        None => HolderState::Over,
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
            take_over(conn, name, job, row.unique_scope, after)?;
            replace(conn, table, job, row)?;
            known(EnqueueOutcome::Replaced)
        }
        (HolderState::Claimed, OnConflict::Replace | OnConflict::RunAgain) => {
            take_over(conn, name, id, row.unique_scope, Some(job))?;
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

/// Stores another job in a row that is locked.
pub(crate) fn take_over(
    conn: &mut Conn<'_>,
    name: &str,
    job: i64,
    scope: UniqueScope,
    after: Option<i64>,
) -> QueryResult<()> {
    let text = "UPDATE windlass_unique_jobs SET job_id = $1, scope = $2, after_job_id = $3 WHERE unique_id = $4";
    Statement::new(text)
        .bind(job)
        .bind(scope.column())
        .bind(after)
        .bind(name)
        .execute(conn)
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
    // What the old one has done, which is undone, and what it waits for.
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
        blocked::delete(conn, &[job])?;
    } else {
        scheduled::delete(conn, &[job])?;
    }
    place::place(conn, &[job])
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
