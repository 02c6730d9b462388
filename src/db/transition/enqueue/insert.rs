//! Inserts one job and its first execution.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::Dialect;
use crate::db::conn::sql::Id;
use crate::db::conn::statement::Statement;
use crate::db::conn::wakeup;
use crate::db::model::job_columns::JobColumns;
use crate::db::model::new_row::{EnqueueOutcome, Inserted, NewRow};
use crate::db::table::blocked;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Bool};
use std::sync::LazyLock;

/// Returns the ON CONFLICT clause, only with a key: speculative insertion has a cost.
fn on_conflict(has_key: bool) -> &'static str {
    if has_key {
        "ON CONFLICT (idempotency_key) WHERE idempotency_key IS NOT NULL DO NOTHING"
    } else {
        ""
    }
}

/// Inserts on Postgres in one statement, so in one round trip and, outside a transaction of the
/// caller, one commit. The same statement notifies sleeping workers.
pub(crate) fn insert_in_one_statement(
    conn: &mut Conn<'_>,
    row: &NewRow,
) -> QueryResult<Option<i64>> {
    if row.at.is_none()
        && row.delay.is_none()
        && row.idempotency_key.is_none()
        && row.limit.is_none()
    {
        return insert_due(conn, row).map(Some);
    }
    /// By whether the job has a limit, and whether it has a key.
    static ANY: LazyLock<[[String; 2]; 2]> = LazyLock::new(|| {
        [false, true].map(|is_limited| {
            [false, true].map(|has_key| {
                let job = format!(
                    "job AS (INSERT INTO solid_queue_jobs ({}) VALUES ({}) {}",
                    ALL.names(),
                    ALL.parameters(),
                    on_conflict(has_key)
                );
                in_one_statement(&job, is_limited)
            })
        })
    });
    let text = &ANY[usize::from(row.limit.is_some())][usize::from(row.idempotency_key.is_some())];
    let job = ALL.bind(Statement::new(text), row);
    let id = job.get_result::<Id>(conn).optional()?;
    Ok(id.map(|row| row.id))
}

/// The columns of a job of which nothing is known.
static ALL: LazyLock<JobColumns> = LazyLock::new(JobColumns::all);

/// Inserts on Postgres, in one statement, a job whose unique id has no row and that has no key.
/// Returns `None` if there is one, to be looked at step by step.
pub(crate) fn insert_if_free(conn: &mut Conn<'_>, row: &NewRow) -> QueryResult<Option<i64>> {
    /// By whether the job has a limit.
    static FREE: LazyLock<[String; 2]> = LazyLock::new(|| {
        [false, true].map(|is_limited| {
            let job = format!(
                "taken AS (INSERT INTO windlass_unique_jobs (unique_id, job_id, scope) \
                   VALUES ({}, nextval(CAST(pg_get_serial_sequence('solid_queue_jobs', 'id') AS regclass)), ${}) \
                   ON CONFLICT (unique_id) DO NOTHING RETURNING job_id), \
                 job AS (INSERT INTO solid_queue_jobs ({}, id) SELECT {}, job_id FROM taken",
                ALL.parameter("unique_id"),
                ALL.len() + 1,
                ALL.names(),
                ALL.parameters(),
            );
            in_one_statement(&job, is_limited)
        })
    });
    let text = &FREE[usize::from(row.limit.is_some())];
    let job = ALL
        .bind(Statement::new(text), row)
        .bind(row.unique_scope.column());
    let id = job.get_result::<Id>(conn).optional()?;
    Ok(id.map(|row| row.id))
}

/// Returns the statement that begins with the CTE `job`, from which the RETURNING is missing.
fn in_one_statement(job: &str, is_limited: bool) -> String {
    let (returning, entered) = if is_limited {
        (blocked::RETURNING, blocked::limited_ctes("job", "entered"))
    } else {
        (
            "id, queue_name, priority, class_name, at_most_once, crash_count, max_crashes, scheduled_at",
            "entered AS (INSERT INTO solid_queue_ready_executions (job_id, queue_name, priority, class_name, cautious, created_at) \
               SELECT id, queue_name, priority, class_name, {cautious}, {now} FROM job \
               WHERE scheduled_at IS NULL OR scheduled_at <= {now} RETURNING 1)"
                .to_owned(),
        )
    };
    format!(
        "WITH {job} RETURNING {returning}), \
         {entered}, \
         later AS (INSERT INTO solid_queue_scheduled_executions (job_id, queue_name, priority, scheduled_at, created_at) \
           SELECT id, queue_name, priority, scheduled_at, {{now}} FROM job WHERE scheduled_at > {{now}}) \
         SELECT id, CASE WHEN EXISTS (SELECT 1 FROM entered) THEN {wake} END AS notified FROM job",
        wake = wakeup::wake("1"),
    )
}

