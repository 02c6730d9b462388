//! `windlass_fair_queues`, `windlass_shares` and `windlass_tenants`: queues whose threads are shared between tenants.
//!
//! Times are those of [`rates`](super::rates).

mod change;
mod status;

pub(crate) use change::*;
pub use status::{FairQueue, ShareBy, TenantStatus, standing_for, waiting_jobs};
pub(crate) use status::{list_queues, list_tenants};

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::{Dialect, id_list};
use crate::db::conn::statement::{InputRows, Param, Statement};
use crate::db::model::gate_line::ShareOf;
use crate::db::table::rates::{REFUSED, STEPS, bind_texts, is_one_of, micros_now};
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Bool, Integer, Nullable, Text};
use std::collections::{BTreeMap, BTreeSet};

#[derive(QueryableByName)]
struct FairQueueName {
    #[diesel(sql_type = Text)]
    queue_name: String,
}

fn names(rows: Vec<FairQueueName>) -> BTreeSet<String> {
    rows.into_iter().map(|row| row.queue_name).collect()
}

/// Returns those of the queues whose threads are shared.
pub(crate) fn fair_among(
    conn: &mut Conn<'_>,
    queues: &BTreeSet<&str>,
) -> QueryResult<BTreeSet<String>> {
    if queues.is_empty() {
        return Ok(BTreeSet::new());
    }
    let text = format!(
        "SELECT queue_name FROM windlass_fair_queues WHERE {} AND NOT is_ending",
        is_one_of(conn, "queue_name", "$1")
    );
    let queues: Vec<&str> = queues.iter().copied().collect();
    let rows = bind_texts(conn, Statement::new(text).plain(), &queues).load(conn)?;
    Ok(names(rows))
}

// --- What a promotion reads and stores ---

/// A queue whose threads are shared.
#[derive(Debug, Clone, QueryableByName)]
pub(crate) struct FairQueueRow {
    #[diesel(sql_type = Text)]
    pub(crate) queue_name: String,
    #[diesel(sql_type = Bool)]
    pub(crate) by_time: bool,
    /// Ready executions up to this id may be of jobs that wait for no share yet.
    #[diesel(sql_type = Nullable<BigInt>)]
    pub(crate) starting_from: Option<i64>,
    #[diesel(sql_type = Bool)]
    pub(crate) is_ending: bool,
    #[diesel(sql_type = BigInt)]
    pub(crate) places: i64,
    /// The ids of jobs, as JSON: a list for each promotion.
    #[diesel(sql_type = Nullable<Text>)]
    pub(crate) promised: Option<String>,
    /// See [`RecentUse`](crate::db::model::share::RecentUse).
    #[diesel(sql_type = Nullable<Text>)]
    pub(crate) recent: Option<String>,
    #[diesel(sql_type = BigInt)]
    pub(crate) mean: i64,
    #[diesel(sql_type = BigInt)]
    pub(crate) looked_at: i64,
    #[diesel(sql_type = BigInt)]
    pub(crate) moved_at: i64,
}

impl FairQueueRow {
    /// Returns the jobs that were made ready and have not started, as far as was seen: those of each promotion, the oldest first.
    pub(crate) fn promised(&self) -> Vec<Vec<i64>> {
        let text = self.promised.as_deref();
        text.map_or_else(Vec::new, |text| {
            serde_json::from_str(text).unwrap_or_default()
        })
    }
}

/// Returns what is stored of these queues, locked. Those that another transaction has locked are in the second result: one of a
/// caller that changes them may stay open for long.
pub(crate) fn read(
    conn: &mut Conn<'_>,
    queues: &BTreeSet<String>,
) -> QueryResult<(Vec<FairQueueRow>, BTreeSet<String>)> {
    let free = read_free(conn, queues)?;
    let found: BTreeSet<&str> = free.iter().map(|row| &*row.queue_name).collect();
    let missing: Vec<&str> = queues
        .iter()
        .map(|queue| &**queue)
        .filter(|queue| !found.contains(queue))
        .collect();
    if missing.is_empty() || conn.dialect() == Dialect::Sqlite {
        return Ok((free, BTreeSet::new()));
    }
    let text = "SELECT queue_name FROM windlass_fair_queues WHERE queue_name = ANY ($1)";
    let locked = names(Statement::new(text).bind(&missing[..]).load(conn)?);
    Ok((free, locked))
}

fn read_free(conn: &mut Conn<'_>, queues: &BTreeSet<String>) -> QueryResult<Vec<FairQueueRow>> {
    let text = format!(
        "SELECT queue_name, by_time, starting_from, is_ending, places, promised, recent, mean, looked_at, moved_at \
         FROM windlass_fair_queues WHERE {} {{lock skip}}",
        is_one_of(conn, "queue_name", "$1")
    );
    let queues: Vec<&str> = queues.iter().map(|queue| &**queue).collect();
    bind_texts(conn, Statement::new(text), &queues).load(conn)
}

