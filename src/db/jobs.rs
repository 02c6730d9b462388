//! `solid_queue_jobs`: enqueueing, and looking a job up.

use super::conn::{Conn, on};
use super::named;
use super::sql::{Dialect, cached, id_list, sql};
use super::unique::{OnConflict, UniqueScope};
use chrono::{Datelike, NaiveDateTime};
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Bool, Integer, Nullable, Text};

/// One job to be inserted.
#[derive(Debug, Clone)]
pub(crate) struct NewRow {
    pub(crate) queue_name: String,
    pub(crate) class_name: String,
    pub(crate) arguments: String,
    pub(crate) priority: i32,
    pub(crate) active_job_id: Option<String>,
    /// Wins over `delay`.
    pub(crate) at: Option<NaiveDateTime>,
    /// Microseconds from the database's now.
    pub(crate) delay: Option<i64>,
    pub(crate) idempotency_key: Option<String>,
    pub(crate) max_attempts: Option<i32>,
    pub(crate) max_crashes: Option<i32>,
    pub(crate) at_most_once: bool,
    pub(crate) policy: Option<String>,
    pub(crate) unique_id: Option<String>,
    pub(crate) unique_scope: UniqueScope,
    pub(crate) on_conflict: OnConflict,
    /// The priority is to be the time, so many seconds ahead; see
    /// [`rank_by_time`].
    pub(crate) ahead_by: Option<i64>,
    pub(crate) limit: Option<NewLimit>,
}

/// How many jobs of a key may be ready or claimed at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NewLimit {
    /// With its group: `import/7`.
    pub(crate) key: String,
    pub(crate) slots: i32,
    /// Ends a job that finds no slot, instead of letting it wait.
    pub(crate) discards: bool,
}

impl NewRow {
    /// A job of which nothing else is said.
    pub(crate) fn new(class: String, arguments: String, queue: String, priority: i32) -> Self {
        NewRow {
            queue_name: queue,
            class_name: class,
            arguments,
            priority,
            active_job_id: None,
            at: None,
            delay: None,
            idempotency_key: None,
            max_attempts: None,
            max_crashes: None,
            at_most_once: false,
            policy: None,
            unique_id: None,
            unique_scope: UniqueScope::default(),
            on_conflict: OnConflict::default(),
            ahead_by: None,
            limit: None,
        }
    }

    pub(super) fn concurrency_key(&self) -> Option<&str> {
        self.limit.as_ref().map(|limit| &*limit.key)
    }

    pub(super) fn concurrency_limit(&self) -> Option<i32> {
        self.limit.as_ref().map(|limit| limit.slots)
    }

    pub(super) fn concurrency_on_conflict(&self) -> Option<&'static str> {
        let limit = self.limit.as_ref()?;
        limit.discards.then_some("discard")
    }

    /// Whether it may find a job that is there already.
    pub(super) fn is_named(&self) -> bool {
        self.idempotency_key.is_some() || self.unique_id.is_some()
    }
}

/// What an enqueue came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum EnqueueOutcome {
    /// The job is new.
    New,
    /// It is new, and begins when the one that runs under its unique id has
    /// ended.
    Again,
    /// A job with this idempotency key, or one that holds this unique id, was
    /// there already, and stays as it is.
    Existing,
    /// The job that holds this unique id waited, and is now what the new one
    /// would have been.
    Replaced,
    /// A job that holds this unique id was there already, and
    /// [`OnConflict::Refuse`] minds.
    Refused,
}

/// What an insert did.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Inserted {
    pub(crate) id: i64,
    /// False when a job was there already.
    pub(crate) is_new: bool,
    pub(crate) outcome: EnqueueOutcome,
}

impl Inserted {
    pub(super) fn new(id: i64, outcome: EnqueueOutcome) -> Self {
        Inserted {
            id,
            is_new: matches!(outcome, EnqueueOutcome::New | EnqueueOutcome::Again),
            outcome,
        }
    }
}

#[derive(QueryableByName)]
pub(super) struct Id {
    #[diesel(sql_type = BigInt)]
    pub(super) id: i64,
}

/// A text that both databases take for a timestamp, as Rails writes it. A
/// year of five digits would come first in SQLite's order, so it is cut.
pub(crate) fn timestamp(time: NaiveDateTime) -> String {
    if time.year() > 9999 {
        return "9999-12-31 23:59:59.000000".to_owned();
    }
    time.format("%Y-%m-%d %H:%M:%S%.6f").to_string()
}

/// Inserts one job and its ready or scheduled execution.
pub(crate) fn insert(conn: &mut Conn<'_>, row: &NewRow) -> QueryResult<Inserted> {
    if row.unique_id.is_some() {
        let inserted = conn.transaction(|conn| named::insert(conn, std::slice::from_ref(row)))?;
        return inserted
            .into_iter()
            .next()
            .ok_or(diesel::result::Error::NotFound);
    }
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

/// The columns of a new job, in the order of the binds; `$7` is left to the
/// delay.
pub(super) const COLUMNS: &str = "queue_name, class_name, arguments, priority, active_job_id, scheduled_at, \
     idempotency_key, max_attempts, max_crashes, at_most_once, policy, unique_id, concurrency_key, concurrency_limit, \
     concurrency_on_conflict, created_at, updated_at";

pub(super) const VALUES: &str = "$1, $2, $3, $4, $5, coalesce({time $6}, {later $7}), $8, $9, $10, $11, $12, $13, $14, $15, $16, \
     {now}, {now}";

/// Only with a key: the speculative insertion of ON CONFLICT is not free.
fn on_conflict(row: &NewRow) -> &'static str {
    match row.idempotency_key {
        Some(_) => "ON CONFLICT (idempotency_key) WHERE idempotency_key IS NOT NULL DO NOTHING",
        None => "",
    }
}