/// Inserts a job that is due at once and has no key, as most are: the parts for the others cost a
/// tenth of the statement's time.
fn insert_due(conn: &mut Conn<'_>, row: &NewRow) -> QueryResult<i64> {
    static DUE: LazyLock<(JobColumns, String)> = LazyLock::new(|| {
        let columns = JobColumns::due();
        let text = format!(
            "WITH job AS (INSERT INTO solid_queue_jobs ({}) VALUES ({}) RETURNING id), \
             ready AS (INSERT INTO solid_queue_ready_executions (job_id, queue_name, priority, class_name, cautious, created_at) \
               SELECT id, {}, {{now}} FROM job) \
             SELECT id, {} AS notified FROM job",
            columns.names(),
            columns.parameters(),
            ready(&columns),
            wakeup::wake("1"),
        );
        (columns, text)
    });
    let (columns, text) = &*DUE;
    let job = columns.bind(Statement::new(text), row);
    job.get_result::<Id>(conn).map(|row| row.id)
}

/// Returns the values of a new job's ready execution for `queue_name, priority, class_name,
/// cautious`, from the parameters of the job.
pub(crate) fn ready(columns: &JobColumns) -> String {
    format!(
        "{}, {}, {}, {} OR coalesce({} = 0, false)",
        columns.parameter("queue_name"),
        columns.parameter("priority"),
        columns.parameter("class_name"),
        columns.parameter("at_most_once"),
        columns.parameter("max_crashes"),
    )
}

#[derive(QueryableByName)]
struct Due {
    #[diesel(sql_type = BigInt)]
    id: i64,
    #[diesel(sql_type = Bool)]
    due: bool,
}

/// Inserts one job on SQLite, then its execution. Returns `None` if its idempotency key is used.
pub(crate) fn insert_step_by_step(conn: &mut Conn<'_>, row: &NewRow) -> QueryResult<Option<i64>> {
    /// By whether the job has a key.
    static STEP: LazyLock<[String; 2]> = LazyLock::new(|| {
        [false, true].map(|has_key| {
            format!(
                "INSERT INTO solid_queue_jobs ({}) VALUES ({}) {} \
                 RETURNING id, scheduled_at IS NULL OR scheduled_at <= {{now}} AS due",
                ALL.names(),
                ALL.parameters(),
                on_conflict(has_key)
            )
        })
    });
    let text = &STEP[usize::from(row.idempotency_key.is_some())];
    let job = ALL.bind(Statement::new(text), row);
    let Some(Due { id, due }) = job.get_result::<Due>(conn).optional()? else {
        return Ok(None);
    };
    if due && row.limit.is_some() {
        blocked::insert(conn, &[id])?;
        return Ok(Some(id));
    }
    let text = if due {
        "INSERT INTO solid_queue_ready_executions (job_id, queue_name, priority, class_name, cautious, created_at) \
         SELECT id, queue_name, priority, class_name, {cautious}, created_at FROM solid_queue_jobs WHERE id = $1"
    } else {
        "INSERT INTO solid_queue_scheduled_executions (job_id, queue_name, priority, scheduled_at, created_at) \
         SELECT id, queue_name, priority, scheduled_at, created_at FROM solid_queue_jobs WHERE id = $1"
    };
    Statement::new(text).bind(id).execute(conn)?;
    Ok(Some(id))
}

pub(crate) fn with_idempotency_key(
    conn: &mut Conn<'_>,
    key: Option<&str>,
) -> QueryResult<Option<i64>> {
    let Some(key) = key else { return Ok(None) };
    let text = "SELECT id FROM solid_queue_jobs WHERE idempotency_key = $1";
    let job: Option<Id> = Statement::new(text).bind(key).get_result(conn).optional()?;
    Ok(job.map(|row| row.id))
}

/// The rows of one statement: well below the limits on parameters and message sizes.
pub(crate) const CHUNK: usize = 1_000;

/// Inserts one job without a unique id, unless another has its idempotency key.
pub(crate) fn insert_unnamed(conn: &mut Conn<'_>, row: &NewRow) -> QueryResult<Inserted> {
    // The job with the key may be deleted between the two statements.
    for _ in 0..3 {
        if let Some(id) = insert_unless_known(conn, row)? {
            return Ok(Inserted::new(id, EnqueueOutcome::New));
        }
        if let Some(id) = with_idempotency_key(conn, row.idempotency_key.as_deref())? {
            return Ok(Inserted::new(id, EnqueueOutcome::Existing));
        }
    }
    Err(diesel::result::Error::NotFound)
}

fn insert_unless_known(conn: &mut Conn<'_>, row: &NewRow) -> QueryResult<Option<i64>> {
    match conn.dialect() {
        Dialect::Postgres => insert_in_one_statement(conn, row),
        Dialect::Sqlite => conn.transaction(|conn| insert_step_by_step(conn, row)),
    }
}