/// Returns up to `most` queues that are due. With `early`, those that will be as well.
pub(crate) fn due(conn: &mut Conn<'_>, most: usize, early: bool) -> QueryResult<BTreeSet<String>> {
    if early {
        let text = "SELECT queue_name FROM windlass_fair_queues WHERE due_at IS NOT NULL ORDER BY due_at LIMIT $1 + 0";
        return Ok(names(Statement::new(text).bind(most as i64).load(conn)?));
    }
    let text = format!(
        "SELECT queue_name FROM windlass_fair_queues WHERE due_at <= {} - {STEPS} ORDER BY due_at LIMIT $1 + 0",
        micros_now(conn)
    );
    Ok(names(Statement::new(text).bind(most as i64).load(conn)?))
}

/// Leaves a queue for a while, because the database refuses its promotion.
pub(crate) fn postpone(conn: &mut Conn<'_>, queue: &str) -> QueryResult<()> {
    let text = format!(
        "UPDATE windlass_fair_queues SET due_at = {} - {STEPS} + $1 WHERE queue_name = $2",
        micros_now(conn)
    );
    Statement::new(text)
        .bind(REFUSED)
        .bind(queue)
        .uncached()
        .execute(conn)
}

#[derive(QueryableByName)]
struct LineAtShare {
    #[diesel(sql_type = Text)]
    line: String,
}

/// Returns those of these lines that wait for their share, and have no job of a more important priority than they have noted.
pub(crate) fn waiting_among(
    conn: &mut Conn<'_>,
    lines: &[[&str; 1]],
) -> QueryResult<BTreeSet<String>> {
    if lines.is_empty() {
        return Ok(BTreeSet::new());
    }
    let text = "SELECT l.line FROM {rows $1} CROSS JOIN windlass_lines l WHERE l.line = value ->> 0 AND l.gate_kind || '' = 'share' \
         AND l.priority + 0 <= (SELECT j.priority FROM solid_queue_jobs j WHERE j.id = (SELECT b.job_id \
           FROM solid_queue_blocked_executions b WHERE b.gate = l.line ORDER BY b.priority, b.job_id LIMIT 1))";
    let lines = serde_json::to_string(lines).unwrap_or_default();
    let rows: Vec<LineAtShare> = Statement::new(text).bind(lines).load(conn)?;
    Ok(rows.into_iter().map(|row| row.line).collect())
}

#[derive(QueryableByName)]
struct UnstartedJob {
    #[diesel(sql_type = BigInt)]
    job_id: i64,
    #[diesel(sql_type = Bool)]
    is_coming: bool,
}

/// Returns those of these jobs that are ready and of no paused class, or claimed and not started: whether a worker has stored
/// their class, so that they will start.
///
/// It is one snapshot, so that no job is missed on its way from ready to claimed.
pub(crate) fn unstarted(conn: &mut Conn<'_>, jobs: &[i64]) -> QueryResult<BTreeMap<i64, bool>> {
    let text = "SELECT r.job_id, coalesce(r.class_name IN (SELECT class_name FROM windlass_classes), false) AS is_coming \
         FROM solid_queue_ready_executions r WHERE r.job_id IN {in $1} \
           AND (r.class_name IS NULL OR r.class_name NOT IN (SELECT class_name FROM windlass_class_pauses)) UNION ALL \
         SELECT job_id, true FROM solid_queue_claimed_executions WHERE job_id IN {in $1} AND started_at IS NULL";
    let rows: Vec<UnstartedJob> = Statement::new(text).bind(id_list(jobs)).load(conn)?;
    Ok(rows
        .into_iter()
        .map(|row| (row.job_id, row.is_coming))
        .collect())
}

/// The state of a queue: its jobs may start, and some run.
#[derive(QueryableByName)]
pub(crate) struct QueueState {
    #[diesel(sql_type = Bool)]
    pub(crate) is_paused: bool,
    /// True if jobs of it run, of those that are looked at.
    #[diesel(sql_type = Bool)]
    pub(crate) has_running: bool,
}

/// Returns the state of a queue.
pub(crate) fn state(conn: &mut Conn<'_>, queue: &str) -> QueryResult<QueueState> {
    let text = "SELECT EXISTS (SELECT 1 FROM solid_queue_pauses p WHERE p.queue_name = $1) AS is_paused, \
         EXISTS (SELECT 1 FROM solid_queue_jobs j WHERE j.queue_name || '' = $1 \
           AND j.id IN (SELECT job_id FROM solid_queue_claimed_executions WHERE job_id > 0 LIMIT 1000)) AS has_running";
    Statement::new(text).bind(queue).uncached().get_result(conn)
}

