//! The queries of `windlass status`: counts of each queue, and the processes.

use crate::db::conn::connection::{Conn, age};
use crate::db::conn::dialect::{Lossy, micros};
use crate::db::conn::statement::Statement;
use crate::db::model::gate_line::GateLine;
use crate::db::model::history::cell::{FleetGauge, QueueGauge};
use crate::db::model::new_row::WAITS_AT_GATE;
use crate::db::query::ready;
use crate::db::table::claimed::{Note, Progress};
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Bool, Double, Integer, Nullable, Text};
use std::collections::BTreeMap;
use std::time::Duration;

/// The executions of one queue.
#[derive(Debug, Clone, PartialEq, serde::Serialize, QueryableByName)]
#[non_exhaustive]
pub struct QueueStatus {
    /// The queue's name.
    #[diesel(sql_type = Text)]
    pub queue_name: String,
    /// Jobs that a worker may claim.
    #[diesel(sql_type = BigInt)]
    pub ready: i64,
    /// Jobs that wait for their time.
    #[diesel(sql_type = BigInt)]
    pub scheduled: i64,
    /// Jobs that a process holds.
    #[diesel(sql_type = BigInt)]
    pub claimed: i64,
    /// Jobs that wait for other jobs of their concurrency key.
    #[diesel(sql_type = BigInt)]
    pub blocked: i64,
    /// Jobs that failed and are kept.
    #[diesel(sql_type = BigInt)]
    pub failed: i64,
    /// Seconds since the oldest ready job became ready.
    #[diesel(sql_type = Nullable<Double>)]
    pub oldest_ready_seconds: Option<f64>,
    /// True if the queue is paused.
    #[diesel(sql_type = Bool)]
    pub paused: bool,
    /// The user who paused it, if known.
    #[diesel(sql_type = Nullable<Text>)]
    pub paused_by: Option<String>,
    /// The reason, if one was given.
    #[diesel(sql_type = Nullable<Text>)]
    pub pause_reason: Option<String>,
    /// Seconds since it was paused.
    #[diesel(sql_type = Nullable<Double>)]
    pub paused_seconds: Option<f64>,
}

/// A registered process and what it runs.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
#[non_exhaustive]
pub struct ProcessStatus {
    /// Its id in the process table.
    pub id: i64,
    /// `Worker`, `Dispatcher`, `Supervisor`, or a kind of Solid Queue.
    pub kind: String,
    /// Its name, which is never reused.
    pub name: String,
    /// The host it runs on.
    pub hostname: Option<String>,
    /// Its process id on that host.
    pub pid: i32,
    /// Seconds since its last heartbeat, by the database's clock.
    pub heartbeat_seconds: f64,
    /// True if it is stopping and claims no more.
    pub draining: bool,
    /// True if it was asked to claim nothing (SIGTSTP) and only finishes its current jobs.
    pub quiet: bool,
    /// Seconds since it was registered.
    pub age_seconds: f64,
    /// Its own description: the queues, threads and classes of a worker, for example. `null` if
    /// there is none that is JSON.
    pub metadata: serde_json::Value,
    /// The jobs it holds, the oldest first; at most ten.
    pub runs: Vec<RunStatus>,
    /// The number of all jobs that it holds.
    pub claimed: i64,
}

/// A job that a process holds.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
#[non_exhaustive]
pub struct RunStatus {
    /// The job's id.
    pub job_id: i64,
    /// The job's class.
    pub class_name: String,
    /// Seconds since it was claimed.
    pub seconds: f64,
    /// The name of the thread that performs it, once a heartbeat has reported it.
    pub thread: Option<String>,
    /// Its progress, if it reports any, as of its process's last heartbeat.
    pub progress: Option<Progress>,
}

