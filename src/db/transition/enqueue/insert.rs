//! Inserts one job and its first execution.

use crate::db::conn::connection::{Conn, on};
#[cfg(feature = "postgres")]
use crate::db::conn::sql::Id;
use crate::db::conn::sql::{cached, sql, timestamp};
use crate::db::model::new_row::{EnqueueOutcome, Inserted, NewRow};
use crate::db::table::blocked;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Bool, Integer, Nullable, Text};

/// The columns of a new job, in the order of the binds; `$7` is left to the
/// delay.
pub(crate) const COLUMNS: &str = "queue_name, class_name, arguments, priority, active_job_id, scheduled_at, \
     idempotency_key, max_attempts, max_crashes, at_most_once, policy, unique_id, concurrency_key, concurrency_limit, \
     concurrency_on_conflict, created_at, updated_at";

pub(crate) const VALUES: &str = "$1, $2, $3, $4, $5, coalesce({time $6}, {later $7}), $8, $9, $10, $11, $12, $13, $14, $15, $16, \
     {now}, {now}";

/// Only with a key: the speculative insertion of ON CONFLICT is not free.
fn on_conflict(row: &NewRow) -> &'static str {
    match row.idempotency_key {
        Some(_) => "ON CONFLICT (idempotency_key) WHERE idempotency_key IS NOT NULL DO NOTHING",
        None => "",
    }
}

/// Binds `COLUMNS` to a statement; `delay` is bound even when `at` wins.
macro_rules! bind_columns {
    ($statement:expr, $row:expr) => {
        $statement
            .bind::<Text, _>(&$row.queue_name)
            .bind::<Text, _>(&$row.class_name)
            .bind::<Text, _>(&$row.arguments)
            .bind::<Integer, _>($row.priority)
            .bind::<Nullable<Text>, _>(&$row.active_job_id)
            .bind::<Nullable<Text>, _>($row.at.map(timestamp))
            .bind::<Nullable<BigInt>, _>($row.delay)
            .bind::<Nullable<Text>, _>(&$row.idempotency_key)
            .bind::<Nullable<Integer>, _>($row.max_attempts)
            .bind::<Nullable<Integer>, _>($row.max_crashes)
            .bind::<Bool, _>($row.at_most_once)
            .bind::<Nullable<Text>, _>(&$row.policy)
            .bind::<Nullable<Text>, _>(&$row.unique_id)
            .bind::<Nullable<Text>, _>($row.concurrency_key())
            .bind::<Nullable<Integer>, _>($row.concurrency_limit())
            .bind::<Nullable<Text>, _>($row.concurrency_on_conflict())
    };
}

/// Postgres: one statement, so one round trip and, outside a transaction of
/// the caller, one commit. Whoever sleeps is notified by the same statement.
#[cfg(feature = "postgres")]
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
    let (returning, entered) = match row.limit {
        None => (
            "id, queue_name, priority, class_name, at_most_once, crash_count, max_crashes, scheduled_at",
            "entered AS (INSERT INTO solid_queue_ready_executions (job_id, queue_name, priority, class_name, cautious, created_at) \
               SELECT id, queue_name, priority, class_name, {cautious}, {now} FROM job \
               WHERE scheduled_at IS NULL OR scheduled_at <= {now} RETURNING 1)"
                .to_owned(),
        ),
        Some(_) => (
            blocked::RETURNING,
            blocked::limited_ctes("job", "entered"),
        ),
    };
    let text = conn.write(&format!(
        "WITH job AS (INSERT INTO solid_queue_jobs ({COLUMNS}) VALUES ({VALUES}) {} RETURNING {returning}), \
         {entered}, \
         later AS (INSERT INTO solid_queue_scheduled_executions (job_id, queue_name, priority, scheduled_at, created_at) \
           SELECT id, queue_name, priority, scheduled_at, {{now}} FROM job WHERE scheduled_at > {{now}}) \
         SELECT id, CASE WHEN EXISTS (SELECT 1 FROM entered) THEN {wake} END AS notified FROM job",
        on_conflict(row),
        wake = crate::db::conn::wakeup::wake("1"),
    ));
    on!(conn, |c| cached(bind_columns!(sql(text), row))
        .get_result::<Id>(c))
    .optional()
    .map(|row| row.map(|row| row.id))
}

