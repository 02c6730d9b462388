//! The registered processes.

use diesel::prelude::*;
use diesel::sql_types::{BigInt, Bool, Double, Integer, Nullable, Text};
use serde_json::Value;
use std::collections::BTreeMap;
use windlass::Conn;
use windlass::internal::db::conn::connection::age;
use windlass::internal::db::conn::dialect::Lossy;
use windlass::internal::db::conn::statement::Statement;
use windlass::internal::db::query::ready::MOST;
use windlass::internal::db::table::claimed::Note;

/// The most processes that are read.
pub(crate) const MOST_PROCESSES: i64 = 1_000;

/// A row of the process table.
#[derive(Debug, Clone)]
pub(crate) struct FleetProcess {
    pub(crate) id: i64,
    pub(crate) kind: String,
    pub(crate) name: String,
    pub(crate) hostname: String,
    pub(crate) pid: i32,
    /// The supervisor that started it.
    pub(crate) supervisor_id: Option<i64>,
    /// Seconds since its last heartbeat.
    pub(crate) heartbeat_seconds: f64,
    /// Seconds since it was registered.
    pub(crate) age_seconds: f64,
    /// True if it is stopping.
    pub(crate) draining: bool,
    /// Its own description.
    pub(crate) metadata: Value,
}

impl FleetProcess {
    /// Returns whether it was asked to claim nothing (SIGTSTP).
    pub(crate) fn is_quiet(&self) -> bool {
        self.metadata["quiet"] == true
    }
}

#[derive(QueryableByName)]
struct FleetRow {
    #[diesel(sql_type = BigInt)]
    id: i64,
    #[diesel(sql_type = Text, deserialize_as = Lossy)]
    kind: String,
    #[diesel(sql_type = Text, deserialize_as = Lossy)]
    name: String,
    #[diesel(sql_type = Text, deserialize_as = Lossy)]
    hostname: String,
    #[diesel(sql_type = Integer)]
    pid: i32,
    #[diesel(sql_type = Nullable<BigInt>)]
    supervisor_id: Option<i64>,
    #[diesel(sql_type = Double)]
    heartbeat_seconds: f64,
    #[diesel(sql_type = Double)]
    age_seconds: f64,
    #[diesel(sql_type = Bool)]
    draining: bool,
    #[diesel(sql_type = Text, deserialize_as = Lossy)]
    metadata: String,
}

/// Returns the registered processes, those of Rails as well, in the order of their registration:
/// up to 1,000, with one more if there are more.
pub(crate) fn processes(conn: &mut Conn<'_>) -> QueryResult<Vec<FleetProcess>> {
    registered(conn, MOST_PROCESSES + 1)
}

/// Returns every registered process, however many there are.
pub(crate) fn list_processes(conn: &mut Conn<'_>) -> QueryResult<Vec<FleetProcess>> {
    registered(conn, i64::MAX)
}

fn registered(conn: &mut Conn<'_>, limit: i64) -> QueryResult<Vec<FleetProcess>> {
    let text = format!(
        "SELECT id, kind, name, coalesce(hostname, '') AS hostname, pid, supervisor_id, \
         coalesce({}, 0) AS heartbeat_seconds, coalesce({}, 0) AS age_seconds, draining, \
         coalesce(metadata, '') AS metadata FROM solid_queue_processes ORDER BY id LIMIT $1",
        age(conn, "last_heartbeat_at"),
        age(conn, "created_at"),
    );
    let rows: Vec<FleetRow> = Statement::new(text).bind(limit).load(conn)?;
    let processes = rows.into_iter().map(|row| FleetProcess {
        id: row.id,
        kind: row.kind,
        name: row.name,
        hostname: row.hostname,
        pid: row.pid,
        supervisor_id: row.supervisor_id,
        heartbeat_seconds: row.heartbeat_seconds,
        age_seconds: row.age_seconds,
        draining: row.draining,
        metadata: serde_json::from_str(&row.metadata).unwrap_or_default(),
    });
    Ok(processes.collect())
}

/// A process whose death jobs have survived.
#[derive(Debug, QueryableByName)]
pub(crate) struct DiedProcess {
    #[diesel(sql_type = Text, deserialize_as = Lossy)]
    pub(crate) name: String,
    #[diesel(sql_type = Text, deserialize_as = Lossy)]
    pub(crate) hostname: String,
    /// The number of its jobs that had started, and were given to others or failed.
    #[diesel(sql_type = BigInt)]
    pub(crate) jobs: i64,
    /// Seconds since the first of them was recovered.
    #[diesel(sql_type = Double)]
    pub(crate) seconds: f64,
}