/// Counts every queue that has executions or is paused.
pub(crate) fn queues(conn: &mut Conn<'_>) -> QueryResult<Vec<QueueStatus>> {
    let (waited, paused) = (age(conn, "oldest"), age(conn, "p.created_at"));
    // Claimed and failed executions have no queue of their own, only that of their job.
    let text = format!(
        "WITH counts AS ( \
           SELECT queue_name, count(*) AS ready, 0 AS scheduled, 0 AS claimed, 0 AS blocked, 0 AS failed, \
             min(created_at) AS oldest FROM solid_queue_ready_executions GROUP BY queue_name \
           UNION ALL SELECT queue_name, 0, count(*), 0, 0, 0, NULL FROM solid_queue_scheduled_executions GROUP BY queue_name \
           UNION ALL SELECT j.queue_name, 0, 0, count(*), 0, 0, NULL FROM solid_queue_claimed_executions c \
             JOIN solid_queue_jobs j ON j.id = c.job_id GROUP BY j.queue_name \
           UNION ALL SELECT queue_name, 0, 0, 0, count(*), 0, NULL FROM solid_queue_blocked_executions GROUP BY queue_name \
           UNION ALL SELECT j.queue_name, 0, 0, 0, 0, count(*), NULL FROM solid_queue_failed_executions f \
             JOIN solid_queue_jobs j ON j.id = f.job_id GROUP BY j.queue_name \
           UNION ALL SELECT queue_name, 0, 0, 0, 0, 0, NULL FROM solid_queue_pauses), \
         sums AS (SELECT queue_name, CAST(sum(ready) AS bigint) AS ready, CAST(sum(scheduled) AS bigint) AS scheduled, \
           CAST(sum(claimed) AS bigint) AS claimed, CAST(sum(blocked) AS bigint) AS blocked, \
           CAST(sum(failed) AS bigint) AS failed, min(oldest) AS oldest FROM counts GROUP BY queue_name) \
         SELECT sums.queue_name, ready, scheduled, claimed, blocked, failed, {waited} AS oldest_ready_seconds, \
           p.id IS NOT NULL AS paused, p.paused_by, p.pause_reason, {paused} AS paused_seconds \
         FROM sums LEFT JOIN solid_queue_pauses p ON p.queue_name = sums.queue_name ORDER BY sums.queue_name"
    );
    let mut queues: Vec<QueueStatus> = Statement::new(text).load(conn)?;
    for queue in &mut queues {
        queue.oldest_ready_seconds = queue.oldest_ready_seconds.filter(|_| queue.ready > 0);
    }
    Ok(queues)
}

#[derive(QueryableByName)]
struct ProcessRow {
    #[diesel(sql_type = BigInt)]
    id: i64,
    #[diesel(sql_type = Text)]
    kind: String,
    #[diesel(sql_type = Text)]
    name: String,
    #[diesel(sql_type = Nullable<Text>)]
    hostname: Option<String>,
    #[diesel(sql_type = Integer)]
    pid: i32,
    #[diesel(sql_type = Double)]
    heartbeat_seconds: f64,
    #[diesel(sql_type = Bool)]
    draining: bool,
    #[diesel(sql_type = Double)]
    age_seconds: f64,
    #[diesel(sql_type = Nullable<Text>)]
    metadata: Option<String>,
    #[diesel(sql_type = BigInt)]
    claimed: i64,
}

#[derive(QueryableByName)]
struct RunRow {
    #[diesel(sql_type = BigInt)]
    job_id: i64,
    #[diesel(sql_type = Text)]
    class_name: String,
    #[diesel(sql_type = Double)]
    seconds: f64,
    #[diesel(sql_type = Nullable<Text>)]
    note: Option<String>,
}

