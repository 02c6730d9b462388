//! Finding jobs for a list: along an index, from a position in it, a window at a time.

use crate::read::sql::job_search::JobSearch;
use crate::read::sql::newest_job::newest_id;
use chrono::{NaiveDateTime, TimeDelta};
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Integer, Nullable};
use windlass::Conn;
use windlass::database::Dialect;
use windlass::internal::db::conn::dialect::{Execution, MaybeId, id_list, timestamp};
use windlass::internal::db::conn::statement::Statement;
use windlass::internal::db::query::filter::Conditions;
use windlass::internal::db::query::jobs::JobMatch;
use windlass::jobs::JobState;

/// The most rows that a search without an index looks at before it stops and can be continued.
pub(crate) const WINDOW: i64 = 10_000;

/// From where a list goes on, and in which direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ListPosition {
    /// With older rows than this key; `i64::MAX` for the newest.
    Before(i64),
    /// With newer rows than this key.
    After(i64),
}

impl ListPosition {
    fn order(self) -> &'static str {
        match self {
            ListPosition::Before(_) => "DESC",
            ListPosition::After(_) => "ASC",
        }
    }
}

/// By what the rows of a list are found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AccessPath {
    /// In the order of their keys.
    Key,
    /// By the ids of their jobs, of which there are few.
    Jobs(Vec<i64>),
    /// Ready executions of the searched queue, which has only these priorities.
    Priorities(Vec<i32>),
}

/// The lowest and the highest of the keys that a search looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KeyRange {
    pub(crate) lowest: i64,
    pub(crate) highest: i64,
}

impl KeyRange {
    pub(crate) const ALL: KeyRange = KeyRange {
        lowest: i64::MIN,
        highest: i64::MAX,
    };

    /// Returns what of it lies in the direction of a list.
    pub(crate) fn from(self, position: ListPosition) -> KeyRange {
        match position {
            ListPosition::Before(key) => KeyRange {
                highest: self.highest.min(key.saturating_sub(1)),
                ..self
            },
            ListPosition::After(key) => KeyRange {
                lowest: self.lowest.max(key.saturating_add(1)),
                ..self
            },
        }
    }
}

/// Returns the rows `e` of a list in a range, at most `most`, in the order of its direction; as
/// the text of a query whose parameters come first.
fn rows<'s>(
    search: &'s JobSearch,
    by: &AccessPath,
    range: KeyRange,
    (order, most): (&str, i64),
) -> Conditions<'s> {
    let mut query = Conditions::after(vec![range.lowest.into(), range.highest.into(), most.into()]);
    search.add_indexed(&mut query);
    let indexed = std::mem::take(&mut query.text);
    let (key, job, table) = (search.key(), search.job(), search.table());
    let found = match by {
        AccessPath::Key => String::new(),
        AccessPath::Jobs(ids) => format!("e.{job} IN {{in {}}} AND ", query.param(id_list(ids))),
        AccessPath::Priorities(_) => {
            let queue = query.param(&search.queue);
            format!("e.queue_name = {queue} AND e.priority = {{one}} AND ")
        }
    };
    let part = format!(
        "SELECT * FROM {table} e WHERE {found}e.{key} >= $1 AND e.{key} <= $2{indexed} ORDER BY e.{key} {order} LIMIT $3"
    );
    query.text = match by {
        AccessPath::Priorities(priorities) => {
            let parts: Vec<String> = priorities
                .iter()
                .map(|priority| {
                    let priority = query.param(*priority);
                    let part = part.replace("{one}", &priority);
                    format!("SELECT * FROM ({part}) AS of_priority")
                })
                .collect();
            let all = parts.join(" UNION ALL ");
            format!("SELECT * FROM ({all}) AS every ORDER BY every.{key} {order} LIMIT $3")
        }
        AccessPath::Key | AccessPath::Jobs(_) => part,
    };
    query
}

#[derive(QueryableByName)]
struct WindowEnds {
    #[diesel(sql_type = Nullable<BigInt>)]
    lowest: Option<i64>,
    #[diesel(sql_type = Nullable<BigInt>)]
    highest: Option<i64>,
    #[diesel(sql_type = BigInt)]
    size: i64,
}

/// The rows that one search looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct JobWindow {
    pub(crate) range: KeyRange,
    /// The number of its rows.
    pub(crate) size: i64,
}

impl JobWindow {
    /// Returns the last key that a search in this direction looks at, if there may be more beyond it.
    pub(crate) fn stop(&self, position: ListPosition) -> Option<i64> {
        let end = match position {
            ListPosition::Before(_) => self.range.lowest,
            ListPosition::After(_) => self.range.highest,
        };
        (self.size >= WINDOW).then_some(end)
    }
}

/// Returns the next rows of a list, whether they match or not. `None` if there are no more.
pub(crate) fn window(
    conn: &mut Conn<'_>,
    search: &JobSearch,
    by: &AccessPath,
    range: KeyRange,
    position: ListPosition,
) -> QueryResult<Option<JobWindow>> {
    let query = rows(search, by, range.from(position), (position.order(), WINDOW));
    let text = format!(
        "SELECT min(w.{key}) AS lowest, max(w.{key}) AS highest, count(*) AS size FROM ({}) AS w",
        query.text,
        key = search.key(),
    );
    let ends: WindowEnds = Statement::new(text)
        .uncached()
        .bind_all(query.params)
        .get_result(conn)?;
    let range = ends.lowest.zip(ends.highest);
    let range = range.map(|(lowest, highest)| KeyRange { lowest, highest });
    let size = ends.size;
    Ok(range.map(|range| JobWindow { range, size }))
}

