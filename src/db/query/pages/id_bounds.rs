//! Ids as bounds in time: they grow with it, so that a time is found in about 25 steps.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::timestamp;
use crate::db::conn::statement::Statement;
use crate::db::query::newest_job::newest_id;
use crate::db::query::pages::job_search::JobSearch;
use crate::db::query::pages::job_window::KeyRange;
use chrono::{NaiveDateTime, TimeDelta};
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Nullable};

/// By how much a row may be out of order: the duration of the statement that inserts in bulk, and
/// the difference between the clocks of programs that set their times themselves.
const MARGIN: TimeDelta = TimeDelta::minutes(15);

/// By how many ids at most: more would leave too little of a window for the time that was asked for.
const MARGIN_IDS: i64 = 2_000;

#[derive(QueryableByName)]
struct IdBound {
    #[diesel(sql_type = Nullable<BigInt>)]
    id: Option<i64>,
}

/// Returns the lowest id whose row is from `time` or later, by bisection, if the ids grow with the
/// time; an id that is not below the highest if all rows are older.
fn id_at(
    conn: &mut Conn<'_>,
    (table, column): (&str, &str),
    time: NaiveDateTime,
) -> QueryResult<Option<i64>> {
    let middle = "half.low + (half.high - half.low) / 2";
    let is_before = format!(
        "(SELECT t.{column} FROM {table} t WHERE t.id >= {middle} ORDER BY t.id LIMIT 1) < {{time $1}}"
    );
    let newest = match table {
        "solid_queue_jobs" => newest_id(conn.dialect()).to_owned(),
        _ => format!("(SELECT max(id) FROM {table})"),
    };
    let text = format!(
        "WITH RECURSIVE half(low, high) AS ( \
           SELECT (SELECT min(id) FROM {table}), {newest} \
           UNION ALL \
           SELECT CASE WHEN {is_before} THEN {middle} + 1 ELSE half.low END, CASE WHEN {is_before} THEN half.high ELSE {middle} END \
           FROM half WHERE half.low < half.high) \
         SELECT max(low) AS id FROM half WHERE low >= high"
    );
    let found: IdBound = Statement::new(text)
        .unkept()
        .bind(timestamp(time))
        .get_result(conn)?;
    Ok(found.id)
}

/// Returns the keys between which a list has all jobs from `from` on and before `to`.
pub(crate) fn in_time(
    conn: &mut Conn<'_>,
    search: &JobSearch,
    from: Option<NaiveDateTime>,
    to: Option<NaiveDateTime>,
) -> QueryResult<KeyRange> {
    let clock = search.clock();
    let mut range = KeyRange::ALL;
    if search.is_by_job() && !search.has_job_keys() {
        return Ok(range);
    }
    if let Some(from) = from {
        let early = from.checked_sub_signed(MARGIN).unwrap_or(from);
        let (exact, early) = (id_at(conn, clock, from)?, id_at(conn, clock, early)?);
        range.lowest = exact.zip(early).map_or(range.lowest, |(exact, early)| {
            early.max(exact.saturating_sub(MARGIN_IDS))
        });
    }
    if let Some(to) = to {
        let late = to.checked_add_signed(MARGIN).unwrap_or(to);
        let (exact, late) = (id_at(conn, clock, to)?, id_at(conn, clock, late)?);
        range.highest = exact.zip(late).map_or(range.highest, |(exact, late)| {
            late.min(exact.saturating_add(MARGIN_IDS))
        });
    }
    Ok(range)
}

/// How many of the newest jobs, by their ids, are searched for a part of their arguments.
pub(crate) const SEARCHED_JOBS: i64 = 100_000;