/// Returns every registered process, including those of Rails.
pub(crate) fn processes(conn: &mut Conn<'_>) -> QueryResult<Vec<ProcessStatus>> {
    let age_of_heartbeat = age(conn, "last_heartbeat_at");
    let age_of_row = age(conn, "created_at");
    let text = format!(
        "SELECT id, kind, name, hostname, pid, coalesce({age_of_heartbeat}, 0) AS heartbeat_seconds, draining, coalesce({age_of_row}, 0) AS age_seconds, metadata, \
         (SELECT count(*) FROM solid_queue_claimed_executions c WHERE c.process_id = solid_queue_processes.id) AS claimed \
         FROM solid_queue_processes ORDER BY hostname, kind, id"
    );
    let rows: Vec<ProcessRow> = Statement::new(text).load(conn)?;
    rows.into_iter()
        .map(|row| {
            let runs = if row.claimed > 0 {
                runs(conn, row.id)?
            } else {
                Vec::new()
            };
            let metadata: serde_json::Value = row
                .metadata
                .and_then(|text| serde_json::from_str(&text).ok())
                .unwrap_or_default();
            Ok(ProcessStatus {
                quiet: metadata["quiet"] == true,
                metadata,
                id: row.id,
                kind: row.kind,
                name: row.name,
                hostname: row.hostname,
                pid: row.pid,
                heartbeat_seconds: row.heartbeat_seconds,
                draining: row.draining,
                age_seconds: row.age_seconds,
                runs,
                claimed: row.claimed,
            })
        })
        .collect()
}

fn runs(conn: &mut Conn<'_>, process_id: i64) -> QueryResult<Vec<RunStatus>> {
    let age = age(conn, "held.created_at");
    let text = format!(
        "WITH held AS MATERIALIZED (SELECT id, job_id, created_at, note FROM solid_queue_claimed_executions WHERE process_id = $1) \
         SELECT held.job_id, j.class_name, coalesce({age}, 0) AS seconds, held.note FROM held \
         JOIN solid_queue_jobs j ON j.id = held.job_id ORDER BY held.id LIMIT 10"
    );
    let runs: Vec<RunRow> = Statement::new(text).bind(process_id).load(conn)?;
    Ok(runs
        .into_iter()
        .map(|run| {
            let note = Note::of_column(run.note.as_deref());
            RunStatus {
                job_id: run.job_id,
                class_name: run.class_name,
                seconds: run.seconds,
                thread: note.thread,
                progress: note.progress,
            }
        })
        .collect())
}

// --- Samples of the queues, workers and gates, which the history records once a minute ---

/// Counts the ready jobs of a queue, up to 10,000, and returns the age of the oldest.
pub(crate) fn queue(conn: &mut Conn<'_>, queue: &str) -> QueryResult<QueueGauge> {
    let now = ready::ready_of(conn, queue)?;
    let age = |seconds: f64| Duration::try_from_secs_f64(seconds).unwrap_or_default();
    Ok(QueueGauge {
        ready: u32::try_from(now.ready.count).unwrap_or(QueueGauge::MOST),
        oldest_ready: now.oldest_seconds.map(age).unwrap_or_default(),
    })
}

#[derive(QueryableByName)]
struct WorkerRow {
    #[diesel(sql_type = Nullable<Text>)]
    metadata: Option<String>,
    #[diesel(sql_type = BigInt)]
    busy: i64,
}

/// Counts the workers of Windlass, their threads, and the jobs that they hold.
pub(crate) fn fleet(conn: &mut Conn<'_>) -> QueryResult<FleetGauge> {
    let text = "SELECT metadata, (SELECT count(*) FROM solid_queue_claimed_executions c \
           WHERE c.process_id = p.id) AS busy FROM solid_queue_processes p \
         WHERE kind = 'Worker' AND heartbeat_seq IS NOT NULL";
    let workers: Vec<WorkerRow> = Statement::new(text).uncached().load(conn)?;
    let threads = |row: &WorkerRow| -> Option<u64> {
        let metadata: serde_json::Value = serde_json::from_str(row.metadata.as_deref()?).ok()?;
        metadata.get("thread_pool_size")?.as_u64()
    };
    Ok(FleetGauge {
        samples: 1,
        workers: workers.len() as u64,
        threads: workers.iter().filter_map(threads).sum(),
        busy: workers.iter().map(|row| row.busy.unsigned_abs()).sum(),
    })
}