/// Returns the jobs of a range that match, in the order of the list's direction, at most `limit`.
/// No plan looks at more than `most` rows.
pub(crate) fn matching(
    conn: &mut Conn<'_>,
    search: &JobSearch,
    by: &AccessPath,
    range: KeyRange,
    (position, most, limit): (ListPosition, i64, usize),
) -> QueryResult<Vec<JobMatch>> {
    let order = position.order();
    let mut query = rows(search, by, range.from(position), (order, most));
    let rows = std::mem::take(&mut query.text);
    search.add_others(conn.dialect(), &mut query);
    let limit = query.param(i64::try_from(limit).unwrap_or(i64::MAX));
    let key = search.key();
    let (of, from) = match (search.job(), conn.dialect()) {
        // The rows are the jobs themselves.
        ("id", _) => ("job", format!("({rows}) AS job")),
        (_, Dialect::Postgres) => (
            "found",
            format!(
                "({rows}) AS found CROSS JOIN LATERAL \
                 (SELECT * FROM solid_queue_jobs j WHERE j.id = found.job_id LIMIT 1) AS job"
            ),
        ),
        // SQLite keeps the order of a CROSS JOIN.
        (_, Dialect::Sqlite) => (
            "found",
            format!("({rows}) AS found CROSS JOIN solid_queue_jobs job ON job.id = found.job_id"),
        ),
    };
    let text = format!(
        "SELECT {of}.{key} AS key, job.id AS job_id FROM {from} WHERE true{} ORDER BY {of}.{key} {order} LIMIT {limit}",
        query.text
    );
    Statement::new(text)
        .uncached()
        .bind_all(query.params)
        .load(conn)
}

#[derive(QueryableByName)]
struct OnePriority {
    #[diesel(sql_type = Nullable<Integer>)]
    priority: Option<i32>,
}

/// Returns the priorities of the ready executions of a queue, at most `most`, by a loose index scan.
pub(crate) fn priorities(conn: &mut Conn<'_>, queue: &str, most: i64) -> QueryResult<Vec<i32>> {
    let text = "WITH RECURSIVE walk(priority) AS ( \
           SELECT min(priority) FROM solid_queue_ready_executions WHERE queue_name = $1 \
           UNION ALL \
           SELECT (SELECT min(r.priority) FROM solid_queue_ready_executions r WHERE r.queue_name = $1 AND r.priority > walk.priority) \
           FROM walk WHERE walk.priority IS NOT NULL) \
         SELECT priority FROM walk WHERE priority IS NOT NULL LIMIT $2";
    let found: Vec<OnePriority> = Statement::new(text)
        .uncached()
        .bind(queue)
        .bind(most)
        .load(conn)?;
    Ok(found.into_iter().filter_map(|row| row.priority).collect())
}

/// Returns the newest finished job whose id is in a range: jobs that wait may be the newest million, and there is no
/// index of those that have finished.
pub(crate) fn newest_finished(conn: &mut Conn<'_>, range: KeyRange) -> QueryResult<Option<i64>> {
    let text = "SELECT id AS job_id FROM solid_queue_jobs WHERE id >= $1 AND id <= $2 AND finished_at IS NOT NULL \
         ORDER BY id DESC LIMIT 1";
    let found: Option<Execution> = Statement::new(text)
        .uncached()
        .bind(range.lowest)
        .bind(range.highest)
        .get_result(conn)
        .optional()?;
    Ok(found.map(|row| row.job_id))
}

/// Returns the job of a row of the list.
pub(crate) fn job_of_key(
    conn: &mut Conn<'_>,
    state: Option<JobState>,
    key: i64,
) -> QueryResult<Option<i64>> {
    let table = match state {
        Some(JobState::Failed | JobState::Cancelled | JobState::Discarded) => {
            state.map(JobState::table)
        }
        _ => None,
    };
    let Some(table) = table else {
        return Ok(Some(key));
    };
    let text = format!("SELECT job_id FROM {table} WHERE id = $1");
    let found: Option<Execution> = Statement::new(text)
        .uncached()
        .bind(key)
        .get_result(conn)
        .optional()?;
    Ok(found.map(|row| row.job_id))
}

// --- Ids as bounds in time: they grow with it, so that a time is found in about 25 steps ---

/// By how much a row may be out of order: the duration of the statement that inserts in bulk, and
/// the difference between the clocks of programs that set their times themselves.
const MARGIN: TimeDelta = TimeDelta::minutes(15);

/// By how many ids at most: more would leave too little of a window for the time that was asked for.
const MARGIN_IDS: i64 = 2_000;

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
    let found: MaybeId = Statement::new(text)
        .uncached()
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

/// The number of the newest jobs, by their ids, that are searched for a part of their arguments.
pub(crate) const SEARCHED_JOBS: i64 = 100_000;
