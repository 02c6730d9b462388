//! Walks over selected jobs, and counts them up to a bound.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::{Id, IdRange};
use crate::db::conn::statement::Statement;
use crate::db::model::state::JobState;
use crate::db::query::filter::{Filter, conditions, joined};
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Nullable};

#[derive(QueryableByName)]
struct ExecutionId {
    #[diesel(sql_type = Nullable<BigInt>)]
    id: Option<i64>,
}

/// Returns the last execution of a state: the end of a scan, so that jobs that move there meanwhile
/// are not found again.
pub(crate) fn last(conn: &mut Conn<'_>, state: JobState) -> QueryResult<i64> {
    let text = format!("SELECT max(id) AS id FROM {}", state.table());
    Statement::new(text)
        .get_result::<ExecutionId>(conn)
        .map(|row| row.id.unwrap_or(0))
}

/// Returns the first execution of a state; 0 if there is none.
pub(crate) fn first(conn: &mut Conn<'_>, state: JobState) -> QueryResult<i64> {
    let text = format!("SELECT min(id) AS id FROM {}", state.table());
    Statement::new(text)
        .get_result::<ExecutionId>(conn)
        .map(|row| row.id.unwrap_or(0))
}

/// A job found by a scan.
#[derive(Debug, Clone, Copy, QueryableByName)]
pub(crate) struct ScannedJob {
    #[diesel(sql_type = BigInt)]
    pub(crate) execution_id: i64,
    #[diesel(sql_type = BigInt)]
    pub(crate) job_id: i64,
}

/// One page of a scan.
#[derive(Debug)]
pub(crate) struct ScannedPage {
    /// In the order of their executions.
    pub(crate) jobs: Vec<i64>,
    /// The execution up to which it looked; `None` at the end of the scan.
    pub(crate) reached: Option<i64>,
}

/// How many executions a page of a scan reads, whether their jobs are selected or not.
const WINDOW: i64 = 5_000;

/// Returns the next jobs of a state whose executions are in the range, in their order, at most
/// `limit`. It reads a bounded number of executions, so a page may have few jobs and still not be
/// the last.
pub(crate) fn next(
    conn: &mut Conn<'_>,
    state: JobState,
    filter: &Filter,
    range: IdRange,
    limit: usize,
) -> QueryResult<ScannedPage> {
    let end = match filter.part_of_group() {
        Some(group) if state == JobState::Failed => group_window(conn, group, range)?,
        _ if filter.has_index() => Some(range.up_to).filter(|end| *end > range.after),
        _ => window(conn, state, range)?,
    };
    let Some(end) = end else {
        return Ok(ScannedPage {
            jobs: Vec::new(),
            reached: None,
        });
    };
    let mut wanted = conditions(conn.dialect(), state, filter);
    wanted.add("e.id > ?", range.after);
    wanted.add("e.id <= ?", end);
    let most = wanted.param(limit as i64);
    let text = format!(
        "SELECT e.id AS execution_id, j.id AS job_id FROM {} WHERE true{} ORDER BY e.id LIMIT {most}",
        joined(state),
        wanted.text
    );
    let found: Vec<ScannedJob> = Statement::new(text).bind_all(wanted.params).load(conn)?;
    let is_full = found.len() >= limit;
    let last = found.last().filter(|_| is_full);
    let reached = last.map_or(end, |last| last.execution_id);
    Ok(ScannedPage {
        jobs: found.iter().map(|found| found.job_id).collect(),
        reached: (reached < range.up_to).then_some(reached),
    })
}

/// Returns the last execution of a part of the range. `None` if it has none.
fn window(conn: &mut Conn<'_>, state: JobState, range: IdRange) -> QueryResult<Option<i64>> {
    let text = format!(
        "SELECT max(w.id) AS id FROM (SELECT id FROM {} WHERE id > $1 AND id <= $2 ORDER BY id LIMIT {WINDOW}) AS w",
        state.table()
    );
    let row: ExecutionId = Statement::new(text)
        .bind(range.after)
        .bind(range.up_to)
        .get_result(conn)?;
    Ok(row.id)
}

/// Returns the last failure of a part of a group in the range. `None` if it has none.
fn group_window(conn: &mut Conn<'_>, group: &str, range: IdRange) -> QueryResult<Option<i64>> {
    let text = format!(
        "SELECT max(w.id) AS id FROM (SELECT id FROM solid_queue_failed_executions \
         WHERE fingerprint = $1 AND id > $2 AND id <= $3 ORDER BY id LIMIT {WINDOW}) AS w"
    );
    let row: ExecutionId = Statement::new(text)
        .bind(group)
        .bind(range.after)
        .bind(range.up_to)
        .get_result(conn)?;
    Ok(row.id)
}

/// How many jobs were counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CountedJobs {
    pub(crate) count: u64,
    /// Whether there are no more.
    pub(crate) is_exact: bool,
}

/// How many executions of a state a count reads, the newest, where no index finds the jobs.
const COUNTED: i64 = 100_000;

/// Counts the jobs of a state up to `most`. If there are more executions than are read, it returns
/// how many are among the newest.
pub(crate) fn count(
    conn: &mut Conn<'_>,
    state: JobState,
    filter: &Filter,
    most: u64,
) -> QueryResult<CountedJobs> {
    if let (JobState::Ready, Some(queue)) = (state, filter.only_queue()) {
        return count_ready(conn, queue, most);
    }
    let before = match filter.has_index() {
        true => 0,
        false => before_newest(conn, state)?,
    };
    let mut wanted = conditions(conn.dialect(), state, filter);
    // Without a condition on the jobs, none of them is read.
    let rows = match wanted.text.contains("j.") {
        true => joined(state),
        false => format!("{} e", state.table()),
    };
    wanted.add("e.id > ?", before);
    let limit = wanted.param(i64::try_from(most).unwrap_or(i64::MAX).saturating_add(1));
    let text = format!(
        "SELECT count(*) AS id FROM (SELECT 1 AS one FROM {rows} WHERE true{} LIMIT {limit}) AS found",
        wanted.text
    );
    let row: Id = Statement::new(text)
        .bind_all(wanted.params)
        .get_result(conn)?;
    let all = counted(row.id, most);
    Ok(CountedJobs {
        is_exact: all.is_exact && before == 0,
        ..all
    })
}

/// Counts the ready jobs of a queue up to `most`, in the order of their index.
fn count_ready(conn: &mut Conn<'_>, queue: &str, most: u64) -> QueryResult<CountedJobs> {
    let text = "SELECT count(*) AS id FROM (SELECT 1 AS one FROM solid_queue_ready_executions e \
         WHERE e.queue_name = $1 ORDER BY e.priority, e.job_id LIMIT $2) AS found";
    let limit = i64::try_from(most).unwrap_or(i64::MAX).saturating_add(1);
    let row: Id = Statement::new(text)
        .bind(queue)
        .bind(limit)
        .get_result(conn)?;
    Ok(counted(row.id, most))
}

fn counted(rows: i64, most: u64) -> CountedJobs {
    let count = u64::try_from(rows).unwrap_or(0);
    CountedJobs {
        count: count.min(most),
        is_exact: count <= most,
    }
}

/// Returns the execution before the newest that a count reads; 0 if it reads all.
fn before_newest(conn: &mut Conn<'_>, state: JobState) -> QueryResult<i64> {
    let text = format!(
        "SELECT id FROM {} ORDER BY id DESC LIMIT 1 OFFSET {COUNTED}",
        state.table()
    );
    let row: Option<Id> = Statement::new(text).get_result(conn).optional()?;
    Ok(row.map_or(0, |row| row.id))
}
