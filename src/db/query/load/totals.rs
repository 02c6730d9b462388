//! How many jobs there are in each state.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::Dialect;
use crate::db::conn::statement::Statement;
use crate::db::query::load::bounded::{CappedCount, MOST};
use diesel::prelude::*;
use diesel::sql_types::BigInt;

/// The executions of each kind.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct StateTotals {
    pub(crate) ready: CappedCount,
    pub(crate) scheduled: CappedCount,
    pub(crate) claimed: CappedCount,
    pub(crate) blocked: CappedCount,
    pub(crate) failed: CappedCount,
}

impl StateTotals {
    /// Whether any state has more than was counted.
    pub(crate) fn is_more(&self) -> bool {
        let all = [
            self.ready,
            self.scheduled,
            self.claimed,
            self.blocked,
            self.failed,
        ];
        all.iter().any(|count| count.is_more)
    }
}

#[derive(QueryableByName)]
struct TotalsRow {
    #[diesel(sql_type = BigInt)]
    ready: i64,
    #[diesel(sql_type = BigInt)]
    scheduled: i64,
    #[diesel(sql_type = BigInt)]
    claimed: i64,
    #[diesel(sql_type = BigInt)]
    blocked: i64,
    #[diesel(sql_type = BigInt)]
    failed: i64,
}

/// Returns the expression that counts the executions of a kind, from the newest on: the rows that have
/// been deleted were the oldest.
fn count(place: &str) -> String {
    format!(
        "(SELECT count(*) FROM (SELECT 1 FROM solid_queue_{place}_executions WHERE id > 0 \
         ORDER BY id DESC LIMIT {}) AS {place}_rows) AS {place}",
        MOST + 1
    )
}

/// Counts the executions of each kind.
pub(crate) fn totals(conn: &mut Conn<'_>) -> QueryResult<StateTotals> {
    let counts = ["ready", "scheduled", "claimed", "blocked", "failed"].map(count);
    let text = format!("SELECT {}", counts.join(", "));
    let row: TotalsRow = Statement::new(text).get_result(conn)?;
    let of = |rows| CappedCount::of(rows, MOST);
    Ok(StateTotals {
        ready: of(row.ready),
        scheduled: of(row.scheduled),
        claimed: of(row.claimed),
        blocked: of(row.blocked),
        failed: of(row.failed),
    })
}

#[derive(QueryableByName)]
struct BlockedTotal {
    #[diesel(sql_type = BigInt)]
    blocked: i64,
}

/// Counts the blocked executions.
pub(crate) fn blocked(conn: &mut Conn<'_>) -> QueryResult<CappedCount> {
    let row: BlockedTotal =
        Statement::new(format!("SELECT {}", count("blocked"))).get_result(conn)?;
    Ok(CappedCount::of(row.blocked, MOST))
}

#[derive(QueryableByName)]
struct JobsEstimate {
    #[diesel(sql_type = BigInt)]
    jobs: i64,
}

/// Estimates the number of rows of jobs, finished ones as well: from the statistics of Postgres, and
/// from the lowest and the highest id on SQLite.
pub(crate) fn estimated_jobs(conn: &mut Conn<'_>) -> QueryResult<u64> {
    let by_ids = "(SELECT coalesce(max(id), 0) FROM solid_queue_jobs) - (SELECT coalesce(min(id), 1) FROM solid_queue_jobs) + 1";
    let text = match conn.dialect() {
        // A table that was never analyzed has -1 rows.
        Dialect::Postgres => format!(
            "SELECT CASE WHEN known.jobs >= 0 THEN known.jobs ELSE {by_ids} END AS jobs FROM \
             (SELECT CAST(reltuples AS bigint) AS jobs FROM pg_class \
              WHERE oid = CAST('solid_queue_jobs' AS regclass)) AS known"
        ),
        Dialect::Sqlite => format!("SELECT {by_ids} AS jobs"),
    };
    let row: JobsEstimate = Statement::new(text).get_result(conn)?;
    Ok(u64::try_from(row.jobs).unwrap_or(0))
}
