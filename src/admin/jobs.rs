//! Changes to jobs by operators and by other programs.

use crate::admin::cancel::cancel_all;
use crate::admin::changed::Changed;
use crate::db::conn::sql::IdRange;
use crate::db::transition::operate::retry::AtMostOnce;

use crate::db::model::state::JobState;
use crate::db::query::jobs::{self, Filter, JobCount, JobSummary};
use crate::db::transition::operate::{self, RunTime};
use crate::db::{AsConn, Conn, own};
use crate::error::{Doing, Error, Result};
use crate::job::id::JobId;
use chrono::{DateTime, Utc};
use std::ops::ControlFlow;
use std::time::Duration;

/// Selects jobs to list, count or change.
///
/// ```
/// # use diesel::prelude::*;
/// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
/// # windlass::migrate(&mut conn).unwrap();
/// use windlass::{Change, Jobs};
///
/// let broken = Jobs::failed().class("import").error_contains("connection refused");
/// println!("{} jobs failed for this reason", broken.count(&mut conn)?);
/// let done = broken.change(&mut conn, Change::Retry { even_at_most_once: false })?;
/// println!("{} are ready again", done.changed);
/// # Ok::<(), windlass::Error>(())
/// ```
#[derive(Debug, Clone)]
#[must_use = "a selection does nothing until it is listed, counted or changed"]
pub struct Jobs {
    states: Vec<JobState>,
    pub(crate) filter: Filter,
    limit: Option<u64>,
}

/// A change to jobs. A job that a process holds is only affected by `Cancel`, and its own code
/// decides when to stop.
#[derive(Debug, Clone, Copy, PartialEq)]
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
    RunIn(Duration),
    /// Sets the priority of waiting jobs; a smaller number is more important.
    Priority(i32),
}

/// The number of jobs in one transaction.
const BATCH: usize = 500;

impl Jobs {
    fn in_states(states: impl Into<Vec<JobState>>) -> Self {
        Jobs {
            states: states.into(),
            filter: Filter::default(),
            limit: None,
        }
    }

    /// Selects failed jobs.
    pub fn failed() -> Self {
        Self::in_states([JobState::Failed])
    }

    /// Selects waiting jobs: ready, scheduled and blocked.
    pub fn waiting() -> Self {
        Self::in_states(operate::WAITING)
    }

    /// Selects waiting and running jobs.
    pub fn waiting_or_running() -> Self {
        Self::in_states([
            JobState::Claimed,
            JobState::Scheduled,
            JobState::Blocked,
            JobState::Ready,
        ])
    }

    /// Selects waiting, running and failed jobs.
    pub fn unfinished() -> Self {
        Self::in_states(JobState::WITH_EXECUTION)
    }

    /// Selects the jobs in this state.
    pub fn in_state(state: JobState) -> Self {
        Self::in_states([state])
    }

    /// Restricts the selection to these ids.
    pub fn ids(mut self, ids: impl IntoIterator<Item = JobId>) -> Self {
        self.filter.ids = Some(ids.into_iter().map(|id| id.0).collect());
        self
    }

    /// Restricts the selection to this class.
    pub fn class(mut self, class: impl Into<String>) -> Self {
        self.filter.class = Some(class.into());
        self
    }

    /// Restricts the selection to this queue.
    pub fn queue(mut self, queue: impl Into<String>) -> Self {
        self.filter.queue = Some(queue.into());
        self
    }

    /// Restricts the selection to jobs that failed with an error that contains this text.
    pub fn error_contains(mut self, text: impl Into<String>) -> Self {
        self.filter.error = Some(text.into());
        self
    }

    /// Restricts the selection to this many jobs.
    pub fn limit(mut self, jobs: u64) -> Self {
        self.limit = Some(jobs);
        self
    }

    /// Returns the number of selected jobs.
    ///
    /// # Errors
    /// If the database does not answer or has no tables.
    pub fn count<C: AsConn + ?Sized>(&self, conn: &mut C) -> Result<u64> {
        let counts = self.counts(conn)?;
        let sum = counts.iter().map(|(_, count)| count.count).sum::<i64>();
        let all = u64::try_from(sum).unwrap_or(0);
        Ok(self.limit.map_or(all, |limit| limit.min(all)))
    }

    /// Returns the number of selected jobs by state, class and queue, regardless of the limit.
    ///
    /// # Errors
    /// If the database does not answer or has no tables.
    pub fn counts<C: AsConn + ?Sized>(&self, conn: &mut C) -> Result<Vec<(JobState, JobCount)>> {
        let mut all = Vec::new();
        for state in &self.states {
            let counts = jobs::counts(&mut own(conn), *state, &self.filter);
            let counts = counts.doing("count the jobs")?;
            all.extend(counts.into_iter().map(|count| (*state, count)));
        }
        Ok(all)
    }

    /// Returns the jobs, state by state; at most 100 of each state unless there is a limit.
    ///
    /// # Errors
    /// If the database does not answer or has no tables.
    pub fn list<C: AsConn + ?Sized>(&self, conn: &mut C) -> Result<Vec<JobSummary>> {
        let limit = usize::try_from(self.limit.unwrap_or(100)).unwrap_or(usize::MAX);
        let mut all = Vec::new();
        for state in &self.states {
            let left = limit.saturating_sub(if self.limit.is_some() { all.len() } else { 0 });
            let jobs = jobs::list(&mut own(conn), *state, &self.filter, left);
            all.extend(jobs.doing("list the jobs")?);
        }
        Ok(all)
    }

