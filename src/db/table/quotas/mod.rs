//! `windlass_quota_slots` and `windlass_quota_jobs`: what was enqueued under quotas.

pub(crate) mod jobs;
pub(crate) mod slots;

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::{Lossy, micros};
use crate::db::conn::statement::Statement;
use crate::db::model::new_row::Per;
use crate::db::table::quotas::jobs::WAITS;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Nullable, Text};
use std::time::Duration;

/// A quota that was used lately.
#[derive(Debug, QueryableByName)]
pub(crate) struct UsedQuota {
    #[diesel(sql_type = Text, deserialize_as = Lossy)]
    pub(crate) name: String,
    #[diesel(sql_type = Nullable<Text>)]
    pub(crate) limits: Option<String>,
    #[diesel(sql_type = BigInt)]
    pub(crate) waiting: i64,
    #[diesel(sql_type = BigInt)]
    pub(crate) a_second: i64,
    #[diesel(sql_type = BigInt)]
    pub(crate) a_minute: i64,
    #[diesel(sql_type = BigInt)]
    pub(crate) a_day: i64,
}

/// Returns the quotas that were used in the last days, and how much of each is used.
pub(crate) fn all(conn: &mut Conn<'_>) -> QueryResult<Vec<UsedQuota>> {
    let used = |per: Per, since: &str| {
        format!(
            "CAST(coalesce((SELECT sum(s.jobs) FROM windlass_quota_slots s WHERE s.quota = names.quota \
             AND s.per = '{}' AND s.starts_at > {{later {since}}}), 0) AS bigint)",
            per.name()
        )
    };
    let text = format!(
        "SELECT names.quota AS name, (SELECT s.limits FROM windlass_quota_slots s WHERE s.quota = names.quota \
           ORDER BY s.starts_at DESC, s.jobs DESC LIMIT 1) AS limits, \
         (SELECT count(*) FROM windlass_quota_jobs q WHERE q.quota = names.quota AND {WAITS}) AS waiting, \
         {} AS a_minute, {} AS a_day, {} AS a_second \
         FROM (SELECT DISTINCT quota FROM windlass_quota_slots) AS names ORDER BY names.quota",
        used(Per::Minute, "$1"),
        used(Per::Day, "$2"),
        used(Per::Second, "$3"),
    );
    let age = |per: Per| -micros(per.window().unwrap_or(Duration::MAX));
    Statement::new(text)
        .bind(age(Per::Minute))
        .bind(age(Per::Day))
        .bind(age(Per::Second))
        .unkept()
        .load(conn)
}