/// Returns the processes whose deaths are among the newest 1,000 unsuccessful attempts, the last
/// one first.
pub(crate) fn died(conn: &mut Conn<'_>) -> QueryResult<Vec<DiedProcess>> {
    let text = format!(
        "WITH newest AS MATERIALIZED (SELECT outcome, process_name, hostname, ended_at FROM windlass_attempts \
           WHERE id > 0 ORDER BY id DESC LIMIT 1000), \
         died AS MATERIALIZED (SELECT process_name, max(hostname) AS hostname, count(*) AS jobs, max(ended_at) AS ended_at \
           FROM newest WHERE outcome = 'crashed' AND process_name IS NOT NULL GROUP BY process_name) \
         SELECT process_name AS name, coalesce(hostname, '') AS hostname, jobs, coalesce({}, 0) AS seconds \
         FROM died ORDER BY ended_at DESC LIMIT 20",
        age(conn, "ended_at")
    );
    Statement::new(text).load(conn)
}

// --- The jobs that processes hold, oldest first ---

/// A job that a process holds.
#[derive(Debug, Clone)]
pub(crate) struct HeldJob {
    pub(crate) job_id: i64,
    pub(crate) class_name: String,
    pub(crate) queue_name: String,
    pub(crate) process_id: Option<i64>,
    /// Seconds since it started, or since it was claimed.
    pub(crate) seconds: f64,
    /// True if it was claimed ahead of a free thread, and has not started.
    pub(crate) is_ahead: bool,
    /// The note of the process about it.
    pub(crate) note: Note,
}

#[derive(QueryableByName)]
struct HeldRunRow {
    #[diesel(sql_type = BigInt)]
    job_id: i64,
    #[diesel(sql_type = Text, deserialize_as = Lossy)]
    class_name: String,
    #[diesel(sql_type = Text, deserialize_as = Lossy)]
    queue_name: String,
    #[diesel(sql_type = Nullable<BigInt>)]
    process_id: Option<i64>,
    #[diesel(sql_type = Double)]
    seconds: f64,
    #[diesel(sql_type = Bool)]
    is_ahead: bool,
    #[diesel(sql_type = Nullable<Text>)]
    note: Option<String>,
}

/// Returns the jobs that were claimed first, in that order.
pub(crate) fn oldest(conn: &mut Conn<'_>, limit: i64) -> QueryResult<Vec<HeldJob>> {
    // The claims of a job are never many; the sort is one of those read.
    let of_job = |column: &str| {
        format!(
            "coalesce((SELECT j.{column} FROM solid_queue_jobs j WHERE j.id = held.job_id), '') AS {column}"
        )
    };
    let text = format!(
        "WITH held AS MATERIALIZED (SELECT id, job_id, process_id, coalesce(started_at, created_at) AS since, \
           coalesce(prefetched, false) AND started_at IS NULL AS is_ahead, note \
           FROM solid_queue_claimed_executions WHERE id > 0 ORDER BY id LIMIT $1) \
         SELECT job_id, {}, {}, process_id, coalesce({}, 0) AS seconds, is_ahead, note FROM held ORDER BY id",
        of_job("class_name"),
        of_job("queue_name"),
        age(conn, "since"),
    );
    let rows: Vec<HeldRunRow> = Statement::new(text).bind(limit).load(conn)?;
    let jobs = rows.into_iter().map(|row| HeldJob {
        job_id: row.job_id,
        class_name: row.class_name,
        queue_name: row.queue_name,
        process_id: row.process_id,
        seconds: row.seconds,
        is_ahead: row.is_ahead,
        note: Note::of_column(row.note.as_deref()),
    });
    Ok(jobs.collect())
}

#[derive(QueryableByName)]
struct HeldCount {
    #[diesel(sql_type = BigInt)]
    process_id: i64,
    #[diesel(sql_type = BigInt)]
    running: i64,
    #[diesel(sql_type = BigInt)]
    ahead: i64,
}

/// Returns how many jobs each process runs, and how many it has claimed ahead, by its id; of the
/// 10,000 that were claimed first.
pub(crate) fn held_by_process(conn: &mut Conn<'_>) -> QueryResult<BTreeMap<i64, (u64, u64)>> {
    let text = format!(
        "SELECT process_id, count(*) - count(ahead) AS running, count(ahead) AS ahead FROM ( \
           SELECT coalesce(process_id, 0) AS process_id, \
             CASE WHEN prefetched AND started_at IS NULL THEN 1 END AS ahead \
           FROM solid_queue_claimed_executions WHERE id > 0 ORDER BY id LIMIT {MOST}) AS held GROUP BY process_id"
    );
    let rows: Vec<HeldCount> = Statement::new(text).load(conn)?;
    let count = |rows| u64::try_from(rows).unwrap_or(0);
    let counts = rows
        .into_iter()
        .map(|row| (row.process_id, (count(row.running), count(row.ahead))));
    Ok(counts.collect())
}
