//! `solid_queue_recurring_tasks`: the tasks and when each is due next.
//!
//! A row with a `next_run_at` belongs to Windlass; a Rails app's has none and is left alone. Every
//! change to a row of Windlass locks it first and increments `row_version`.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::{Dialect, Id, timestamp};
use crate::db::conn::statement::Statement;
use crate::db::model::recurring::{Definition, NextTick, RecurringTaskRow, Scheduled};
use chrono::NaiveDateTime;
use diesel::prelude::*;
use diesel::sql_types::{Nullable, Timestamp};
use serde_json::Value;
use std::time::Duration;

const COLUMNS: &str = "id, key, coalesce(schedule_text, schedule) AS schedule, coalesce(time_zone, 'UTC') AS time_zone, coalesce(class_name, '') AS class_name, \
     coalesce(arguments, 'null') AS arguments, coalesce(queue_name, 'default') AS queue_name, \
     coalesce(priority, 0) AS priority, description, coalesce(options, '') AS options, \
     {moment next_run_at} AS next_run_at, {moment last_run_at} AS last_run_at, \
     {moment queued_run_at} AS queued_run_at, open_jobs, {moment paused_at} AS paused_at, \
     {moment declared_at} AS declared_at, revision, row_version, starts, {now} AS now";

/// The time for which a task that no scheduler declares any more is kept.
pub(crate) const KEPT: Duration = Duration::from_secs(7 * 24 * 3600);

/// A condition on the process `p`: a scheduler of Windlass runs.
const RUNS: &str = "p.kind = 'Scheduler' AND p.metadata LIKE '%\"windlass\":%' AND p.last_heartbeat_at > {later -60000000}";

/// Returns a condition on a task: a program declares it, and no scheduler that runs does.
fn is_unlisted(conn: &Conn<'_>) -> String {
    let names = match conn.dialect() {
        Dialect::Postgres => "strpos(p.metadata, CAST(to_json(key) AS text)) > 0",
        Dialect::Sqlite => "instr(p.metadata, json_quote(key)) > 0",
    };
    format!(
        "(declared_at IS NOT NULL AND (SELECT p.id FROM solid_queue_processes p WHERE {RUNS} AND {names} LIMIT 1) IS NULL)"
    )
}

/// Returns a condition on a task: a program has declared it, and no scheduler that runs does so any more. Not if none runs:
/// then nothing is known of it.
pub fn is_undeclared(conn: &Conn<'_>) -> String {
    let unlisted = is_unlisted(conn);
    format!(
        "({unlisted} AND (SELECT p.id FROM solid_queue_processes p WHERE {RUNS} LIMIT 1) IS NOT NULL)"
    )
}

/// Returns the columns of a task, and whether schedulers that run declare it.
pub fn columns(conn: &Conn<'_>) -> String {
    let (unlisted, undeclared) = (is_unlisted(conn), is_undeclared(conn));
    format!("{COLUMNS}, {unlisted} AS is_unlisted, {undeclared} AS is_undeclared")
}

pub(crate) fn change(
    conn: &mut Conn<'_>,
    row: &RecurringTaskRow,
    new: &Definition,
    next: NextTick<'_>,
) -> QueryResult<Scheduled> {
    let Some(next_run_at) = row.next_run_at else {
        return Ok(Scheduled::Foreign);
    };
    match (row.declared_at.is_some(), new.revision) {
        (true, None) => return Ok(Scheduled::Declared),
        (false, Some(_)) => return Ok(Scheduled::AtRunTime),
        _ => {}
    }
    if row.revision > new.revision {
        let text = "UPDATE solid_queue_recurring_tasks SET declared_at = {now} WHERE id = $1";
        Statement::new(text).bind(row.id).execute(conn)?;
        return Ok(Scheduled::Newer);
    }
    // Not its last tick again if the clock was set back.
    let from = row.now.max(row.last_run_at.unwrap_or(row.now));
    let starts = starts_with(row.starts.as_deref(), new.start.as_deref());
    let next_run_at = match (&starts, has_times_of(row, new)) {
        (Some(_), _) => Some(from),
        (None, true) => Some(next_run_at),
        (None, false) => next(from),
    };
    let Some(next_run_at) = next_run_at else {
        return Ok(Scheduled::Untimed);
    };
    write(conn, UPDATE, new, next_run_at, starts.as_deref())?;
    Ok(Scheduled::Done(next_run_at))
}

