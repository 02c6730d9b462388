//! Schedules, changes and removes recurring tasks.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::timestamp;
use crate::db::conn::statement::Statement;
use crate::db::model::recurring::{Definition, NextTick, RecurringTaskRow, Scheduled};
use crate::db::table::recurring_tasks::replace;
use crate::db::table::recurring_tasks::{change, columns, insert_recurring_task};
use crate::error::Result;
use chrono::NaiveDateTime;
use diesel::prelude::*;

/// Creates or changes a task. It keeps its next tick unless its times change; a new one starts with
/// the first tick from now on.
pub(crate) fn schedule(
    conn: &mut Conn<'_>,
    new: &Definition,
    next: NextTick<'_>,
) -> QueryResult<Scheduled> {
    conn.transaction(|conn| {
        // The row may appear and disappear between the two statements.
        for _ in 0..3 {
            if let Some(row) = lock(conn, &new.key)? {
                return change(conn, &row, new, next);
            }
            if let Some(done) = insert_recurring_task(conn, new, next)? {
                return Ok(done);
            }
        }
        Err(diesel::result::Error::NotFound)
    })
}

/// Creates a task. Returns `None` if there is one with its key.
pub(crate) fn add(
    conn: &mut Conn<'_>,
    new: &Definition,
    next: NextTick<'_>,
) -> QueryResult<Option<Scheduled>> {
    conn.transaction(|conn| insert_recurring_task(conn, new, next))
}

/// Changes a task to what `edit` makes of it, with its next tick. Returns `None` if it does not
/// exist.
pub(crate) fn edit<E: From<diesel::result::Error>>(
    conn: &mut Conn<'_>,
    key: &str,
    edit: impl FnOnce(&mut Conn<'_>, &RecurringTaskRow) -> Result<(Definition, NaiveDateTime), E>,
) -> Result<Option<NaiveDateTime>, E> {
    conn.transaction(|conn| {
        let Some(row) = lock(conn, key)? else {
            return Ok(None);
        };
        let (definition, next_run_at) = edit(conn, &row)?;
        replace(conn, &definition, next_run_at)?;
        Ok(Some(next_run_at))
    })
}

/// Deletes a task that `check` does not refuse; its jobs stay. Returns `false` if it does not exist.
pub(crate) fn remove<E: From<diesel::result::Error>>(
    conn: &mut Conn<'_>,
    key: &str,
    check: impl FnOnce(&RecurringTaskRow) -> Result<(), E>,
) -> Result<bool, E> {
    conn.transaction(|conn| {
        let Some(row) = lock(conn, key)? else {
            return Ok(false);
        };
        check(&row)?;
        Ok(unschedule(conn, key)?)
    })
}

/// Locks the task of a key, whether of Windlass or a Rails app.
pub(crate) fn lock(conn: &mut Conn<'_>, key: &str) -> QueryResult<Option<RecurringTaskRow>> {
    let text = format!(
        "SELECT {} FROM solid_queue_recurring_tasks WHERE key = $1 {{lock}}",
        columns(conn)
    );
    Statement::new(text).bind(key).get_result(conn).optional()
}

/// Locks a task of Windlass.
pub(crate) fn lock_own(conn: &mut Conn<'_>, key: &str) -> QueryResult<Option<RecurringTaskRow>> {
    Ok(lock(conn, key)?.filter(|row| row.next_run_at.is_some()))
}

/// Deletes a task; its jobs stay. Returns `false` if Windlass has no such task.
pub(crate) fn unschedule(conn: &mut Conn<'_>, key: &str) -> QueryResult<bool> {
    let text = "DELETE FROM solid_queue_recurring_tasks WHERE key = $1 AND next_run_at IS NOT NULL";
    Statement::new(text)
        .bind(key)
        .uncached()
        .changes(conn)
        .map(|count| count > 0)
}

/// Stops firing the ticks of the task until it is resumed. Returns `false` if it does not exist.
pub(crate) fn pause(conn: &mut Conn<'_>, key: &str) -> QueryResult<bool> {
    let text = "UPDATE solid_queue_recurring_tasks SET paused_at = coalesce(paused_at, {now}), updated_at = {now}, \
         row_version = row_version + 1 WHERE key = $1 AND next_run_at IS NOT NULL";
    Statement::new(text)
        .bind(key)
        .uncached()
        .changes(conn)
        .map(|count| count > 0)
}

/// Fires the ticks of the task again, from now on. Returns `false` if it does not exist.
pub(crate) fn resume<E: From<diesel::result::Error>>(
    conn: &mut Conn<'_>,
    key: &str,
    next: impl FnOnce(&RecurringTaskRow) -> Result<NaiveDateTime, E>,
) -> Result<bool, E> {
    conn.transaction(|conn| {
        let Some(row) = lock_own(conn, key)? else {
            return Ok(false);
        };
        if row.paused_at.is_none() {
            return Ok(true);
        }
        let next_run_at = next(&row)?;
        let text = "UPDATE solid_queue_recurring_tasks SET paused_at = NULL, next_run_at = {time $1}, updated_at = {now}, \
             row_version = row_version + 1 WHERE id = $2";
        Statement::new(text)
            .bind(timestamp(next_run_at))
            .bind(row.id).uncached().changes(conn)?;
        Ok(true)
    })
}