fn insert_unless_known(conn: &mut Conn<'_>, row: &NewRow) -> QueryResult<Option<i64>> {
    match conn {
        #[cfg(feature = "postgres")]
        Conn::Postgres(_) => insert_in_one_statement(conn, row),
        #[cfg(feature = "sqlite")]
        Conn::Sqlite(_) => conn.transaction(|conn| insert_step_by_step(conn, row, (None, false))),
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
fn insert_in_one_statement(conn: &mut Conn<'_>, row: &NewRow) -> QueryResult<Option<i64>> {
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
            super::blocked::RETURNING,
            super::blocked::limited_ctes("job", "entered"),
        ),
    };
    let text = conn.write(&format!(
        "WITH job AS (INSERT INTO solid_queue_jobs ({COLUMNS}) VALUES ({VALUES}) {} RETURNING {returning}), \
         {entered}, \
         later AS (INSERT INTO solid_queue_scheduled_executions (job_id, queue_name, priority, scheduled_at, created_at) \
           SELECT id, queue_name, priority, scheduled_at, {{now}} FROM job WHERE scheduled_at > {{now}}) \
         SELECT id, CASE WHEN EXISTS (SELECT 1 FROM entered) THEN {wake} END AS notified FROM job",
        on_conflict(row),
        wake = super::wakeup::wake("1"),
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
        wake = super::wakeup::wake("1"),
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
pub(super) fn insert_step_by_step(
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
        named::block(conn, id)?;
        return Ok(Some(id));
    }
    if due && row.limit.is_some() {
        super::blocked::insert(conn, &[id])?;
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

fn with_idempotency_key(conn: &mut Conn<'_>, key: Option<&str>) -> QueryResult<Option<i64>> {
    use super::schema::solid_queue_jobs::dsl;
    let Some(key) = key else { return Ok(None) };
    on!(conn, |c| dsl::solid_queue_jobs
        .select(dsl::id)
        .filter(dsl::idempotency_key.eq(key))
        .first(c)
        .optional())
}

/// Rows of one statement: well below the limits on binds and message sizes.
pub(super) const CHUNK: usize = 1_000;

/// Inserts many jobs, all or none, and returns what became of each, in order.
pub(crate) fn insert_all(conn: &mut Conn<'_>, rows: &[NewRow]) -> QueryResult<Vec<Inserted>> {
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    if rows.iter().any(|row| row.is_named() || row.limit.is_some()) {
        return conn.transaction(|conn| named::insert(conn, rows));
    }
    // On Postgres one statement is a transaction; BEGIN and COMMIT would be
    // round trips for nothing. Within the caller's own a savepoint keeps that
    // alive should the statement fail.
    let is_one_statement = rows.len() <= CHUNK && conn.dialect() == Dialect::Postgres;
    let ids = if is_one_statement && !conn.is_in_transaction() {
        super::bulk::insert(conn, rows)?
    } else {
        conn.transaction(|conn| {
            let mut ids = Vec::with_capacity(rows.len());
            for chunk in rows.chunks(CHUNK) {
                ids.append(&mut super::bulk::insert(conn, chunk)?);
            }
            QueryResult::Ok(ids)
        })?
    };
    let new = |id| Inserted::new(id, EnqueueOutcome::New);
    Ok(ids.into_iter().map(new).collect())
}

#[derive(QueryableByName)]
struct LastClaim {
    #[diesel(sql_type = BigInt)]
    last_claim_id: i64,
}

/// Of the claims `(claim, job)`, those whose job is gone: where finished jobs
/// are deleted, an ending whose COMMIT got no answer leaves no other trace.
pub(crate) fn claims_without_job(
    conn: &mut Conn<'_>,
    claims: &[(i64, i64)],
) -> QueryResult<Vec<i64>> {
    let jobs: Vec<i64> = claims.iter().map(|(_, job)| *job).collect();
    let text = conn.write("SELECT id FROM solid_queue_jobs WHERE id IN {in $1}");
    let there: Vec<Id> = on!(conn, |c| cached(sql(text).bind::<Text, _>(id_list(&jobs)))
        .load(c))?;
    Ok(claims
        .iter()
        .filter(|(_, job)| there.iter().all(|row| row.id != *job))
        .map(|(claim, _)| *claim)
        .collect())
}

/// Whether its owner has ended this claim `(claim, job)`: by the job's word, or
/// because the row of a job that finished was not kept.
pub(crate) fn ended_by_owner(conn: &mut Conn<'_>, claim: (i64, i64)) -> QueryResult<bool> {
    Ok(
        !ended_claims(conn, &[claim])?.is_empty()
            || !claims_without_job(conn, &[claim])?.is_empty(),
    )
}

/// Of the claims `(claim, job)`, those that their owner has ended: what a
/// worker asks after an ending whose COMMIT got no answer.
pub(crate) fn ended_claims(conn: &mut Conn<'_>, claims: &[(i64, i64)]) -> QueryResult<Vec<i64>> {
    let jobs: Vec<i64> = claims.iter().map(|(_, job)| *job).collect();
    let text = conn.write(
        "SELECT last_claim_id FROM solid_queue_jobs WHERE id IN {in $1} AND last_claim_id IS NOT NULL",
    );
    let ended: Vec<LastClaim> = on!(conn, |c| cached(sql(text).bind::<Text, _>(id_list(&jobs)))
        .load(c))?;
    Ok(ended
        .into_iter()
        .map(|row| row.last_claim_id)
        .filter(|id| claims.iter().any(|(claim, _)| claim == id))
        .collect())
}
