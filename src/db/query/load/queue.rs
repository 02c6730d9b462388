//! One queue: what is next, what is scheduled, and its classes.

use crate::db::conn::connection::{Conn, age};
use crate::db::conn::dialect::Lossy;
use crate::db::conn::statement::Statement;
use crate::db::model::extras::BareArguments;
use crate::db::query::load::totals::{CappedCount, MOST};
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Double, Integer, Nullable, Text};

/// A ready job that is among the next to be claimed.
#[derive(Debug, QueryableByName)]
pub(crate) struct NextInLine {
    #[diesel(sql_type = BigInt)]
    pub(crate) job_id: i64,
    #[diesel(sql_type = Text, deserialize_as = Lossy)]
    pub(crate) class_name: String,
    /// As JSON, unless another program wrote other text.
    #[diesel(sql_type = Text, deserialize_as = BareArguments)]
    pub(crate) arguments: String,
    #[diesel(sql_type = Integer)]
    pub(crate) priority: i32,
    /// Seconds since it became ready.
    #[diesel(sql_type = Double)]
    pub(crate) seconds: f64,
}

/// Returns the ready jobs of a queue that are claimed next, in order.
pub(crate) fn next(conn: &mut Conn<'_>, queue: &str, limit: i64) -> QueryResult<Vec<NextInLine>> {
    let text = format!(
        "WITH first AS MATERIALIZED (SELECT job_id, priority, created_at FROM solid_queue_ready_executions \
           WHERE queue_name = $1 ORDER BY priority, job_id LIMIT $2) \
         SELECT first.job_id, coalesce(j.class_name, '') AS class_name, {} AS arguments, \
           first.priority, coalesce({}, 0) AS seconds \
         FROM first LEFT JOIN solid_queue_jobs j ON j.id = first.job_id ORDER BY first.priority, first.job_id",
        "CASE WHEN length(j.arguments) > 20000 THEN '\"too long to show\"' ELSE coalesce(j.arguments, 'null') END",
        age(conn, "first.created_at")
    );
    Statement::new(text).bind(queue).bind(limit).load(conn)
}

/// The scheduled jobs of a queue.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ScheduledJobs {
    pub(crate) count: CappedCount,
    /// Seconds until the first of them is due; negative if it is overdue.
    pub(crate) next_seconds: Option<f64>,
}

#[derive(QueryableByName)]
struct ScheduledRow {
    #[diesel(sql_type = BigInt)]
    jobs: i64,
    #[diesel(sql_type = BigInt)]
    of_all: i64,
    #[diesel(sql_type = Nullable<Double>)]
    due_seconds: Option<f64>,
}

/// Returns the scheduled jobs of a queue, among the first 10,000 of all queues.
pub(crate) fn scheduled(conn: &mut Conn<'_>, queue: &str) -> QueryResult<ScheduledJobs> {
    let text = format!(
        "WITH first AS MATERIALIZED (SELECT queue_name, scheduled_at FROM solid_queue_scheduled_executions \
           WHERE scheduled_at > {{time '0001-01-01 00:00:00.000000'}} ORDER BY scheduled_at, priority, job_id LIMIT {}), \
         own AS MATERIALIZED (SELECT count(*) AS jobs, min(scheduled_at) AS due FROM first WHERE queue_name = $1) \
         SELECT jobs, (SELECT count(*) FROM first) AS of_all, {} AS due_seconds FROM own",
        MOST + 1,
        age(conn, "due")
    );
    let row: ScheduledRow = Statement::new(text).bind(queue).get_result(conn)?;
    Ok(ScheduledJobs {
        count: CappedCount::part(row.jobs, row.of_all > MOST),
        next_seconds: row.due_seconds.map(|seconds| -seconds),
    })
}

/// The jobs of a class in one place.
#[derive(Debug, QueryableByName)]
pub(crate) struct ClassCount {
    #[diesel(sql_type = Text, deserialize_as = Lossy)]
    pub(crate) class_name: String,
    #[diesel(sql_type = BigInt)]
    pub(crate) jobs: i64,
}

/// How many of the next ready jobs are counted by class.
const NEXT_CLASSES: i64 = 2_000;

/// Counts the next 2,000 ready jobs of a queue by class, and says whether there are more.
pub(crate) fn ready_classes(
    conn: &mut Conn<'_>,
    queue: &str,
) -> QueryResult<(Vec<ClassCount>, bool)> {
    // Ruby's processes do not store the class with the execution.
    let text = format!(
        "SELECT class_name, count(*) AS jobs FROM (SELECT coalesce(next.class_name, \
           (SELECT j.class_name FROM solid_queue_jobs j WHERE j.id = next.job_id), '') AS class_name FROM ( \
             SELECT job_id, class_name FROM solid_queue_ready_executions WHERE queue_name = $1 \
             ORDER BY priority, job_id LIMIT {}) AS next) AS named GROUP BY class_name",
        NEXT_CLASSES + 1
    );
    let classes: Vec<ClassCount> = Statement::new(text).bind(queue).load(conn)?;
    let read: i64 = classes.iter().map(|class| class.jobs).sum();
    Ok((classes, read > NEXT_CLASSES))
}