    /// Splits the selection into parts with few ids each, which are sent with every step. If only a
    /// few jobs are wanted, there is one part.
    fn parts(&self) -> impl Iterator<Item = Filter> {
        let parts = match &self.filter.ids {
            Some(ids) if self.limit.is_none() && ids.len() > BATCH => {
                let ids: std::collections::BTreeSet<i64> = ids.iter().copied().collect();
                let ids: Vec<i64> = ids.into_iter().collect();
                let part = |ids: &[i64]| Filter {
                    ids: Some(ids.to_vec()),
                    ..self.filter.clone()
                };
                ids.chunks(BATCH).map(part).collect()
            }
            _ => vec![self.filter.clone()],
        };
        parts.into_iter()
    }

    /// Changes the jobs in batches of 500, each in one transaction.
    ///
    /// # Errors
    /// - If the database does not answer or has no tables; completed batches stay changed.
    /// - If the time of a [`Change::RunAt`] or [`Change::RunIn`] is out of range, before any job is
    ///   changed.
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
        self.each_batch(&mut own(conn), progress, |conn, state, jobs| {
            change.apply(conn, state, jobs)
        })
    }

    /// Restricts the selection to failed jobs.
    /// Returns how many jobs are changed at most.
    #[cfg(feature = "cli")]
    pub(crate) fn most(&self) -> Option<u64> {
        self.limit
    }

    pub(crate) fn failed_only(&self) -> Self {
        let mut jobs = self.clone();
        jobs.states.retain(|state| *state == JobState::Failed);
        jobs
    }

    /// Changes the jobs in batches, until `progress` breaks.
    pub(crate) fn each_batch(
        &self,
        conn: &mut Conn<'_>,
        mut progress: impl FnMut(&Changed) -> ControlFlow<()>,
        mut change: impl FnMut(&mut Conn<'_>, JobState, &[i64]) -> Result<Changed>,
    ) -> Result<Changed> {
        let mut done = Changed::default();
        let mut left = self.limit.unwrap_or(u64::MAX);
        // The end of each walk is fixed before any job is moved.
        let mut walks = Vec::new();
        for state in &self.states {
            let last = jobs::last(conn, *state).doing("read the jobs")?;
            walks.extend(self.parts().map(|part| (*state, last, part)));
        }
        for (state, last, part) in walks {
            let mut range = IdRange {
                after: 0,
                up_to: last,
            };
            while left > 0 {
                let limit = BATCH.min(usize::try_from(left).unwrap_or(BATCH));
                let met = jobs::next(conn, state, &part, range, limit).doing("read the jobs")?;
                let Some(end) = met.last() else { break };
                range.after = end.execution_id;
                left -= met.len() as u64;
                let jobs: Vec<i64> = met.iter().map(|met| met.job_id).collect();
                done.add(change(conn, state, &jobs)?);
                if progress(&done).is_break() {
                    return Ok(done);
                }
            }
        }
        Ok(done)
    }
}

impl Change {
    fn check(self) -> Result<()> {
        use chrono::Datelike;
        let kept = match self {
            Change::RunAt(time) => (1..=9999).contains(&time.year()),
            Change::RunIn(delay) => delay <= Duration::from_secs(1_000 * 366 * 86_400),
            _ => true,
        };
        if kept {
            Ok(())
        } else {
            Err(Error::Settings(
                "the time must be in the years 1 to 9999, and a delay at most 1000 years"
                    .to_owned(),
            ))
        }
    }

    fn apply(self, conn: &mut Conn<'_>, state: JobState, jobs: &[i64]) -> Result<Changed> {
        let count = jobs.len() as u64;
        if state == JobState::Claimed && self != Change::Cancel {
            return Ok(Changed {
                running: count,
                ..Changed::default()
            });
        }
        let mut done = Changed::default();
        match self {
            Change::Cancel => {
                let batch = cancel_all(conn, jobs)?;
                done.changed = batch.ended as u64;
                done.running = batch.asked as u64;
                done.in_ruby = batch.in_ruby as u64;
            }
            Change::Retry { even_at_most_once } => {
                let retried =
                    operate::retry::retry(conn, jobs, AtMostOnce::retry_if(even_at_most_once))
                        .doing("retry jobs")?;
                return Ok(Changed::of_retry(&retried, count));
            }
            Change::Discard => {
                let discarded = operate::discard(conn, jobs).doing("discard jobs")?;
                done.changed = discarded.len() as u64;
            }
            Change::RunAt(time) => {
                let when = RunTime::At(time.naive_utc());
                let moved = operate::reschedule(conn, jobs, when).doing("reschedule jobs")?;
                done.changed = moved.len() as u64;
            }
            Change::RunIn(delay) => {
                let when = RunTime::In(i64::try_from(delay.as_micros()).unwrap_or(i64::MAX));
                let moved = operate::reschedule(conn, jobs, when).doing("reschedule jobs")?;
                done.changed = moved.len() as u64;
            }
            Change::Priority(priority) => {
                let ranked = operate::change_priority(conn, jobs, priority);
                done.changed = ranked.doing("change the priority of jobs")?.len() as u64;
            }
        }
        done.passed_over = count - done.changed - done.left();
        Ok(done)
    }
}
