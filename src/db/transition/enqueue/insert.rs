//! Inserts one job and its first execution.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::{Dialect, Id};
use crate::db::conn::listening;
use crate::db::conn::statement::Statement;
use crate::db::model::job_columns::{JobColumns, JobTraits};
use crate::db::model::new_row::{EnqueueOutcome, Inserted, NewRow};
use crate::db::table::blocked;
use chrono::{NaiveDate, NaiveDateTime};
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
    if is_due(row) {
        return insert_due(conn, row);
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
    let mut job = ALL.bind(Statement::new(text), row);
    if row.idempotency_key.is_none() {
        job = job.plain();
    }
    let id = job.get_result::<Id>(conn).optional()?;
    Ok(id.map(|row| row.id))
}

/// The columns of a job of which nothing is known.
static ALL: LazyLock<JobColumns> = LazyLock::new(JobColumns::all);

/// Inserts on Postgres, in one statement, a job whose unique id has no row and that has no key.
/// Returns `None` if there is one, to be looked at step by step.
pub(crate) fn insert_if_free(conn: &mut Conn<'_>, row: &NewRow) -> QueryResult<Option<i64>> {
    use diesel::result::{DatabaseErrorKind::UniqueViolation, Error::DatabaseError};
    if is_due(row) {
        return match insert_due(conn, row) {
            // Another transaction has just inserted it.
            Err(DatabaseError(UniqueViolation, _)) => Ok(None),
            done => done,
        };
    }
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
        wake = listening::wake("1"),
    )
}

fn is_due(row: &NewRow) -> bool {
    row.at.is_none() && row.delay.is_none() && row.idempotency_key.is_none()
}

/// Inserts a job that is due at once and has no idempotency key, as most are: the parts for the
/// others cost up to a third of the statement's time. Returns `None`, and inserts nothing, if its
/// unique id has a row.
fn insert_due(conn: &mut Conn<'_>, row: &NewRow) -> QueryResult<Option<i64>> {
    static DUE: LazyLock<[(JobColumns, String); 4]> = LazyLock::new(|| {
        JobTraits::ALL.map(|traits| {
            let columns = JobColumns::due(traits);
            let text = due_statement(&columns, traits);
            (columns, text)
        })
    });
    let traits = JobTraits::of(row);
    let (columns, text) = &DUE[traits.index()];
    let job = columns.bind(Statement::new(text), row);
    let job = match traits.has_unique_id {
        true => job.bind(row.unique_scope.column()),
        false => job.plain(),
    };
    let id = job.get_result::<Id>(conn).optional()?;
    Ok(id.map(|row| row.id))
}

fn due_statement(columns: &JobColumns, traits: JobTraits) -> String {
    let (names, values) = (columns.names(), columns.parameters());
    let entered = if traits.has_limit {
        let key = columns.parameter("concurrency_key");
        blocked::fresh_ctes(columns, &key, &format!("SELECT {key}"))
    } else {
        ready_cte(columns)
    };
    let (insert, taken) = if traits.has_unique_id {
        let unique_id = columns.parameter("unique_id");
        let insert = format!(
            "SELECT {values} WHERE NOT EXISTS (SELECT 1 FROM windlass_unique_jobs WHERE unique_id = {unique_id})"
        );
        let taken = format!(
            "taken AS (INSERT INTO windlass_unique_jobs (unique_id, job_id, scope) \
               SELECT {unique_id}, id, ${} FROM job), ",
            columns.len() + 1
        );
        (insert, taken)
    } else {
        (format!("VALUES ({values})"), String::new())
    };
    format!(
        "WITH job AS (INSERT INTO solid_queue_jobs ({names}) {insert} RETURNING id), {taken}{entered} \
         SELECT id, {} AS notified FROM job",
        listening::wake("1"),
    )
}