/// The same for a job that is due at once and has no key, as most have not:
/// what the others need costs a tenth of the statement.
#[cfg(feature = "postgres")]
fn insert_due(conn: &mut Conn<'_>, row: &NewRow) -> QueryResult<i64> {
    let text = conn.write(&format!(
        "WITH job AS (INSERT INTO solid_queue_jobs (queue_name, class_name, arguments, priority, active_job_id, \
             max_attempts, max_crashes, at_most_once, policy, unique_id, created_at, updated_at) \
           VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, {{now}}, {{now}}) RETURNING id), \
         ready AS (INSERT INTO solid_queue_ready_executions (job_id, queue_name, priority, class_name, cautious, created_at) \
           SELECT id, $1, $4, $2, $8 OR coalesce($7 = 0, false), {{now}} FROM job) \
         SELECT id, {wake} AS notified FROM job",
        wake = crate::db::conn::wakeup::wake("1"),
    ));
    on!(conn, |c| cached(
        sql(text)
            .bind::<Text, _>(&row.queue_name)
            .bind::<Text, _>(&row.class_name)
            .bind::<Text, _>(&row.arguments)
            .bind::<Integer, _>(row.priority)
            .bind::<Nullable<Text>, _>(&row.active_job_id)
            .bind::<Nullable<Integer>, _>(row.max_attempts)
            .bind::<Nullable<Integer>, _>(row.max_crashes)
            .bind::<Bool, _>(row.at_most_once)
            .bind::<Nullable<Text>, _>(&row.policy)
            .bind::<Nullable<Text>, _>(&row.unique_id)
    )
    .get_result::<Id>(c))
    .map(|row| row.id)
}

#[cfg(feature = "sqlite")]
#[derive(QueryableByName)]
struct Due {
    #[diesel(sql_type = BigInt)]
    id: i64,
    #[diesel(sql_type = Bool)]
    due: bool,
}

#[cfg(feature = "sqlite")]
pub(crate) fn insert_step_by_step(
    conn: &mut Conn<'_>,
    row: &NewRow,
    (id, is_blocked): (Option<i64>, bool),
) -> QueryResult<Option<i64>> {
    let text = conn.write(&format!(
        "INSERT INTO solid_queue_jobs ({COLUMNS}, id) VALUES ({VALUES}, $17) {} \
         RETURNING id, scheduled_at IS NULL OR scheduled_at <= {{now}} AS due",
        on_conflict(row)
    ));
    let Some(Due { id, due }) = on!(conn, |c| cached(
        bind_columns!(sql(text), row).bind::<Nullable<BigInt>, _>(id)
    )
    .get_result::<Due>(c))
    .optional()?
    else {
        return Ok(None);
    };
    if is_blocked {
        blocked::block(conn, id)?;
        return Ok(Some(id));
    }
    if due && row.limit.is_some() {
        blocked::insert(conn, &[id])?;
        return Ok(Some(id));
    }
    let text = conn.write(if due {
        "INSERT INTO solid_queue_ready_executions (job_id, queue_name, priority, class_name, cautious, created_at) \
         SELECT id, queue_name, priority, class_name, {cautious}, created_at FROM solid_queue_jobs WHERE id = $1"
    } else {
        "INSERT INTO solid_queue_scheduled_executions (job_id, queue_name, priority, scheduled_at, created_at) \
         SELECT id, queue_name, priority, scheduled_at, created_at FROM solid_queue_jobs WHERE id = $1"
    });
    on!(conn, |c| cached(sql(text).bind::<BigInt, _>(id)).execute(c))?;
    Ok(Some(id))
}

pub(crate) fn with_idempotency_key(
    conn: &mut Conn<'_>,
    key: Option<&str>,
) -> QueryResult<Option<i64>> {
    use crate::db::schema::tables::solid_queue_jobs::dsl;
    let Some(key) = key else { return Ok(None) };
    on!(conn, |c| dsl::solid_queue_jobs
        .select(dsl::id)
        .filter(dsl::idempotency_key.eq(key))
        .first(c)
        .optional())
}

/// Rows of one statement: well below the limits on binds and message sizes.
pub(crate) const CHUNK: usize = 1_000;

/// Inserts one job that has no unique id, unless another has its idempotency
/// key.
pub(crate) fn insert_unnamed(conn: &mut Conn<'_>, row: &NewRow) -> QueryResult<Inserted> {
    // A job that holds the key may be deleted between the two looks.
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
    match conn {
        #[cfg(feature = "postgres")]
        Conn::Postgres(_) => insert_in_one_statement(conn, row),
        #[cfg(feature = "sqlite")]
        Conn::Sqlite(_) => conn.transaction(|conn| insert_step_by_step(conn, row, (None, false))),
    }
}