/// Stores a new definition of a task, whose row is locked.
pub(crate) fn replace(
    conn: &mut Conn<'_>,
    new: &Definition,
    next_run_at: NaiveDateTime,
) -> QueryResult<()> {
    write(conn, UPDATE, new, next_run_at, None).map(drop)
}

/// Returns whether the ticks of a task stay as they are.
pub(crate) fn has_times_of(row: &RecurringTaskRow, new: &Definition) -> bool {
    let window = |options: &str| {
        let options: Value = serde_json::from_str(options).unwrap_or_default();
        (options["from"].clone(), options["until"].clone())
    };
    row.schedule == new.schedule
        && row.time_zone == new.time_zone
        && window(&row.options) == window(&new.options)
}

/// The number of deployments that are remembered for each task.
const STARTS: usize = 100;

/// Returns the deployments whose start a task has had, with a new one; `None` if it is not new.
fn starts_with(known: Option<&str>, new: Option<&str>) -> Option<String> {
    let known = known.and_then(|known| serde_json::from_str(known).ok());
    let mut starts: Vec<String> = known.unwrap_or_default();
    let new = new.filter(|new| starts.iter().all(|start| start != new))?;
    starts.push(new.to_owned());
    let first = starts.len().saturating_sub(STARTS);
    serde_json::to_string(&starts[first..]).ok()
}

pub(crate) const UPDATE: &str = "UPDATE solid_queue_recurring_tasks SET schedule = $1, time_zone = $2, class_name = $3, arguments = $4, \
       queue_name = $5, priority = $6, description = $7, options = $8, revision = $9, next_run_at = {time $10}, \
       declared_at = CASE WHEN CAST($9 AS bigint) IS NULL THEN NULL ELSE {now} END, \
       starts = coalesce($12, starts), schedule_text = $13, updated_at = {now}, row_version = row_version + 1 WHERE key = $11 RETURNING id";

const INSERT: &str = "INSERT INTO solid_queue_recurring_tasks (schedule, time_zone, class_name, arguments, queue_name, priority, \
       description, options, revision, next_run_at, declared_at, key, starts, schedule_text, static, created_at, updated_at) \
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, {time $10}, \
       CASE WHEN CAST($9 AS bigint) IS NULL THEN NULL ELSE {now} END, $11, $12, $13, false, {now}, {now}) \
     ON CONFLICT (key) DO NOTHING RETURNING id";

fn write(
    conn: &mut Conn<'_>,
    text: &str,
    new: &Definition,
    next_run_at: NaiveDateTime,
    starts: Option<&str>,
) -> QueryResult<bool> {
    let written: Vec<Id> = Statement::new(text)
        .bind(&new.in_ruby)
        .bind(&new.time_zone)
        .bind(&new.class_name)
        .bind(&new.arguments)
        .bind(&new.queue_name)
        .bind(new.priority)
        .bind(&new.description)
        .bind(&new.options)
        .bind(new.revision)
        .bind(timestamp(next_run_at))
        .bind(&new.key)
        .bind(starts)
        .bind(&new.schedule)
        .load(conn)?;
    Ok(written.iter().any(|row| row.id > 0))
}

/// Inserts a task. Returns `None` if there is one with its key.
pub(crate) fn insert_recurring_task(
    conn: &mut Conn<'_>,
    new: &Definition,
    next: NextTick<'_>,
) -> QueryResult<Option<Scheduled>> {
    let now = now(conn)?;
    let starts = starts_with(None, new.start.as_deref());
    let first = match &starts {
        Some(_) => Some(now),
        None => next(now),
    };
    let Some(first) = first else {
        return Ok(Some(Scheduled::Untimed));
    };
    let is_new = write(conn, INSERT, new, first, starts.as_deref())?;
    Ok(is_new.then_some(Scheduled::Done(first)))
}

