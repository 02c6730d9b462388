//! Changes of recurring tasks by an actor.

use crate::db::model::audit::{Actor, AuditAction};
use crate::db::model::recurring::{RecurringTaskRow, Scheduled};
use crate::db::transition::operators::{AuditEffect, AuditTrail};
use crate::db::transition::{fire, schedule};
use crate::db::{AsConn, own};
use crate::error::{Doing, Result};
use crate::job::extras::refuse_classes;
use crate::job::id::JobId;
use crate::recurring::audited::record;
use crate::recurring::stored::Stored;
use crate::recurring::task::RecurringTask;
use crate::recurring::tasks::{at_run_time, next_or_failed, refusal, unknown};
use crate::recurring::time_zone::Zone;
use crate::recurring::window::NEVER;
use chrono::{DateTime, NaiveDateTime, Utc};
use serde_json::json;
use std::cell::RefCell;

impl Actor {
    /// Does what [`recurring::schedule`](crate::recurring::schedule) does.
    ///
    /// # Errors
    /// As for [`recurring::schedule`](crate::recurring::schedule).
    pub fn schedule_task<C: AsConn + ?Sized>(
        &self,
        conn: &mut C,
        task: &RecurringTask,
    ) -> Result<DateTime<Utc>> {
        let definition = at_run_time(task)?;
        let failed = RefCell::new(None);
        let next = next_or_failed(task, Zone::UTC, task.timings(), &failed);
        let mut conn = own(conn);
        refuse_classes(&mut conn, task.named_class().as_slice())?;
        let action = AuditAction::ScheduleTask;
        let scheduled = record(&mut conn, self, action, task.key(), |conn| {
            schedule::schedule(conn, &definition, &next).doing("schedule the recurring task")
        })?;
        match scheduled {
            Scheduled::Done(next) => Ok(next.and_utc()),
            other => Err(refusal(task.key(), other, failed.take())),
        }
    }

    /// Does what [`recurring::unschedule`](crate::recurring::unschedule) does.
    ///
    /// # Errors
    /// As for [`recurring::unschedule`](crate::recurring::unschedule).
    pub fn unschedule_task<C: AsConn + ?Sized>(&self, conn: &mut C, key: &str) -> Result<bool> {
        let action = AuditAction::RemoveTask;
        record(&mut own(conn), self, action, key, |conn| {
            schedule::unschedule(conn, key).doing("unschedule the recurring task")
        })
    }

    /// Does what [`recurring::run_now`](crate::recurring::run_now) does.
    ///
    /// # Errors
    /// As for [`recurring::run_now`](crate::recurring::run_now).
    pub fn run_task<C: AsConn + ?Sized>(&self, conn: &mut C, key: &str) -> Result<JobId> {
        let job = |row: &RecurringTaskRow| Stored::read(row)?.job_at_once(row, row.now);
        let mut trail = AuditTrail::new(self, AuditAction::RunTask).target(key);
        let id = trail.record_as(
            &mut own(conn),
            |conn| fire::run_now(conn, key, job),
            |id| {
                let job = id.map(|id| json!({ "job_id": id }).to_string());
                (AuditEffect::done_if(id.is_some()), job)
            },
        )?;
        id.map(JobId).ok_or_else(|| unknown(key))
    }

    /// Does what [`recurring::pause`](crate::recurring::pause) does.
    ///
    /// # Errors
    /// As for [`recurring::pause`](crate::recurring::pause).
    pub fn pause_task<C: AsConn + ?Sized>(&self, conn: &mut C, key: &str) -> Result<()> {
        let action = AuditAction::PauseTask;
        let is_known = record(&mut own(conn), self, action, key, |conn| {
            schedule::pause(conn, key).doing("pause the recurring task")
        })?;
        is_known.then_some(()).ok_or_else(|| unknown(key))
    }

    /// Does what [`recurring::resume`](crate::recurring::resume) does.
    ///
    /// # Errors
    /// As for [`recurring::resume`](crate::recurring::resume).
    pub fn resume_task<C: AsConn + ?Sized>(&self, conn: &mut C, key: &str) -> Result<()> {
        let next = |row: &RecurringTaskRow| -> Result<NaiveDateTime> {
            let times = Stored::read(row)?.times;
            let from = row.now.max(row.last_run_at.unwrap_or(row.now));
            match (times.schedule.named(), row.next_run_at) {
                // Only a scheduler with its timing can pass the ticks of the pause.
                (Some(_), Some(next)) => Ok(next),
                _ => Ok(times.after(from).unwrap_or(NEVER)),
            }
        };
        let action = AuditAction::ResumeTask;
        let is_known = record(&mut own(conn), self, action, key, |conn| {
            schedule::resume(conn, key, next)
        })?;
        is_known.then_some(()).ok_or_else(|| unknown(key))
    }
}
