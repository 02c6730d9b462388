//! Creates, changes and removes tasks that were scheduled at run time, one value at a time.

use crate::db::model::audit::{Actor, AuditAction};
use crate::db::model::recurring::{Definition, RecurringTaskRow, Scheduled};
use crate::db::table::recurring_tasks::has_times_of;
use crate::db::transition::schedule;
use crate::db::{AsConn, Conn, own};
use crate::error::{Error, ErrorContext, Result};
use crate::job::extras::refuse_classes;
use crate::recurring::operate::record;
use crate::recurring::options::TaskOptions;
use crate::recurring::task::RecurringTask;
use crate::recurring::tasks::{at_run_time, next_or_failed, refusal, unknown};
use crate::recurring::time_zone::Zone;
use crate::recurring::timing::NEVER;
use chrono::NaiveDateTime;
use std::cell::RefCell;

/// Schedules a new task, and returns its first tick.
///
/// # Errors
/// If there is a task with its key, or as for [`schedule`](crate::recurring::schedule).
pub fn add<C: AsConn + ?Sized>(
    conn: &mut C,
    actor: &Actor,
    task: &RecurringTask,
) -> Result<NaiveDateTime> {
    let definition = at_run_time(task)?;
    let failed = RefCell::new(None);
    let next = next_or_failed(task, Zone::UTC, task.timings(), &failed);
    let mut conn = own(conn);
    refuse_classes(&mut conn, task.named_class().as_slice())?;
    let action = AuditAction::ScheduleTask;
    let added = record(&mut conn, actor, action, task.key(), |conn| {
        schedule::add(conn, &definition, &next).during("add the recurring task")
    })?;
    match added {
        Some(Scheduled::Done(next)) => Ok(next),
        Some(other) => Err(refusal(task.key(), other, failed.take())),
        None => Err(wrong(
            task.key(),
            "exists already: change it, remove it, or use another key".to_owned(),
        )),
    }
}

/// Changes a task in one transaction, and returns its next tick. If its class is given by name, it
/// gets no new class or arguments that lead to an internal one.
///
/// # Errors
/// If there is no such task, it was not scheduled at run time, or the change is invalid.
pub fn change<C: AsConn + ?Sized>(
    conn: &mut C,
    actor: &Actor,
    key: &str,
    is_by_name: bool,
    edit: impl FnOnce(RecurringTask) -> Result<RecurringTask>,
) -> Result<NaiveDateTime> {
    let edited = |conn: &mut Conn<'_>, row: &RecurringTaskRow| {
        check_source(row)?;
        let task = edit(RecurringTask::read(row)?)?;
        let definition = task.definition(None, Zone::UTC)?;
        if is_by_name && has_other_jobs(row, &definition) {
            refuse_classes(conn, &[&definition.class_name])?;
        }
        let next = next_tick(row, &task, &definition)?;
        Ok::<_, Error>((definition, next))
    };
    let action = AuditAction::ScheduleTask;
    let changed = record(&mut own(conn), actor, action, key, |conn| {
        schedule::edit(conn, key, edited)
    })?;
    changed.ok_or_else(|| unknown(key))
}

fn has_other_jobs(row: &RecurringTaskRow, new: &Definition) -> bool {
    row.class_name != new.class_name || row.arguments != new.arguments
}

/// Removes a task; its jobs stay.
///
/// # Errors
/// If there is no such task, or a scheduler that runs declares it.
pub fn remove<C: AsConn + ?Sized>(conn: &mut C, actor: &Actor, key: &str) -> Result<()> {
    let removed = record(
        &mut own(conn),
        actor,
        AuditAction::RemoveTask,
        key,
        |conn| schedule::remove(conn, key, check_removal),
    )?;
    removed.then_some(()).ok_or_else(|| unknown(key))
}

/// Refuses what [`check_source`] does, but not a task that no scheduler declares: it is not declared again.
fn check_removal(row: &RecurringTaskRow) -> Result<()> {
    match row.is_unlisted {
        true => Ok(()),
        false => check_source(row),
    }
}

/// Refuses tasks that belong to a Rails app, or to a program's code or configuration.
fn check_source(row: &RecurringTaskRow) -> Result<()> {
    if row.next_run_at.is_none() {
        return Err(refusal(&row.key, Scheduled::Foreign, None));
    }
    if row.declared_at.is_none() {
        return Ok(());
    }
    if row.is_undeclared {
        let reason =
            "is no longer declared by any scheduler that runs: remove it, or declare it again";
        return Err(wrong(&row.key, reason.to_owned()));
    }
    Err(match TaskOptions::read(row)?.place {
        Some(place) => wrong(&row.key, format!("is declared at {place}: change it there")),
        None => wrong(
            &row.key,
            "is declared by a program's code: change it there; `pause` stops it from outside"
                .to_owned(),
        ),
    })
}

/// Returns its next tick: the same if its times are the same, otherwise the first one from now on.
fn next_tick(
    row: &RecurringTaskRow,
    task: &RecurringTask,
    definition: &Definition,
) -> Result<NaiveDateTime> {
    let place = row.next_run_at.unwrap_or(NEVER);
    if has_times_of(row, definition) {
        return Ok(place);
    }
    if task.schedule.named().is_some() || task.schedule.is_start() {
        if definition.schedule == row.schedule && place < NEVER {
            return Ok(place);
        }
        return Err(wrong(
            &row.key,
            "has times that only a program can compute: schedule it there".to_owned(),
        ));
    }
    let from = row.now.max(row.last_run_at.unwrap_or(row.now));
    Ok(task.times_in(Zone::UTC).after(from).unwrap_or(NEVER))
}

fn wrong(key: &str, reason: String) -> Error {
    Error::RecurringTask {
        key: key.to_owned(),
        reason,
    }
}
