//! Priorities that are times: jobs are ordered by the time from which they wait, whenever they were enqueued.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::Dialect;
use crate::db::conn::statement::Statement;
use crate::db::model::new_row::NewRow;
use chrono::{NaiveDate, NaiveDateTime};
use diesel::prelude::*;
use diesel::sql_types::BigInt;

/// Sets the priority of the rows that ask for it to the second from which they wait: the database's
/// current time, or when they are due. They are then ordered by these times, whenever they were
/// enqueued.
///
/// The clock is read by a statement before the insert, which has no expression for it: only callers
/// of this feature pay for it.
pub(crate) fn rank_by_time(conn: &mut Conn<'_>, rows: &mut [NewRow]) -> QueryResult<()> {
    if rows.iter().all(|row| row.ahead_by.is_none()) {
        return Ok(());
    }
    let now = now(conn)?;
    for row in rows {
        let Some(ahead_by) = row.ahead_by else {
            continue;
        };
        let due = match (row.at, row.delay) {
            (Some(at), _) => at.and_utc().timestamp() - epoch(),
            (None, delay) => now.saturating_add(delay.unwrap_or(0) / 1_000_000),
        };
        row.priority = priority(due.max(now), ahead_by);
    }
    Ok(())
}

/// Returns the priority of a job that waits from a time on.
pub(crate) fn rank(from: NaiveDateTime, ahead_by: i64) -> i32 {
    priority(from.and_utc().timestamp() - epoch(), ahead_by)
}

/// In seconds since [`epoch`].
fn priority(from: i64, ahead_by: i64) -> i32 {
    let rank = from.saturating_sub(ahead_by);
    i32::try_from(rank).unwrap_or(if rank < 0 { i32::MIN } else { i32::MAX })
}

/// The year 2020 in Unix seconds, so that a priority, which has 32 bits, covers 1952 to 2088.
fn epoch() -> i64 {
    NaiveDate::from_ymd_opt(2020, 1, 1)
        .unwrap_or_default()
        .and_time(chrono::NaiveTime::MIN)
        .and_utc()
        .timestamp()
}

#[derive(QueryableByName)]
struct EpochSeconds {
    #[diesel(sql_type = BigInt)]
    seconds: i64,
}

fn now(conn: &mut Conn<'_>) -> QueryResult<i64> {
    let text = match conn.dialect() {
        Dialect::Postgres => {
            "SELECT CAST(floor(extract(epoch FROM statement_timestamp())) AS bigint) AS seconds"
        }
        Dialect::Sqlite => "SELECT CAST(strftime('%s', 'now') AS bigint) AS seconds",
    };
    let now: EpochSeconds = Statement::new(text).get_result(conn)?;
    Ok(now.seconds - epoch())
}