/// Returns the CTE of a Postgres statement that makes the new jobs of `job` ready, from the
/// parameters that they have in common.
pub(crate) fn ready_cte(columns: &JobColumns) -> String {
    format!(
        "ready AS (INSERT INTO solid_queue_ready_executions (job_id, queue_name, priority, class_name, cautious, created_at) \
           SELECT id, {}, {}, {}, {} OR coalesce({} = 0, false), {{now}} FROM job)",
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
        blocked::insert_blocked(conn, &[id])?;
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

// --- Assigns the ids of jobs before they are inserted ---

/// Assigns the ids of this many jobs, ascending. Not all of them need to be used.
pub(crate) fn reserve(conn: &mut Conn<'_>, count: usize) -> QueryResult<Vec<i64>> {
    let wanted = count as i64;
    match conn.dialect() {
        Dialect::Postgres => {
            let text = "WITH once AS MATERIALIZED (SELECT pg_get_serial_sequence('solid_queue_jobs', 'id')::regclass AS ids) \
                 SELECT nextval(once.ids) AS id FROM once CROSS JOIN generate_series(1, $1) AS number";
            let ids: Vec<Id> = Statement::new(text).bind(wanted).load(conn)?;
            Ok(ids.into_iter().map(|row| row.id).collect())
        }
        Dialect::Sqlite => {
            let last = match advance(conn, wanted).optional()? {
                Some(last) => last,
                None => {
                    // There is no row before the first job, and no constraint on it.
                    let text =
                        "INSERT INTO sqlite_sequence (name, seq) VALUES ('solid_queue_jobs', 0)";
                    Statement::new(text).execute(conn)?;
                    advance(conn, wanted)?
                }
            };
            Ok((last.id - wanted + 1..=last.id).collect())
        }
    }
}

fn advance(conn: &mut Conn<'_>, by: i64) -> QueryResult<Id> {
    let text = "UPDATE sqlite_sequence SET seq = seq + $1 WHERE name = 'solid_queue_jobs' \
         RETURNING seq AS id";
    Statement::new(text).bind(by).get_result(conn)
}

// --- Priorities that are times ---

/// Sets the priority of the rows that ask for it to the second from which they wait: the database's
/// current time, or when they are due. They are then ordered by these times, whenever they were
/// enqueued.
///
/// The clock is read by a statement before the insert, which has no expression for it: only callers
/// of this feature pay for it.
pub(crate) fn rank_by_time(conn: &mut Conn<'_>, rows: &mut [NewRow]) -> QueryResult<()> {
    if rows.iter().all(|row| row.ahead_by.is_none()) {
        return Ok(());
    }
    let now = now(conn)?;
    for row in rows {
        let Some(ahead_by) = row.ahead_by else {
            continue;
        };
        let due = match (row.at, row.delay) {
            (Some(at), _) => at.and_utc().timestamp() - epoch(),
            (None, delay) => now.saturating_add(delay.unwrap_or(0) / 1_000_000),
        };
        row.priority = priority(due.max(now), ahead_by);
    }
    Ok(())
}

/// Returns the priority of a job that waits from a time on.
pub(crate) fn rank(from: NaiveDateTime, ahead_by: i64) -> i32 {
    priority(from.and_utc().timestamp() - epoch(), ahead_by)
}

/// In seconds since [`epoch`].
fn priority(from: i64, ahead_by: i64) -> i32 {
    let rank = from.saturating_sub(ahead_by);
    i32::try_from(rank).unwrap_or(if rank < 0 { i32::MIN } else { i32::MAX })
}

/// The year 2020 in Unix seconds, so that a priority, which has 32 bits, covers 1952 to 2088.
fn epoch() -> i64 {
    NaiveDate::from_ymd_opt(2020, 1, 1)
        .unwrap_or_default()
        .and_time(chrono::NaiveTime::MIN)
        .and_utc()
        .timestamp()
}

#[derive(QueryableByName)]
struct EpochSeconds {
    #[diesel(sql_type = BigInt)]
    seconds: i64,
}

fn now(conn: &mut Conn<'_>) -> QueryResult<i64> {
    let text = match conn.dialect() {
        Dialect::Postgres => {
            "SELECT CAST(floor(extract(epoch FROM statement_timestamp())) AS bigint) AS seconds"
        }
        Dialect::Sqlite => "SELECT CAST(strftime('%s', 'now') AS bigint) AS seconds",
    };
    let now: EpochSeconds = Statement::new(text).get_result(conn)?;
    Ok(now.seconds - epoch())
}
