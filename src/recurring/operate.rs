//! Changes of recurring tasks by an actor.

use crate::db::model::audit::{Actor, AuditAction};
use crate::db::model::recurring::{RecurringTaskRow, Scheduled};
use crate::db::transition::audit::{AuditEffect, AuditTrail};
use crate::db::transition::{fire, schedule};
use crate::db::{AsConn, Conn, own};
use crate::error::{ErrorContext, Result};
use crate::job::JobId;
use crate::job::extras::refuse_classes;
use crate::recurring::task::RecurringTask;
use crate::recurring::tasks::{at_run_time, next_or_failed, refusal, unknown};
use crate::recurring::time_zone::Zone;
use crate::recurring::timing::NEVER;
use chrono::{DateTime, NaiveDateTime, Utc};
use serde_json::{Map, Value, json};
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
            schedule::schedule(conn, &definition, &next).during("schedule the recurring task")
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
            schedule::unschedule(conn, key).during("unschedule the recurring task")
        })
    }

    /// Does what [`recurring::run_now`](crate::recurring::run_now) does.
    ///
    /// # Errors
    /// As for [`recurring::run_now`](crate::recurring::run_now).
    pub fn run_task<C: AsConn + ?Sized>(&self, conn: &mut C, key: &str) -> Result<JobId> {
        let job = |row: &RecurringTaskRow| RecurringTask::read(row)?.job_at_once(row.now);
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
            schedule::pause(conn, key).during("pause the recurring task")
        })?;
        is_known.then_some(()).ok_or_else(|| unknown(key))
    }

    /// Does what [`recurring::resume`](crate::recurring::resume) does.
    ///
    /// # Errors
    /// As for [`recurring::resume`](crate::recurring::resume).
    pub fn resume_task<C: AsConn + ?Sized>(&self, conn: &mut C, key: &str) -> Result<()> {
        let next = |row: &RecurringTaskRow| -> Result<NaiveDateTime> {
            let times = RecurringTask::read(row)?.times_in(Zone::UTC);
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

// --- The audit of a change of a recurring task ---

/// Changes a task, and writes the row of the audit in the same transaction if the task is another one
/// afterwards.
pub(crate) fn record<T>(
    conn: &mut Conn<'_>,
    actor: &Actor,
    action: AuditAction,
    key: &str,
    change: impl FnOnce(&mut Conn<'_>) -> Result<T>,
) -> Result<T> {
    let read = |conn: &mut Conn<'_>| {
        let row = schedule::lock(conn, key).during("read the recurring task")?;
        Ok::<_, crate::error::Error>(row.as_ref().map(values))
    };
    let mut trail = AuditTrail::new(actor, action).target(key);
    let (done, ..) = trail.record_as(
        conn,
        |conn| {
            let before = read(conn)?;
            let done = change(conn)?;
            Ok::<_, crate::error::Error>((done, before, read(conn)?))
        },
        |(_, before, after)| difference(before.as_ref(), after.as_ref()),
    )?;
    Ok(done)
}

/// Returns what operators set of a task. Its arguments are compared, and not shown.
fn values(row: &RecurringTaskRow) -> Map<String, Value> {
    let options: Value = serde_json::from_str(&row.options).unwrap_or_default();
    let values = json!({
        "schedule": row.schedule,
        "time_zone": row.time_zone,
        "class_name": row.class_name,
        "arguments": row.arguments,
        "queue_name": row.queue_name,
        "priority": row.priority,
        "description": row.description,
        "options": options,
        "paused": row.paused_at.is_some(),
    });
    match values {
        Value::Object(values) => values,
        _ => Map::new(),
    }
}

/// Returns the values that differ, as they were and as they are.
fn difference(
    before: Option<&Map<String, Value>>,
    after: Option<&Map<String, Value>>,
) -> (AuditEffect, Option<String>) {
    let differing = |one: Option<&Map<String, Value>>, other: Option<&Map<String, Value>>| {
        let values = one.into_iter().flatten();
        let values = values.filter(|(name, value)| {
            let same = other.and_then(|other| other.get(*name));
            !value.is_null() && same != Some(value)
        });
        let shown = values.map(|(name, value)| match &**name {
            "arguments" => (name.clone(), json!("[hidden]")),
            _ => (name.clone(), value.clone()),
        });
        shown.collect::<Map<String, Value>>()
    };
    if before == after {
        return (AuditEffect::Nothing, None);
    }
    let mut all = Map::new();
    for (name, values) in [
        ("from", differing(before, after)),
        ("to", differing(after, before)),
    ] {
        if !values.is_empty() {
            all.insert(name.to_owned(), values.into());
        }
    }
    (AuditEffect::Done, Some(Value::Object(all).to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_differs_is_shown() {
        let of = |value: Value| match value {
            Value::Object(values) => values,
            _ => Map::new(),
        };
        let one = of(json!({"schedule": "@daily", "arguments": "1", "queue_name": "a"}));
        let two = of(json!({"schedule": "@hourly", "arguments": "2", "queue_name": "a"}));
        assert_eq!(
            difference(Some(&one), Some(&one)),
            (AuditEffect::Nothing, None)
        );
        let (effect, text) = difference(Some(&one), Some(&two));
        assert_eq!(effect, AuditEffect::Done);
        let shown: Value = serde_json::from_str(&text.unwrap()).unwrap();
        let wanted = json!({
            "from": {"schedule": "@daily", "arguments": "[hidden]"},
            "to": {"schedule": "@hourly", "arguments": "[hidden]"},
        });
        assert_eq!(shown, wanted);
        let (_, added) = difference(None, Some(&two));
        assert!(added.unwrap().starts_with(r#"{"to":"#));
    }
}
