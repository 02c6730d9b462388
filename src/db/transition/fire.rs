//! Fires ticks of recurring tasks.

use crate::db::conn::connection::Conn;
use crate::db::conn::sql::{Id, id_list, timestamp};
use crate::db::conn::statement::Statement;
use crate::db::model::new_row::NewRow;
use crate::db::model::recurring::{
    DueTick, EnqueuedTick, Fired, Firing, Overlap, RecurringTaskRow,
};
use crate::db::table::recurring_executions::{delete_old, lock, move_on, unended};
use crate::db::transition::enqueue;
use crate::db::transition::schedule::lock_own;
use crate::error::{Doing, Result};
use chrono::NaiveDateTime;
use diesel::prelude::*;

/// Fires ticks. Returns `None` if another transaction has locked or changed the task.
pub(crate) fn fire(conn: &mut Conn<'_>, firing: &Firing<'_>) -> QueryResult<Option<Fired>> {
    conn.transaction(|conn| {
        let Some(open) = lock(conn, firing.task)? else {
            return Ok(None);
        };
        let mut open = match firing.overlap {
            Overlap::Allow => Vec::new(),
            _ => unended(conn, &open)?,
        };
        let mut fired = Fired::default();
        for DueTick { at, job } in firing.ticks {
            match firing.overlap {
                Overlap::Skip if !open.is_empty() => fired.dropped.push(*at),
                Overlap::QueueOne if !open.is_empty() => {
                    fired.dropped.extend(fired.queued.replace(*at));
                }
                _ => {
                    if let Some(job_id) = insert(conn, &firing.task.key, *at, job)? {
                        open.push(job_id);
                        fired.jobs.push(EnqueuedTick { at: *at, job_id });
                    }
                }
            }
        }
        let open = match firing.overlap {
            Overlap::Allow => None,
            _ => Some(id_list(&open)),
        };
        let waits_on = fired.jobs.is_empty() && fired.queued == firing.task.queued_run_at;
        if waits_on && firing.task.next_run_at == Some(firing.next_run_at) {
            return Ok(Some(fired));
        }
        move_on(conn, firing, &fired, open)?;
        delete_old(conn, &firing.task.key)?;
        Ok(Some(fired))
    })
}

/// Enqueues the job of a tick. Returns `None` if the tick had one already.
fn insert(
    conn: &mut Conn<'_>,
    key: &str,
    tick: NaiveDateTime,
    job: &NewRow,
) -> QueryResult<Option<i64>> {
    let text = "SELECT job_id AS id FROM solid_queue_recurring_executions WHERE task_key = $1 AND run_at = {time $2}";
    let known: Option<Id> = Statement::new(text)
        .bind(key)
        .bind(timestamp(tick))
        .get_result(conn)
        .optional()?;
    if known.is_some() {
        return Ok(None);
    }
    let inserted = enqueue::insert(conn, job)?;
    if inserted.is_new {
        let text = "INSERT INTO solid_queue_recurring_executions (job_id, task_key, run_at, created_at) \
             VALUES ($1, $2, {time $3}, {now})";
        Statement::new(text)
            .bind(inserted.id)
            .bind(key)
            .bind(timestamp(tick))
            .execute(conn)?;
    }
    Ok(Some(inserted.id))
}

/// Enqueues the task's job at once, whatever its ticks, and returns its id. Returns `None` if the
/// task does not exist.
pub(crate) fn run_now(
    conn: &mut Conn<'_>,
    key: &str,
    job: impl FnOnce(&RecurringTaskRow) -> Result<NewRow>,
) -> Result<Option<i64>> {
    conn.transaction(|conn| {
        let Some(row) = lock_own(conn, key).doing("read the recurring task")? else {
            return Ok(None);
        };
        let inserted = enqueue::insert(conn, &job(&row)?).doing("enqueue the job")?;
        crate::db::table::recurring_executions::note_open(conn, &row, inserted.id)
            .doing("note the job of the task")?;
        Ok(Some(inserted.id))
    })
}
