//! The executions of each queue that are not ready.

use diesel::prelude::*;
use diesel::sql_types::{BigInt, Text};
use std::collections::BTreeMap;
use windlass::Conn;
use windlass::database::Dialect;
use windlass::internal::db::conn::dialect::Lossy;
use windlass::internal::db::conn::statement::Statement;
use windlass::internal::db::query::ready::{CappedCount, MOST};

#[derive(QueryableByName)]
struct QueueJobsRow {
    #[diesel(sql_type = Text, deserialize_as = Lossy)]
    queue_name: String,
    #[diesel(sql_type = BigInt)]
    jobs: i64,
}

/// The executions of one kind, by queue.
#[derive(Debug, Clone, Default)]
pub(crate) struct CountsByQueue {
    counts: BTreeMap<String, i64>,
    /// True if only the newest were counted.
    is_more: bool,
}

impl CountsByQueue {
    fn new(rows: Vec<QueueJobsRow>) -> Self {
        let read: i64 = rows.iter().map(|row| row.jobs).sum();
        CountsByQueue {
            counts: rows
                .into_iter()
                .map(|row| (row.queue_name, row.jobs))
                .collect(),
            is_more: read > MOST,
        }
    }

    /// Returns the count of a queue: at least this many if not all were read.
    pub(crate) fn of(&self, queue: &str) -> CappedCount {
        let count = self.counts.get(queue).copied().unwrap_or(0);
        CappedCount::part(count, self.is_more)
    }

    /// Returns whether only the newest were counted.
    pub(crate) fn is_more(&self) -> bool {
        self.is_more
    }

    /// Returns the names of the queues.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.counts.keys().map(String::as_str)
    }
}

/// Counts the newest 10,000 executions of a kind that has queue names of its own.
fn counted(conn: &mut Conn<'_>, state: &str) -> QueryResult<CountsByQueue> {
    let text = format!(
        "SELECT queue_name, count(*) AS jobs FROM (SELECT queue_name FROM solid_queue_{state}_executions \
         WHERE id > 0 ORDER BY id DESC LIMIT {}) AS newest GROUP BY queue_name",
        MOST + 1
    );
    Statement::new(text).load(conn).map(CountsByQueue::new)
}

/// Counts the scheduled jobs of each queue.
pub(crate) fn scheduled(conn: &mut Conn<'_>) -> QueryResult<CountsByQueue> {
    counted(conn, "scheduled")
}

/// Counts the blocked jobs of each queue.
pub(crate) fn blocked(conn: &mut Conn<'_>) -> QueryResult<CountsByQueue> {
    counted(conn, "blocked")
}

/// Counts the claimed jobs of each queue.
pub(crate) fn claimed(conn: &mut Conn<'_>) -> QueryResult<CountsByQueue> {
    Ok(counted_by_job(conn, "claimed")?.by_queue())
}

/// Counts the failed jobs of each queue and class.
pub(crate) fn failed(conn: &mut Conn<'_>) -> QueryResult<CountsByClass> {
    counted_by_job(conn, "failed")
}

#[derive(Debug, Clone, QueryableByName)]
struct ClassCountRow {
    #[diesel(sql_type = Text, deserialize_as = Lossy)]
    queue_name: String,
    #[diesel(sql_type = Text, deserialize_as = Lossy)]
    class_name: String,
    #[diesel(sql_type = BigInt)]
    jobs: i64,
}

/// The executions of one kind, by queue and class.
#[derive(Debug, Clone, Default)]
pub(crate) struct CountsByClass {
    rows: Vec<ClassCountRow>,
    /// True if only the newest were counted.
    is_more: bool,
}

impl CountsByClass {
    pub(crate) fn by_queue(&self) -> CountsByQueue {
        let mut counts = BTreeMap::new();
        for row in &self.rows {
            *counts.entry(row.queue_name.clone()).or_default() += row.jobs;
        }
        CountsByQueue {
            counts,
            is_more: self.is_more,
        }
    }

    /// Returns the classes of a queue with their counts.
    pub(crate) fn of<'c>(&'c self, queue: &'c str) -> impl Iterator<Item = (&'c str, CappedCount)> {
        let rows = self.rows.iter().filter(move |row| row.queue_name == queue);
        rows.map(|row| {
            let count = CappedCount::part(row.jobs, self.is_more);
            (row.class_name.as_str(), count)
        })
    }
}

/// The most executions whose jobs are looked up: each is on another page of the table of jobs.
const MOST_LOOKED_UP: i64 = 2_000;

/// Counts the newest 2,000 executions of a kind whose queue is that of their job.
fn counted_by_job(conn: &mut Conn<'_>, state: &str) -> QueryResult<CountsByClass> {
    let newest = format!(
        "SELECT job_id FROM solid_queue_{state}_executions WHERE id > 0 ORDER BY id DESC LIMIT {}",
        MOST_LOOKED_UP + 1
    );
    // Each job is looked up: another join might read all jobs. In one scan for all, Postgres does it in half the time.
    let jobs = match conn.dialect() {
        Dialect::Postgres => {
            format!("solid_queue_jobs job WHERE job.id = ANY(ARRAY({newest}))")
        }
        Dialect::Sqlite => format!(
            "({newest}) AS newest CROSS JOIN solid_queue_jobs job ON job.id = newest.job_id"
        ),
    };
    let text = format!(
        "SELECT job.queue_name, job.class_name, count(*) AS jobs FROM {jobs} GROUP BY job.queue_name, job.class_name"
    );
    let rows: Vec<ClassCountRow> = Statement::new(text).load(conn)?;
    let read: i64 = rows.iter().map(|row| row.jobs).sum();
    Ok(CountsByClass {
        rows,
        is_more: read > MOST_LOOKED_UP,
    })
}
