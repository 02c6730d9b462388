//! Admits jobs on SQLite, where the write lock makes it exact.

use crate::db::conn::connection::Conn;
use crate::db::conn::statement::Statement;
use crate::db::model::new_quota::{NewQuota, QuotaUse};
use crate::db::table::quotas::WAITS;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Double, Text};

/// The database's clock, and the windows that it is in. It is read once: all statements of one
/// decision are about the same windows.
#[derive(QueryableByName)]
struct Windows {
    #[diesel(sql_type = Text)]
    now: String,
    #[diesel(sql_type = Text)]
    minute: String,
    #[diesel(sql_type = Text)]
    day: String,
    #[diesel(sql_type = Double)]
    to_minute: f64,
    #[diesel(sql_type = Double)]
    to_day: f64,
}

#[derive(QueryableByName)]
struct Counts {
    #[diesel(sql_type = BigInt)]
    a_minute: i64,
    #[diesel(sql_type = BigInt)]
    a_day: i64,
    #[diesel(sql_type = BigInt)]
    noted: i64,
}

#[derive(QueryableByName)]
struct Waiting {
    #[diesel(sql_type = BigInt)]
    waiting: i64,
}

/// Admits up to `wanted` jobs and counts them.
pub(super) fn admit(conn: &mut Conn<'_>, quota: &NewQuota, wanted: i64) -> QueryResult<QuotaUse> {
    let text = "SELECT strftime('%Y-%m-%d %H:%M:%f000', 'now') AS now, \
         strftime('%Y-%m-%d %H:%M:00.000000', 'now') AS minute, strftime('%Y-%m-%d 00:00:00.000000', 'now') AS day, \
         60.0 - CAST(strftime('%f', 'now') AS real) AS to_minute, \
         86400.0 - CAST(strftime('%s', 'now') % 86400 AS real) AS to_day";
    let windows: Windows = Statement::new(text).unkept().get_result(conn)?;
    // A write comes first: a transaction that reads first may be refused its first write.
    count(conn, quota, &windows, 0)?;
    let (mut counts, limits) = (counts(conn, quota, &windows)?, &quota.limits);
    if let Some(most) = limits.waiting
        && counts.noted + wanted > most
    {
        counts.noted = waiting(conn, quota)?;
    }
    let left = |limit: Option<i64>, used: i64| limit.map(|limit| limit - used);
    let left = [
        left(limits.waiting, counts.noted),
        left(limits.per_minute, counts.a_minute),
        left(limits.per_day, counts.a_day),
    ];
    let least = left.into_iter().flatten().min().unwrap_or(wanted);
    let admitted = least.clamp(0, wanted);
    count(conn, quota, &windows, admitted)?;
    Ok(QuotaUse {
        admitted,
        waiting: counts.noted,
        a_minute: counts.a_minute,
        a_day: counts.a_day,
        to_minute: windows.to_minute,
        to_day: windows.to_day,
    })
}

/// Adds jobs to the counts of the current windows.
fn count(conn: &mut Conn<'_>, quota: &NewQuota, at: &Windows, jobs: i64) -> QueryResult<()> {
    let text = "INSERT INTO windlass_quota_counts (quota, per, starts_at, slot, jobs, limits) \
         VALUES ($1, 'minute', $2, 0, $4, $5), ($1, 'day', $3, 0, $4, $5) ON CONFLICT (quota, per, starts_at, slot) \
         DO UPDATE SET jobs = windlass_quota_counts.jobs + excluded.jobs, limits = excluded.limits";
    Statement::new(text)
        .bind(&quota.name)
        .bind(&at.minute)
        .bind(&at.day)
        .bind(jobs)
        .bind(quota.limits.to_column())
        .unkept()
        .execute(conn)
}

/// Returns what is used of the quota, and how many jobs are noted, of which some may not wait.
fn counts(conn: &mut Conn<'_>, quota: &NewQuota, at: &Windows) -> QueryResult<Counts> {
    let used = |per: &str| {
        format!(
            "coalesce((SELECT sum(jobs) FROM windlass_quota_counts WHERE quota = $1 AND per = '{per}' \
             AND starts_at > strftime('%Y-%m-%d %H:%M:%f000', $2, '-1 {per}') AND starts_at <= $2), 0)"
        )
    };
    let text = format!(
        "SELECT {} AS a_minute, {} AS a_day, \
         (SELECT count(*) FROM windlass_quota_jobs WHERE quota = $1) AS noted",
        used("minute"),
        used("day"),
    );
    Statement::new(text)
        .bind(&quota.name)
        .bind(&at.now)
        .unkept()
        .get_result(conn)
}

/// Deletes the notes of jobs that do not wait, and returns how many do.
fn waiting(conn: &mut Conn<'_>, quota: &NewQuota) -> QueryResult<i64> {
    let text = format!(
        "DELETE FROM windlass_quota_jobs WHERE job_id IN \
         (SELECT q.job_id FROM windlass_quota_jobs q WHERE q.quota = $1 AND NOT {WAITS})"
    );
    Statement::new(text)
        .bind(&quota.name)
        .unkept()
        .execute(conn)?;
    let text = "SELECT count(*) AS waiting FROM windlass_quota_jobs WHERE quota = $1";
    let left: Waiting = Statement::new(text)
        .bind(&quota.name)
        .unkept()
        .get_result(conn)?;
    Ok(left.waiting)
}