/// The most gates of each source that are looked at, the first by name.
const MOST_GATES: usize = 1_000;

/// The jobs of a gate that are looked at for the one that has waited for longest.
const FIRST_JOBS: usize = 20;

/// The time for which a job waits at most until a promotion has seen it: a gate with such jobs alone may be free.
const PROMOTED_IN: Duration = Duration::from_secs(1);

/// The gates of one kind for which jobs wait: the kind, the rows `w`, their column with the key, and the text behind which
/// keys begin.
type GateSource = (&'static str, &'static str, &'static str, &'static str);

const BLOCKED: &str = "solid_queue_blocked_executions w WHERE true";

/// The lines that wait for one of several gates, then the jobs whose only gate is a rate or a limit. Before the first rate
/// are the lines of shares, and before the first concurrency key those of jobs that wait for other jobs.
const GATE_SOURCES: [GateSource; 5] = [
    (
        "share",
        "windlass_lines w WHERE w.gate_kind = 'share'",
        "gate_key",
        "",
    ),
    (
        "rate",
        "windlass_lines w WHERE w.gate_kind = 'rate'",
        "gate_key",
        "",
    ),
    (
        "limit",
        "windlass_lines w WHERE w.gate_kind = 'limit'",
        "gate_key",
        "",
    ),
    ("rate", BLOCKED, "gate", "\u{1f}"),
    ("limit", BLOCKED, "concurrency_key", WAITS_AT_GATE),
];

#[derive(QueryableByName)]
struct GateRow {
    #[diesel(sql_type = Text, deserialize_as = Lossy)]
    key: String,
    #[diesel(sql_type = Double)]
    seconds: f64,
}

/// Returns for how long the first jobs have waited for each gate, by its kind and key: `rate/api`, `limit/import/7`, or
/// `share/mail`. A job that waits for other jobs waits for no gate.
pub(crate) fn gates(conn: &mut Conn<'_>) -> QueryResult<BTreeMap<String, Duration>> {
    let mut gates: BTreeMap<String, Duration> = BTreeMap::new();
    for (kind, rows, column, first) in GATE_SOURCES {
        let next = |beyond: &str| {
            format!("(SELECT min(w.{column}) FROM {rows} AND w.{column} > {beyond})")
        };
        let of_key = format!("FROM {rows} AND w.{column} = walk.key");
        let jobs = match rows {
            BLOCKED => format!("SELECT w.created_at {of_key} ORDER BY w.priority, w.job_id"),
            _ => format!(
                "SELECT b.created_at FROM (SELECT w.line {of_key} LIMIT {FIRST_JOBS}) AS few \
                 CROSS JOIN solid_queue_blocked_executions b WHERE b.gate = few.line"
            ),
        };
        let text = format!(
            "WITH RECURSIVE walk(key, place) AS (SELECT {}, 1 UNION ALL SELECT {}, walk.place + 1 FROM walk \
               WHERE walk.key IS NOT NULL AND walk.place < {MOST_GATES}), \
             looked AS MATERIALIZED (SELECT walk.key, (SELECT min(jobs.created_at) FROM ({jobs} LIMIT {FIRST_JOBS}) AS jobs) \
               AS oldest FROM walk WHERE walk.key IS NOT NULL) \
             SELECT key, {} AS seconds FROM looked WHERE oldest < {{later $2}}",
            next("CAST($1 AS text)"),
            next("walk.key"),
            age(conn, "oldest"),
        );
        let statement = Statement::new(text).bind(first).bind(-micros(PROMOTED_IN));
        for row in statement.uncached().load::<GateRow>(conn)? {
            // Lines with several gates are in the first sources.
            if column == "gate" && GateLine::of(&row.key).only_rate().is_none() {
                continue;
            }
            let waited = Duration::try_from_secs_f64(row.seconds).unwrap_or_default();
            let longest = gates.entry(format!("{kind}/{}", row.key)).or_default();
            *longest = waited.max(*longest);
        }
    }
    Ok(gates)
}