/// A queue as it is to be stored after a look.
#[derive(Debug)]
pub(crate) struct StoredQueue<'r> {
    pub(crate) queue: &'r str,
    pub(crate) places: i64,
    pub(crate) promised: Option<String>,
    pub(crate) recent: Option<String>,
    pub(crate) mean: i64,
    pub(crate) looked_at: i64,
    pub(crate) moved_at: i64,
    pub(crate) due_at: Option<i64>,
    pub(crate) starting_from: Option<i64>,
}

/// Stores what a look has changed.
pub(crate) fn store_queue(conn: &mut Conn<'_>, row: StoredQueue<'_>) -> QueryResult<()> {
    let text = "UPDATE windlass_fair_queues SET places = $2, promised = $3, recent = $4, mean = $5, looked_at = $6, moved_at = $7, \
         due_at = $8, starting_from = $9 WHERE queue_name = $1";
    Statement::new(text)
        .bind(row.queue)
        .bind(row.places)
        .bind(row.promised)
        .bind(row.recent)
        .bind(row.mean)
        .bind(row.looked_at)
        .bind(row.moved_at)
        .bind(row.due_at)
        .bind(row.starting_from)
        .execute(conn)
}

/// A queue, a priority and a tenant.
pub(crate) type ShareKey = (String, i32, String);

/// The use of a queue by a tenant.
#[derive(Debug, Clone, QueryableByName)]
pub(crate) struct ShareRow {
    #[diesel(sql_type = Text)]
    pub(crate) queue_name: String,
    #[diesel(sql_type = Integer)]
    pub(crate) priority: i32,
    #[diesel(sql_type = Text)]
    pub(crate) tenant: String,
    #[diesel(sql_type = Nullable<BigInt>)]
    pub(crate) pass: Option<i64>,
    #[diesel(sql_type = Nullable<BigInt>)]
    pub(crate) mean: Option<i64>,
    #[diesel(sql_type = Nullable<Integer>)]
    pub(crate) weight: Option<i32>,
    /// The use that its line without other gates has noted, if that waits.
    #[diesel(sql_type = Nullable<BigInt>)]
    pub(crate) noted: Option<i64>,
}

/// Returns what these have used, and their weights.
pub(crate) fn used(conn: &mut Conn<'_>, keys: &BTreeSet<&ShareKey>) -> QueryResult<Vec<ShareRow>> {
    if keys.is_empty() {
        return Ok(Vec::new());
    }
    // Scalar subqueries, each one look at an index: without the sum, the planner might read a whole priority.
    let share = |column: &str| {
        format!(
            "(SELECT s.{column} FROM windlass_shares s WHERE s.queue_name = input.queue_name AND s.tenant = input.tenant \
             AND s.priority + 0 = input.priority) AS {column}"
        )
    };
    let keys = keys.iter().map(|(queue, priority, tenant)| {
        let line = ShareOf::line(queue, tenant);
        [
            (&**queue).into(),
            Param::Integer(Some(*priority)),
            (&**tenant).into(),
            line.into(),
        ]
    });
    let input = InputRows {
        names: ["queue_name", "priority", "tenant", "line"],
        rows: keys.collect(),
    };
    let dialect = conn.dialect();
    let text = format!(
        "SELECT input.queue_name, input.priority, input.tenant, {}, {}, \
           (SELECT t.weight FROM windlass_tenants t WHERE t.queue_name = input.queue_name AND t.tenant = input.tenant) AS weight, \
           (SELECT l.pass FROM windlass_lines l WHERE l.line = input.line AND l.gate_kind || '' = 'share' \
             AND l.priority + 0 = input.priority) AS noted FROM {}",
        share("pass"),
        share("mean"),
        input.item(dialect),
    );
    Statement::new(text)
        .bind_all(input.params(dialect))
        .load(conn)
}

#[derive(QueryableByName)]
struct TenantOfJob {
    #[diesel(sql_type = BigInt)]
    id: i64,
    #[diesel(sql_type = Text)]
    queue_name: String,
    #[diesel(sql_type = Integer)]
    priority: i32,
    #[diesel(sql_type = Text)]
    tenant: String,
}

