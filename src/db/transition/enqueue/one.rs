//! Inserts one job and its first execution.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::{Dialect, Id};
use crate::db::conn::listening;
use crate::db::conn::statement::Statement;
use crate::db::model::job_columns::{JobColumns, JobShape};
use crate::db::model::new_row::{EnqueueOutcome, Inserted, NewRow};
use crate::db::table::blocked;
use crate::db::transition::enqueue::executions;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Bool};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

/// Inserts a job that waits for no other job. Returns `None`, and inserts nothing, if that takes several steps: its unique id
/// may have a row.
pub(crate) fn insert_one(conn: &mut Conn<'_>, row: &NewRow) -> QueryResult<Option<Inserted>> {
    use diesel::result::{DatabaseErrorKind::UniqueViolation, Error::DatabaseError};
    if row.unique_id.is_none() {
        return insert_unnamed(conn, row).map(Some);
    }
    // In a transaction of the caller, the steps have a savepoint, which survives an error.
    let is_simple = row.idempotency_key.is_none() && !conn.is_in_transaction();
    if !is_simple || conn.dialect() != Dialect::Postgres {
        return Ok(None);
    }
    match insert_in_one_statement(conn, row) {
        // Another transaction has just inserted its unique id.
        Err(DatabaseError(UniqueViolation, _)) => Ok(None),
        done => Ok(done?.map(|id| Inserted::new(id, EnqueueOutcome::New))),
    }
}

/// Inserts a job without a unique id, unless another has its idempotency key.
fn insert_unnamed(conn: &mut Conn<'_>, row: &NewRow) -> QueryResult<Inserted> {
    // The job with the key may be deleted between the two statements.
    for _ in 0..3 {
        let inserted = match conn.dialect() {
            Dialect::Postgres => insert_in_one_statement(conn, row)?,
            Dialect::Sqlite => conn.transaction(|conn| insert_in_steps(conn, row))?,
        };
        if let Some(id) = inserted {
            return Ok(Inserted::new(id, EnqueueOutcome::New));
        }
        if let Some(id) = with_idempotency_key(conn, row.idempotency_key.as_deref())? {
            return Ok(Inserted::new(id, EnqueueOutcome::Existing));
        }
    }
    Err(diesel::result::Error::NotFound)
}

fn with_idempotency_key(conn: &mut Conn<'_>, key: Option<&str>) -> QueryResult<Option<i64>> {
    let Some(key) = key else { return Ok(None) };
    let text = "SELECT id FROM solid_queue_jobs WHERE idempotency_key = $1";
    let job: Option<Id> = Statement::new(text).bind(key).get_result(conn).optional()?;
    Ok(job.map(|row| row.id))
}

/// Returns the ON CONFLICT clause, only with a key: speculative insertion has a cost.
pub(crate) fn on_conflict(shape: JobShape) -> &'static str {
    if shape.has_key {
        "ON CONFLICT (idempotency_key) WHERE idempotency_key IS NOT NULL DO NOTHING"
    } else {
        ""
    }
}

// --- Postgres: in one statement ---

/// A statement, and the columns whose values are its first parameters.
pub(crate) type InsertText = (JobColumns, String);

/// The form of a statement that inserts one job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct OneForm {
    shape: JobShape,
    /// True if the same statement wakes workers. Otherwise it returns whether one is to be woken.
    wakes: bool,
}

#[derive(QueryableByName)]
struct InsertedJob {
    #[diesel(sql_type = BigInt)]
    id: i64,
    #[diesel(sql_type = Bool)]
    is_heard: bool,
}

/// True if a worker listened when this process last enqueued a job. It only decides which statement comes first.
static WAS_HEARD: AtomicBool = AtomicBool::new(true);

/// Inserts on Postgres in one statement, so in one round trip and, outside a transaction of the
/// caller, one commit. The same statement wakes workers, or another if none has listened lately. It has no part for values
/// that the job does not have: these would cost up to a third of its time.
fn insert_in_one_statement(conn: &mut Conn<'_>, row: &NewRow) -> QueryResult<Option<i64>> {
    static TEXTS: LazyLock<Mutex<HashMap<OneForm, Arc<InsertText>>>> =
        LazyLock::new(Mutex::default);
    let shape = JobShape::of([row]);
    let wakes = WAS_HEARD.load(Ordering::Relaxed);
    let mut texts = TEXTS.lock().unwrap_or_else(PoisonError::into_inner);
    let text = texts
        .entry(OneForm { shape, wakes })
        .or_insert_with_key(|form| Arc::new(one_statement(*form)));
    let text = Arc::clone(text);
    drop(texts);
    let (columns, text) = &*text;
    let job = columns.bind(Statement::new(text), row);
    let job = match (shape.has_unique_id, shape.has_key) {
        (true, _) => job.bind(row.unique_scope.column()),
        (false, true) => job,
        (false, false) => job.plain(),
    };
    let Some(job) = job.get_result::<InsertedJob>(conn).optional()? else {
        return Ok(None);
    };
    if job.is_heard != wakes {
        WAS_HEARD.store(job.is_heard, Ordering::Relaxed);
    }
    if job.is_heard && !wakes {
        listening::announce(conn, 1)?;
    }
    Ok(Some(job.id))
}