#[derive(QueryableByName)]
struct CurrentTime {
    #[diesel(sql_type = Timestamp)]
    now: NaiveDateTime,
}

/// Returns the time of the database's clock.
pub fn now(conn: &mut Conn<'_>) -> QueryResult<NaiveDateTime> {
    let text = "SELECT {now} AS now";
    Statement::new(text)
        .get_result::<CurrentTime>(conn)
        .map(|row| row.now)
}

/// Returns all tasks of Windlass, or the one with this key, by key.
pub(crate) fn list_tasks(
    conn: &mut Conn<'_>,
    key: Option<&str>,
) -> QueryResult<Vec<RecurringTaskRow>> {
    let text = format!(
        "SELECT {} FROM solid_queue_recurring_tasks WHERE next_run_at IS NOT NULL \
         AND (CAST($1 AS text) IS NULL OR key = $1) ORDER BY key",
        columns(conn)
    );
    Statement::new(text).bind(key).uncached().load(conn)
}

/// Returns a condition for the tasks that a scheduler fires: those scheduled at run time, and those
/// that it declares itself, `$1`. So a task that a new version of a program does not have ends with
/// the last scheduler of the old one.
fn fired(conn: &Conn<'_>) -> String {
    let list = match conn.dialect() {
        Dialect::Postgres => "SELECT json_array_elements_text(CAST($1 AS json))",
        Dialect::Sqlite => "SELECT value FROM json_each($1)",
    };
    format!(
        "next_run_at IS NOT NULL AND paused_at IS NULL AND (declared_at IS NULL OR key IN ({list}))"
    )
}

/// The number of tasks in a page.
pub(crate) const PAGE: usize = 100;

/// Returns a page of the tasks after the id `after` that are due or have a waiting tick. `declared`
/// has the keys that the scheduler declares itself, as a JSON array.
pub(crate) fn due(
    conn: &mut Conn<'_>,
    declared: &str,
    after: i64,
) -> QueryResult<Vec<RecurringTaskRow>> {
    let text = format!(
        "SELECT {COLUMNS}, false AS is_unlisted, false AS is_undeclared FROM solid_queue_recurring_tasks WHERE {} AND id > $2 \
         AND (next_run_at <= {{now}} OR queued_run_at IS NOT NULL) ORDER BY id LIMIT {PAGE}",
        fired(conn)
    );
    Statement::new(text).bind(declared).bind(after).load(conn)
}

#[derive(QueryableByName)]
struct UpcomingTick {
    #[diesel(sql_type = Nullable<Timestamp>)]
    next: Option<NaiveDateTime>,
    #[diesel(sql_type = Timestamp)]
    now: NaiveDateTime,
}

/// Returns how long until the next tick after `since`, by the database's clock; zero if one has
/// become due meanwhile.
pub(crate) fn next_tick(
    conn: &mut Conn<'_>,
    declared: &str,
    since: NaiveDateTime,
) -> QueryResult<Option<Duration>> {
    let text = format!(
        "SELECT {{moment next_run_at}} AS next, {{now}} AS now FROM solid_queue_recurring_tasks \
         WHERE {} AND next_run_at > {{time $2}} ORDER BY next_run_at LIMIT 1",
        fired(conn),
    );
    let ahead: Option<UpcomingTick> = Statement::new(text)
        .bind(declared)
        .bind(timestamp(since))
        .get_result(conn)
        .optional()?;
    Ok(ahead.and_then(|ahead| Some((ahead.next? - ahead.now).to_std().unwrap_or_default())))
}

/// Deletes the declared tasks that no scheduler has declared for [`KEPT`], and returns how many.
pub(crate) fn forget(conn: &mut Conn<'_>) -> QueryResult<usize> {
    let text = "DELETE FROM solid_queue_recurring_tasks WHERE declared_at <= {later $1} AND next_run_at IS NOT NULL";
    let age = -crate::db::conn::dialect::micros(KEPT);
    Statement::new(text).bind(age).uncached().changes(conn)
}