/// Returns whose use the time of these jobs counts for.
pub(crate) fn tenants_of(conn: &mut Conn<'_>, jobs: &[i64]) -> QueryResult<Vec<(i64, ShareKey)>> {
    let text = "SELECT id, queue_name, priority, tenant FROM solid_queue_jobs WHERE id IN {in $1} AND tenant IS NOT NULL";
    let rows: Vec<TenantOfJob> = Statement::new(text).bind(id_list(jobs)).load(conn)?;
    let keyed = rows
        .into_iter()
        .map(|row| (row.id, (row.queue_name, row.priority, row.tenant)));
    Ok(keyed.collect())
}

/// A priority of a queue.
pub(crate) type Level = (String, i32);

/// The least use of a priority that a tenant has, so that none is ahead for having been away.
#[derive(Debug, Clone, QueryableByName)]
pub(crate) struct FloorRow {
    #[diesel(sql_type = Text)]
    pub(crate) queue_name: String,
    #[diesel(sql_type = Integer)]
    pub(crate) priority: i32,
    /// The least of those that wait.
    #[diesel(sql_type = Nullable<BigInt>)]
    pub(crate) waiting: Option<i64>,
    /// The most of all.
    #[diesel(sql_type = Nullable<BigInt>)]
    pub(crate) most: Option<i64>,
}

/// Returns the floors of these.
pub(crate) fn floors(conn: &mut Conn<'_>, levels: &BTreeSet<Level>) -> QueryResult<Vec<FloorRow>> {
    if levels.is_empty() {
        return Ok(Vec::new());
    }
    let text = "SELECT w.queue_name, w.priority, \
           (SELECT l.pass FROM windlass_lines l WHERE l.gate_kind = 'share' AND l.gate_key = w.queue_name \
             AND l.priority = w.priority ORDER BY l.pass LIMIT 1) AS waiting, \
           (SELECT s.pass FROM windlass_shares s WHERE s.queue_name = w.queue_name AND s.priority = w.priority \
             ORDER BY s.pass DESC LIMIT 1) AS most \
         FROM (SELECT value ->> 0 AS queue_name, CAST(value ->> 1 AS integer) AS priority FROM {rows $1}) AS w";
    let levels = serde_json::to_string(levels).unwrap_or_default();
    Statement::new(text).bind(levels).load(conn)
}

/// The use of a tenant as it is to be stored, with the mean time of its jobs.
pub(crate) type StoredShare<'r> = (&'r str, i32, &'r str, i64, i64);

/// Stores what tenants have used.
pub(crate) fn store(conn: &mut Conn<'_>, rows: &[StoredShare<'_>]) -> QueryResult<()> {
    if rows.is_empty() {
        return Ok(());
    }
    let dialect = conn.dialect();
    let rows = rows
        .iter()
        .map(|(queue, priority, tenant, pass, mean)| {
            let numbers = (
                Param::Integer(Some(*priority)),
                (*pass).into(),
                (*mean).into(),
            );
            [
                (*queue).into(),
                numbers.0,
                (*tenant).into(),
                numbers.1,
                numbers.2,
            ]
        })
        .collect();
    let input = InputRows {
        names: ["queue_name", "priority", "tenant", "pass", "mean"],
        rows,
    };
    let text = format!(
        "INSERT INTO windlass_shares (queue_name, priority, tenant, pass, mean) \
         SELECT input.queue_name, input.priority, input.tenant, input.pass, input.mean FROM {} WHERE true \
         ON CONFLICT (queue_name, priority, tenant) DO UPDATE SET pass = excluded.pass, mean = excluded.mean",
        input.item(dialect)
    );
    Statement::new(text)
        .bind_all(input.params(dialect))
        .execute(conn)
}

/// The most shares that are forgotten at once.
const FORGOTTEN: i64 = 500;

/// Forgets those who have used less than the number beside their level: they count as having used that much.
pub(crate) fn forget(conn: &mut Conn<'_>, levels: &[(&str, i32, i64)]) -> QueryResult<()> {
    if levels.is_empty() {
        return Ok(());
    }
    let below = |row: &str| {
        format!(
            "SELECT s.{row} FROM {{rows $1}} CROSS JOIN windlass_shares s WHERE s.queue_name = value ->> 0 \
             AND s.priority = CAST(value ->> 1 AS integer) AND s.pass < CAST(value ->> 2 AS bigint) LIMIT $2 + 0"
        )
    };
    let condition = match conn.dialect() {
        Dialect::Postgres => format!("ctid = ANY (ARRAY({}))", below("ctid")),
        Dialect::Sqlite => format!("rowid IN ({})", below("rowid")),
    };
    let text = format!("DELETE FROM windlass_shares WHERE {condition}");
    let levels = serde_json::to_string(levels).unwrap_or_default();
    Statement::new(text)
        .bind(levels)
        .bind(FORGOTTEN)
        .execute(conn)
}
