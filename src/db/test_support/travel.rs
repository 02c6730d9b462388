//! Statements that only tests of applications run.

use crate::db::conn::connection::Conn;
use crate::db::conn::statement::Statement;
use crate::db::model::extras::MaybeBareArguments;
use crate::db::schema::declared;
use crate::db::table::semaphores::DOES_NOT_WAIT;
use chrono::NaiveDateTime;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Integer, Nullable, Text, Timestamp};
use std::time::Duration;

/// A job that waits.
#[derive(Debug, QueryableByName)]
pub(crate) struct WaitingJob {
    #[diesel(sql_type = BigInt)]
    pub(crate) id: i64,
    #[diesel(sql_type = Text)]
    pub(crate) class_name: String,
    #[diesel(sql_type = Nullable<Text>, deserialize_as = MaybeBareArguments)]
    pub(crate) arguments: Option<String>,
    #[diesel(sql_type = Text)]
    pub(crate) queue_name: String,
    #[diesel(sql_type = Integer)]
    pub(crate) priority: i32,
    #[diesel(sql_type = Integer)]
    pub(crate) attempts: i32,
    #[diesel(sql_type = Nullable<Text>)]
    pub(crate) idempotency_key: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    pub(crate) policy: Option<String>,
    /// `None` if it may run now.
    #[diesel(sql_type = Nullable<Timestamp>)]
    pub(crate) scheduled_at: Option<NaiveDateTime>,
    #[diesel(sql_type = Timestamp)]
    pub(crate) now: NaiveDateTime,
}

/// Returns the jobs that are ready, scheduled or blocked, in the order of their enqueue.
pub(crate) fn waiting(conn: &mut Conn<'_>) -> QueryResult<Vec<WaitingJob>> {
    let text = "SELECT j.id, j.class_name, j.arguments, j.queue_name, j.priority, j.attempts, j.idempotency_key, j.policy, \
         s.scheduled_at, {now} AS now FROM solid_queue_jobs j \
         LEFT JOIN solid_queue_scheduled_executions s ON s.job_id = j.id \
         WHERE s.id IS NOT NULL \
         OR EXISTS (SELECT 1 FROM solid_queue_ready_executions r WHERE r.job_id = j.id) \
         OR EXISTS (SELECT 1 FROM solid_queue_blocked_executions b WHERE b.job_id = j.id) ORDER BY j.id";
    Statement::new(text).unkept().load(conn)
}

/// Tables that are not changed: migrations, ticks of recurring tasks, which are calendar times, and the
/// audit, whose rows no statement may change.
const FIXED: [&str; 3] = [
    "windlass_schema_migrations",
    "solid_queue_recurring_executions",
    "windlass_audit",
];

/// Makes all stored times older, as if that much time had passed.
pub(crate) fn travel(conn: &mut Conn<'_>, by: Duration) -> QueryResult<()> {
    let micros = crate::db::conn::dialect::micros(by);
    conn.transaction(|conn| {
        for table in declared::tables() {
            let times = table.columns.iter().filter(|column| column.is_time);
            let earlier: Vec<String> = times.map(|column| earlier(conn, column.name)).collect();
            if earlier.is_empty() || FIXED.contains(&table.name) {
                continue;
            }
            let text = format!("UPDATE {} SET {}", table.name, earlier.join(", "));
            Statement::new(text).bind(micros).unkept().execute(conn)?;
        }
        Ok(())
    })
}

/// Times in the last days of the calendar mean that a job waits, or how: they stay.
fn earlier(conn: &Conn<'_>, column: &str) -> String {
    let earlier = match conn {
        #[cfg(feature = "postgres")]
        Conn::Postgres(_) => format!("{column} - $1 * interval '1 microsecond'"),
        #[cfg(feature = "sqlite")]
        Conn::Sqlite(_) => {
            format!("strftime('%Y-%m-%d %H:%M:%f000', {column}, (-$1 / 1000000.0) || ' seconds')")
        }
    };
    format!("{column} = CASE WHEN {column} >= '{DOES_NOT_WAIT}' THEN {column} ELSE {earlier} END")
}
