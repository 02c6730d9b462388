//! The changes that can be made to selected jobs.

use crate::admin::jobs::{Changed, Jobs};
use crate::db::model::audit::AuditAction;
use crate::db::model::decision::JobState;
use crate::db::transition::operate::{self, AtMostOnce, RunTime};
use crate::db::transition::operators::{AuditEffect, AuditTrail};
use crate::db::{AsConn, Conn, own};
use crate::error::{Error, ErrorContext, Result};
use crate::job::options::humane;
use crate::queue::check_name;
use chrono::{DateTime, Utc};
use diesel::QueryResult;
use serde::{Deserialize, Serialize};
use std::ops::ControlFlow;
use std::time::Duration;

/// A change to jobs. A job that a process holds is only affected by `Cancel`, and its own code
/// decides when to stop.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Change {
    /// Cancels waiting jobs, and asks running ones to stop. Cancelled jobs are kept like finished
    /// ones.
    Cancel,
    /// Deletes waiting and failed jobs, with everything stored about them.
    Discard,
    /// Makes failed jobs ready again, with all their attempts available.
    Retry {
        /// Also retries at-most-once jobs. They have already started, and may have done all or part
        /// of their work.
        even_at_most_once: bool,
    },
    /// Reschedules ready and scheduled jobs to this time. Those that would
    /// [expire](crate::Policy::expires_in) before it do not expire any more.
    RunAt(DateTime<Utc>),
    /// Reschedules ready and scheduled jobs to run after this time, by the database's clock; zero
    /// makes them ready immediately.
    RunIn(#[serde(with = "humane")] Duration),
    /// Sets the priority of waiting jobs; a smaller number is more important.
    Priority(i32),
    /// Moves waiting jobs to the queue of this name. They keep their time, their priority and a slot of
    /// a concurrency key that they hold.
    Queue(String),
}

impl Change {
    /// Checks the value of the change.
    ///
    /// # Errors
    /// If a time is out of range, or the name of a queue is invalid.
    pub(crate) fn check(&self) -> Result<()> {
        use chrono::Datelike;
        let is_possible = match self {
            Change::RunAt(time) => (1..=9999).contains(&time.year()),
            Change::RunIn(delay) => *delay <= Duration::from_secs(1_000 * 366 * 86_400),
            Change::Queue(name) => return check_name(name, "queue name"),
            _ => true,
        };
        if is_possible {
            Ok(())
        } else {
            Err(Error::Settings(
                "the time must be in the years 1 to 9999, and a delay at most 1000 years"
                    .to_owned(),
            ))
        }
    }

    pub(crate) fn action(&self) -> AuditAction {
        match self {
            Change::Cancel => AuditAction::CancelJobs,
            Change::Discard => AuditAction::DiscardJobs,
            Change::Retry { .. } => AuditAction::RetryJobs,
            Change::RunAt(_) | Change::RunIn(_) => AuditAction::RescheduleJobs,
            Change::Priority(_) => AuditAction::SetPriority,
            Change::Queue(_) => AuditAction::MoveJobs,
        }
    }

