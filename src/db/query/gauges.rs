//! Samples of the queues and workers, which the history records once a minute.

use crate::db::conn::connection::Conn;
use crate::db::conn::statement::Statement;
use crate::db::model::history::cell::{FleetGauge, QueueGauge};
use crate::db::query::load::queues;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Nullable, Text};
use std::time::Duration;

/// Counts the ready jobs of a queue, up to 10,000, and returns the age of the oldest.
pub(crate) fn queue(conn: &mut Conn<'_>, queue: &str) -> QueryResult<QueueGauge> {
    let now = queues::ready_of(conn, queue)?;
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
    let workers: Vec<WorkerRow> = Statement::new(text).unkept().load(conn)?;
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