fn one_statement(OneForm { shape, wakes }: OneForm) -> InsertText {
    let columns = JobColumns::of(shape);
    let (source, taken) = match shape.has_unique_id {
        true => taken_cte(&columns),
        false => {
            let values = columns.parameters();
            (
                format!("VALUES ({values}) {}", on_conflict(shape)),
                String::new(),
            )
        }
    };
    let is_gated = shape.has_limit || shape.has_rate;
    let is_mixed = shape.has_time || shape.has_rate;
    let (returning, entered) = match (is_mixed, is_gated) {
        (true, true) => (blocked::RETURNING, blocked::limited_ctes("job", "entered")),
        (true, false) => (executions::RETURNING, executions::due_cte("entered", "job")),
        (false, true) => {
            let key = columns.parameter("concurrency_key");
            (
                "id",
                blocked::fresh_ctes(&columns, &key, &format!("SELECT {key}")),
            )
        }
        (false, false) => ("id", executions::fresh_cte(&columns)),
    };
    let is_heard = match wakes {
        true => format!("{} > 0", listening::wake("1")),
        false => listening::IS_HEARD.to_owned(),
    };
    let (later, is_heard) = match shape.has_time {
        true => (
            format!(", {}", executions::later_cte("job")),
            format!("CASE WHEN EXISTS (SELECT 1 FROM entered) THEN {is_heard} ELSE {wakes} END"),
        ),
        false => (String::new(), is_heard),
    };
    let text = format!(
        "WITH job AS (INSERT INTO solid_queue_jobs ({}) {source} RETURNING {returning}), {taken}{entered}{later} \
         SELECT id, {is_heard} AS is_heard FROM job",
        columns.names(),
    );
    (columns, Dialect::Postgres.render(&text))
}

/// Returns the source of a job that is only inserted if its unique id has no row, and the CTE that takes the id. Its scope
/// is the parameter behind the columns.
fn taken_cte(columns: &JobColumns) -> (String, String) {
    let unique_id = columns.parameter("unique_id");
    let source = format!(
        "SELECT {} WHERE NOT EXISTS (SELECT 1 FROM windlass_unique_jobs WHERE unique_id = {unique_id})",
        columns.parameters()
    );
    let taken = format!(
        "taken AS (INSERT INTO windlass_unique_jobs (unique_id, job_id, scope) \
           SELECT {unique_id}, id, ${} FROM job), ",
        columns.len() + 1
    );
    (source, taken)
}

// --- SQLite: in steps, in the transaction of the caller ---

#[derive(QueryableByName)]
struct Due {
    #[diesel(sql_type = BigInt)]
    id: i64,
    #[diesel(sql_type = Bool)]
    due: bool,
}

/// Inserts a job, then its execution. Returns `None` if its idempotency key is used.
fn insert_in_steps(conn: &mut Conn<'_>, row: &NewRow) -> QueryResult<Option<i64>> {
    static TEXTS: LazyLock<Mutex<HashMap<JobShape, Arc<InsertText>>>> =
        LazyLock::new(Mutex::default);
    let shape = JobShape::of([row]);
    let mut texts = TEXTS.lock().unwrap_or_else(PoisonError::into_inner);
    let text = texts
        .entry(shape)
        .or_insert_with(|| Arc::new(job_step(shape)));
    let text = Arc::clone(text);
    drop(texts);
    let (columns, text) = &*text;
    let job = columns.bind(Statement::new(text), row);
    let Some(Due { id, due }) = job.get_result::<Due>(conn).optional()? else {
        return Ok(None);
    };
    match (due, row.is_gated()) {
        (true, true) => blocked::insert_blocked(conn, &[id])?,
        (true, false) => executions::insert_due(conn, &[id], Some(row))?,
        (false, _) => drop(executions::insert_later(conn, &[id])?),
    }
    Ok(Some(id))
}

fn job_step(shape: JobShape) -> InsertText {
    let columns = JobColumns::of(shape);
    let due = match shape.has_time {
        true => "scheduled_at IS NULL OR scheduled_at <= {now}",
        false => "true",
    };
    let text = format!(
        "INSERT INTO solid_queue_jobs ({}) VALUES ({}) {} RETURNING id, {due} AS due",
        columns.names(),
        columns.parameters(),
        on_conflict(shape)
    );
    (columns, Dialect::Sqlite.render(&text))
}
