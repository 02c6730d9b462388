//! The database's time, and what the navigation of the web pages counts.

use chrono::NaiveDateTime;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Double, Nullable, Timestamp};
use windlass::Conn;
use windlass::database::Dialect;
use windlass::internal::db::conn::statement::Statement;

#[derive(Debug, QueryableByName)]
pub(crate) struct FrameRow {
    #[diesel(sql_type = Timestamp)]
    pub(crate) now: NaiveDateTime,
    /// Failed jobs, counted up to a limit.
    #[diesel(sql_type = BigInt)]
    pub(crate) failed: i64,
}

/// Reads the time, and counts failed jobs up to `most`.
pub(crate) fn read(conn: &mut Conn<'_>, most: i64) -> QueryResult<FrameRow> {
    Statement::new(
        "SELECT {now} AS now, (SELECT count(*) FROM \
         (SELECT id FROM solid_queue_failed_executions WHERE id > 0 ORDER BY id DESC LIMIT $1) AS counted) AS failed",
    )
    .bind(most)
    .get_result(conn)
}

// --- Reads for alerts, each with a limit of its own ---

#[derive(QueryableByName)]
struct AlarmSeconds {
    #[diesel(sql_type = Nullable<Double>)]
    seconds: Option<f64>,
}

#[derive(QueryableByName)]
struct AlarmCount {
    #[diesel(sql_type = BigInt)]
    jobs: i64,
}

/// The limit of the count of late jobs.
const MOST_LATE: i64 = 10_000;

/// The number of the newest attempts that are searched for crashes.
const ATTEMPTS: u32 = 5_000;

/// The number of crashes within an hour that make a job suspicious. One may be an accident.
const CRASHES: u32 = 2;

/// Returns for how many seconds the oldest other transaction of this database has been open; 0 if
/// none is. SQLite does not report that: `None`.
pub(crate) fn oldest_transaction(conn: &mut Conn<'_>) -> QueryResult<Option<f64>> {
    if conn.dialect() == Dialect::Sqlite {
        return Ok(None);
    }
    let text = "SELECT CAST(coalesce(extract(epoch FROM clock_timestamp() - min(xact_start)), 0) AS double precision) AS seconds \
         FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() \
         AND backend_type = 'client backend' AND xact_start IS NOT NULL";
    let row: AlarmSeconds = Statement::new(text).get_result(conn)?;
    Ok(row.seconds)
}

/// Counts the scheduled jobs that have been due for at least `seconds`, up to 10,000: one more if
/// there are more.
pub(crate) fn late_scheduled(conn: &mut Conn<'_>, seconds: u32) -> QueryResult<i64> {
    let text = format!(
        "SELECT count(*) AS jobs FROM (SELECT 1 FROM solid_queue_scheduled_executions \
         WHERE scheduled_at <= {{later $1}} ORDER BY scheduled_at, priority, job_id LIMIT {}) AS late",
        MOST_LATE + 1
    );
    let statement = Statement::new(text).bind(-1_000_000 * i64::from(seconds));
    let row: AlarmCount = statement.get_result(conn)?;
    Ok(row.jobs)
}

/// Counts the jobs that crashed their process repeatedly within an hour, as far as the newest
/// attempts show it.
pub(crate) fn crash_looping(conn: &mut Conn<'_>) -> QueryResult<i64> {
    let text = format!(
        "WITH newest AS MATERIALIZED (SELECT job_id, outcome, kind, ended_at FROM windlass_attempts WHERE id > 0 \
           ORDER BY id DESC LIMIT {ATTEMPTS}) \
         SELECT count(*) AS jobs FROM (SELECT job_id FROM newest \
           WHERE (outcome = 'crashed' OR kind = 'crashed') AND ended_at > {{later $1}} \
           GROUP BY job_id HAVING count(*) >= {CRASHES}) AS suspects"
    );
    let hour: i64 = 3_600_000_000;
    let row: AlarmCount = Statement::new(text).bind(-hour).get_result(conn)?;
    Ok(row.jobs)
}
