//! Fires ticks of recurring tasks.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::id_list;
use crate::db::model::new_row::NewRow;
use crate::db::model::recurring::{EnqueuedTick, Fired, Firing, Overlap, RecurringTaskRow};
use crate::db::table::recurring_executions::{
    self as executions, FiredTask, NewExecution, OpenJobs, TickOf,
};
use crate::db::transition::enqueue;
use crate::db::transition::schedule::lock_own;
use crate::error::{ErrorContext, Result};
use chrono::NaiveDateTime;
use diesel::prelude::*;
use std::collections::{HashMap, HashSet};

/// Fires the ticks of some tasks, and returns the result of each; `None` if another transaction has
/// locked or changed the task. The number of statements does not depend on how many there are.
pub(crate) fn fire(conn: &mut Conn<'_>, firings: &[Firing<'_>]) -> QueryResult<Vec<Option<Fired>>> {
    conn.transaction(|conn| {
        let tasks: Vec<&RecurringTaskRow> = firings.iter().map(|firing| firing.task).collect();
        let mut open = executions::lock(conn, &tasks)?;
        let locked: Vec<&Firing<'_>> = firings
            .iter()
            .filter(|firing| open.contains_key(&firing.task.id))
            .collect();
        keep_unended(conn, &locked, &mut open)?;
        let known = executions::known(conn, &ticks(&locked))?;
        let mut decided: Vec<Decided<'_>> = locked
            .iter()
            .map(|firing| Decided::of(firing, !open[&firing.task.id].is_empty(), &known))
            .collect();
        enqueue_due_ticks(conn, &mut decided, &mut open)?;
        let moved: Vec<&Decided<'_>> = decided.iter().filter(|one| one.moves_on()).collect();
        move_on(conn, &moved, &open)?;
        let fired = decided
            .into_iter()
            .map(|one| (one.firing.task.id, one.fired));
        let mut fired: HashMap<i64, Fired> = fired.collect();
        let result = firings.iter().map(|firing| fired.remove(&firing.task.id));
        Ok(result.collect())
    })
}

/// The decision about the ticks of a task.
struct Decided<'f> {
    firing: &'f Firing<'f>,
    /// The ticks whose jobs are enqueued.
    due: Vec<(NaiveDateTime, &'f NewRow)>,
    fired: Fired,
}

impl<'f> Decided<'f> {
    /// Decides, from whether a job of the task has not ended, and the ticks that have a job.
    fn of(firing: &'f Firing<'f>, mut has_open: bool, known: &HashSet<TickOf>) -> Self {
        let mut decided = Decided {
            firing,
            due: Vec::new(),
            fired: Fired::default(),
        };
        let fired = &mut decided.fired;
        has_open &= firing.overlap != Overlap::Allow;
        for tick in firing.ticks {
            match firing.overlap {
                Overlap::Skip if has_open => fired.dropped.push(tick.at),
                Overlap::QueueOne if has_open => {
                    fired.dropped.extend(fired.queued.replace(tick.at))
                }
                _ if known.contains(&TickOf::new(firing.task, tick.at)) => {}
                _ => {
                    decided.due.push((tick.at, &tick.job));
                    has_open = true;
                }
            }
        }
        decided
    }

    /// Returns whether the row of the task changes.
    fn moves_on(&self) -> bool {
        let task = self.firing.task;
        let waits_on = self.fired.jobs.is_empty() && self.fired.queued == task.queued_run_at;
        !waits_on || task.next_run_at != Some(self.firing.next_run_at)
    }
}

fn ticks(firings: &[&Firing<'_>]) -> Vec<TickOf> {
    let ticks = firings.iter().flat_map(|firing| {
        let ticks = firing.ticks.iter();
        ticks.map(|tick| TickOf::new(firing.task, tick.at))
    });
    ticks.collect()
}

/// Drops the jobs that have ended from the open jobs of tasks whose jobs may not overlap.
fn keep_unended(
    conn: &mut Conn<'_>,
    firings: &[&Firing<'_>],
    open: &mut OpenJobs,
) -> QueryResult<()> {
    let in_turn = firings
        .iter()
        .filter(|firing| firing.overlap != Overlap::Allow);
    let jobs: Vec<i64> = in_turn
        .flat_map(|firing| open[&firing.task.id].iter().copied())
        .collect();
    let unended: HashSet<i64> = executions::unended(conn, &jobs)?.into_iter().collect();
    for jobs in open.values_mut() {
        jobs.retain(|job| unended.contains(job));
    }
    Ok(())
}

/// Enqueues the jobs of due ticks, and notes them.
fn enqueue_due_ticks(
    conn: &mut Conn<'_>,
    decided: &mut [Decided<'_>],
    open: &mut OpenJobs,
) -> QueryResult<()> {
    let rows = decided.iter().flat_map(|one| &one.due);
    let rows: Vec<NewRow> = rows.map(|(_, row)| (*row).clone()).collect();
    let mut inserted = enqueue::insert_all(conn, &rows)?.into_iter();
    let mut new = Vec::new();
    for one in decided {
        for ((at, _), job) in one.due.iter().zip(&mut inserted) {
            if job.is_new {
                new.push(NewExecution::new(job.id, one.firing.task, *at));
            }
            if let Some(jobs) = open.get_mut(&one.firing.task.id) {
                jobs.push(job.id);
            }
            one.fired.jobs.push(EnqueuedTick {
                at: *at,
                job_id: job.id,
            });
        }
    }
    executions::insert_recurring_executions(conn, &new)
}

fn move_on(conn: &mut Conn<'_>, moved: &[&Decided<'_>], open: &OpenJobs) -> QueryResult<()> {
    let tasks = moved.iter().map(|one| {
        let open = match one.firing.overlap {
            Overlap::Allow => None,
            _ => Some(id_list(&open[&one.firing.task.id])),
        };
        FiredTask::new(one.firing, &one.fired, open)
    });
    executions::move_on(conn, &tasks.collect::<Vec<_>>())?;
    let keys: Vec<&str> = moved.iter().map(|one| &*one.firing.task.key).collect();
    executions::delete_old(conn, &keys)
}

/// Enqueues the task's job at once, whatever its ticks, and returns its id. Returns `None` if the
/// task does not exist.
pub(crate) fn run_now(
    conn: &mut Conn<'_>,
    key: &str,
    job: impl FnOnce(&RecurringTaskRow) -> Result<NewRow>,
) -> Result<Option<i64>> {
    conn.transaction(|conn| {
        let Some(row) = lock_own(conn, key).during("read the recurring task")? else {
            return Ok(None);
        };
        let inserted = enqueue::insert_job(conn, &job(&row)?).during("enqueue the job")?;
        executions::note_open(conn, &row, inserted.id).during("note the job of the task")?;
        Ok(Some(inserted.id))
    })
}