    /// Returns what is tried, for an error.
    pub(crate) fn action_text(&self) -> &'static str {
        match self {
            Change::Cancel => "cancel jobs",
            Change::Discard => "discard jobs",
            Change::Retry { .. } => "retry jobs",
            Change::RunAt(_) | Change::RunIn(_) => "reschedule jobs",
            Change::Priority(_) => "change the priority of jobs",
            Change::Queue(_) => "move jobs to another queue",
        }
    }

    /// Returns its value as JSON, if it has one.
    pub(crate) fn parameters(&self) -> Option<String> {
        match self {
            Change::Cancel | Change::Discard => None,
            _ => serde_json::to_string(self).ok(),
        }
    }

    /// Returns how many jobs it affected, for the audit.
    pub(crate) fn effect(&self, done: &Changed) -> AuditEffect {
        let asked = match self {
            Change::Cancel => done.running,
            _ => 0,
        };
        AuditEffect::of_jobs(done.changed + asked)
    }

    /// Changes the jobs that are in this state, in one transaction. A job that moved meanwhile is
    /// passed over.
    pub(crate) fn apply(
        &self,
        conn: &mut Conn<'_>,
        state: JobState,
        jobs: &[i64],
    ) -> QueryResult<Changed> {
        let count = jobs.len() as u64;
        if state == JobState::Claimed && *self != Change::Cancel {
            return Ok(Changed {
                running: count,
                ..Changed::default()
            });
        }
        let mut done = Changed::default();
        match self {
            Change::Cancel => {
                let cancelled = operate::cancel(conn, jobs)?;
                done.changed = cancelled.ended.len() as u64;
                done.running = cancelled.asked.len() as u64;
                done.in_ruby = cancelled.in_ruby.len() as u64;
            }
            Change::Retry { even_at_most_once } => {
                let even = AtMostOnce::retry_if(*even_at_most_once);
                let retried = operate::retry(conn, jobs, even)?;
                return Ok(Changed::of_retry(&retried, count));
            }
            Change::Discard => done.changed = operate::discard(conn, jobs)?.len() as u64,
            Change::RunAt(time) => {
                let when = RunTime::At(time.naive_utc());
                done.changed = operate::reschedule(conn, jobs, when)?.len() as u64;
            }
            Change::RunIn(delay) => {
                let when = RunTime::In(i64::try_from(delay.as_micros()).unwrap_or(i64::MAX));
                done.changed = operate::reschedule(conn, jobs, when)?.len() as u64;
            }
            Change::Priority(priority) => {
                let ranked = operate::change_priority(conn, jobs, *priority)?;
                done.changed = ranked.len() as u64;
            }
            Change::Queue(name) => {
                let moved = operate::edit::requeue(conn, jobs, name)?;
                done.changed = moved.len() as u64;
            }
        }
        done.passed_over = count - done.changed - done.left();
        Ok(done)
    }

    /// Changes the jobs of a batch, and writes the rows of the audit.
    fn record(
        &self,
        conn: &mut Conn<'_>,
        trail: &mut AuditTrail<'_>,
        state: JobState,
        jobs: &[i64],
    ) -> Result<Changed> {
        if *self == Change::Cancel {
            return crate::admin::jobs::cancel_all(conn, trail, jobs);
        }
        let done = trail.record(
            conn,
            |conn| self.apply(conn, state, jobs),
            |done| self.effect(done),
        );
        done.during(self.action_text())
    }
}

impl Jobs {
    /// Changes the jobs in batches of 500, each in one transaction with its row of the audit.
    ///
    /// # Errors
    /// - If the database does not answer or has no tables; completed batches stay changed.
    /// - If the time of a [`Change::RunAt`] or [`Change::RunIn`] is out of range, or the name of a queue
    ///   is invalid, before any job is changed.
    pub fn change<C: AsConn + ?Sized>(&self, conn: &mut C, change: Change) -> Result<Changed> {
        self.change_with_progress(conn, change, |_| {})
    }

    /// Changes the jobs and calls `progress` after every batch with the totals so far.
    ///
    /// # Errors
    /// As for [`change`](Self::change).
    pub fn change_with_progress<C: AsConn + ?Sized>(
        &self,
        conn: &mut C,
        change: Change,
        mut progress: impl FnMut(&Changed),
    ) -> Result<Changed> {
        change.check()?;
        let progress = |done: &Changed| {
            progress(done);
            ControlFlow::Continue(())
        };
        let mut trail = self.trail(change.action());
        if let Some(parameters) = change.parameters() {
            trail = trail.parameters(parameters);
        }
        let apply = |conn: &mut Conn<'_>, state, jobs: &[i64]| {
            self.name_batch(&mut trail, jobs);
            change.record(conn, &mut trail, state, jobs)
        };
        match self.followed(&change) {
            Some(jobs) => jobs.follow_in_batches(&mut own(conn), progress, apply),
            None => self.each_batch(&mut own(conn), progress, apply),
        }
    }
}
