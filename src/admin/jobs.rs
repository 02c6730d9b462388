//! What is done to jobs from outside: by people, and by other programs.

use crate::db::model::state::JobState;
use crate::db::query::jobs::{self, Filter, JobCount, JobSummary};
use crate::db::transition::operate::{self, When};
use crate::db::{AsConn, Conn, own};
use crate::error::{Doing, Error, Result};
use crate::job::id::JobId;
use chrono::{DateTime, Utc};
use std::time::Duration;

/// What [`cancel`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Cancelled {
    /// It had not begun, and has ended now.
    Ended,
    /// A process holds it, and hears of it with its next heartbeat. The job
    /// ends as cancelled as soon as it asks [`check`](crate::Context::check),
    /// or fails, or its process dies; if it succeeds before, it has succeeded.
    Asked,
    /// A process of Ruby runs it, which cannot be asked: nothing was done.
    InRuby,
    /// It had ended before, or there is no such job.
    NotThere,
}

/// Cancels a job.
///
/// ```
/// # use diesel::prelude::*;
/// # use windlass::{Cancelled, NewJob};
/// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
/// # windlass::migrate(&mut conn).unwrap();
/// let job = NewJob::of_class("import", "{}").enqueue(&mut conn)?.id;
/// assert_eq!(windlass::cancel(&mut conn, job)?, Cancelled::Ended);
/// assert_eq!(windlass::cancel(&mut conn, job)?, Cancelled::NotThere);
/// # Ok::<(), windlass::Error>(())
/// ```
///
/// # Errors
/// When the database does not answer or has no tables.
pub fn cancel<C: AsConn + ?Sized>(conn: &mut C, job: JobId) -> Result<Cancelled> {
    let done = cancel_all(&mut own(conn), &[job.0])?;
    Ok(if done.ended > 0 {
        Cancelled::Ended
    } else if done.asked > 0 {
        Cancelled::Asked
    } else if done.in_ruby > 0 {
        Cancelled::InRuby
    } else {
        Cancelled::NotThere
    })
}

/// Which jobs something is done to, or are listed.
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
    filter: Filter,
    limit: Option<u64>,
}

/// What to do to jobs. A job that a process holds is only ever touched by
/// `Cancel`, and then its own code decides.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum Change {
    /// Ends those that wait, and asks those that run to end. They are kept
    /// like finished ones.
    Cancel,
    /// Deletes those that wait or have failed, with all that is known of them.
    Discard,
    /// Makes those that have failed ready again, with all their attempts
    /// before them.
    Retry {
        /// Those that may run at most once, too. They have started already,
        /// and may have done all or part of their work.
        even_at_most_once: bool,
    },
    /// Lets those that are ready or scheduled run at another time, not before.
    RunAt(DateTime<Utc>),
    /// Lets those that are ready or scheduled run after so much time, by the
    /// database's clock; at once, for a time of zero.
    RunIn(Duration),
    /// Gives those that wait another priority; smaller is more important.
    Priority(i32),
}

/// What came of a change.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct Changed {
    /// How many jobs were changed.
    pub changed: u64,
    /// How many are held by a process: asked to end, when they were to be
    /// cancelled, and otherwise left alone.
    pub running: u64,
    /// How many were not cancelled because a process of Ruby runs them, which
    /// cannot be asked.
    pub in_ruby: u64,
    /// How many were not retried because they may run at most once.
    pub at_most_once: u64,
    /// How many were not retried because another job holds their unique id by
    /// now.
    pub id_taken: u64,
    /// How many had been moved or had ended before their turn came, or stand
    /// where such a change means nothing.
    pub passed_over: u64,
}

/// Jobs of one transaction.
const BATCH: usize = 500;

impl Jobs {
    fn in_states(states: impl Into<Vec<JobState>>) -> Self {
        Jobs {
            states: states.into(),
            filter: Filter::default(),
            limit: None,
        }
    }

    /// Those that have failed.
    pub fn failed() -> Self {
        Self::in_states([JobState::Failed])
    }

    /// Those that wait: ready, scheduled and blocked ones.
    pub fn waiting() -> Self {
        Self::in_states(operate::WAITING)
    }

    /// Those that wait and those that run.
    pub fn waiting_or_running() -> Self {
        Self::in_states([
            JobState::Claimed,
            JobState::Scheduled,
            JobState::Blocked,
            JobState::Ready,
        ])
    }

    /// Those that wait, run, or have failed.
    pub fn unfinished() -> Self {
        Self::in_states(JobState::WITH_EXECUTION)
    }

    /// Those that stand here.
    pub fn in_state(state: JobState) -> Self {
        Self::in_states([state])
    }

    /// Of them, these.
    pub fn ids(mut self, ids: impl IntoIterator<Item = JobId>) -> Self {
        self.filter.ids = Some(ids.into_iter().map(|id| id.0).collect());
        self
    }

    /// Of them, those of this class.
    pub fn class(mut self, class: impl Into<String>) -> Self {
        self.filter.class = Some(class.into());
        self
    }

    /// Of them, those on this queue.
    pub fn queue(mut self, queue: impl Into<String>) -> Self {
        self.filter.queue = Some(queue.into());
        self
    }

    /// Of them, those that failed with an error that contains this text.
    pub fn error_contains(mut self, text: impl Into<String>) -> Self {
        self.filter.error = Some(text.into());
        self
    }

    /// Of them, only so many.
    pub fn limit(mut self, jobs: u64) -> Self {
        self.limit = Some(jobs);
        self
    }

    /// How many they are.
    ///
    /// # Errors
    /// When the database does not answer or has no tables.
    pub fn count<C: AsConn + ?Sized>(&self, conn: &mut C) -> Result<u64> {
        let counts = self.counts(conn)?;
        let sum = counts.iter().map(|(_, count)| count.count).sum::<i64>();
        let all = u64::try_from(sum).unwrap_or(0);
        Ok(self.limit.map_or(all, |limit| limit.min(all)))
    }

    /// How many they are by state, class and queue, whatever the limit.
    ///
    /// # Errors
    /// When the database does not answer or has no tables.
    pub fn counts<C: AsConn + ?Sized>(&self, conn: &mut C) -> Result<Vec<(JobState, JobCount)>> {
        let mut all = Vec::new();
        for state in &self.states {
            let counts = jobs::counts(&mut own(conn), *state, &self.filter);
            let counts = counts.doing("count the jobs")?;
            all.extend(counts.into_iter().map(|count| (*state, count)));
        }
        Ok(all)
    }

    /// The jobs, state by state; at most 100 of each unless there is a limit.
    ///
    /// # Errors
    /// When the database does not answer or has no tables.
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

    /// The selection in parts that name few ids each, which a walk sends along
    /// with every step. Where only the first few are wanted, it is one.
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

    /// Changes the jobs, in batches of 500, each all or not at all.
    ///
    /// # Errors
    /// When the database does not answer or has no tables; the batches before
    /// stay done. When the time of a [`Change::RunAt`] or [`Change::RunIn`] is
    /// out of bounds, before anything is done.
    pub fn change<C: AsConn + ?Sized>(&self, conn: &mut C, change: Change) -> Result<Changed> {
        self.change_with_progress(conn, change, |_| {})
    }

    /// The same, and tells after every batch what has come of it so far.
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
        let mut conn = own(conn);
        let mut done = Changed::default();
        let mut left = self.limit.unwrap_or(u64::MAX);
        // Where each walk ends is settled before anything is moved.
        let mut walks = Vec::new();
        for state in &self.states {
            let last = jobs::last(&mut conn, *state).doing("look at the jobs")?;
            walks.extend(self.parts().map(|part| (*state, last, part)));
        }
        for (state, last, part) in walks {
            let mut after = 0;
            while left > 0 {
                let limit = BATCH.min(usize::try_from(left).unwrap_or(BATCH));
                let met = jobs::next(&mut conn, state, &part, (after, last), limit)
                    .doing("look at the jobs")?;
                let Some(end) = met.last() else { break };
                after = end.execution_id;
                left -= met.len() as u64;
                let jobs: Vec<i64> = met.iter().map(|met| met.job_id).collect();
                done.add(change.apply(&mut conn, state, &jobs)?);
                progress(&done);
            }
        }
        Ok(done)
    }
}

impl Changed {
    /// How many jobs were looked at.
    #[cfg(feature = "cli")]
    pub(crate) fn looked_at(&self) -> u64 {
        self.changed + self.left() + self.passed_over
    }

    /// How many were left as they are for a reason.
    fn left(&self) -> u64 {
        self.running + self.in_ruby + self.at_most_once + self.id_taken
    }

    fn add(&mut self, other: Changed) {
        self.changed += other.changed;
        self.running += other.running;
        self.in_ruby += other.in_ruby;
        self.at_most_once += other.at_most_once;
        self.id_taken += other.id_taken;
        self.passed_over += other.passed_over;
    }
}

/// What was done to one batch.
#[derive(Default)]
struct Batch {
    ended: usize,
    asked: usize,
    in_ruby: usize,
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
                "the time must lie in the years 1 to 9999, and a delay be at most 1000 years"
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
                let retried = operate::retry(conn, jobs, even_at_most_once).doing("retry jobs")?;
                done.changed = retried.ready.len() as u64;
                done.at_most_once = retried.risky.len() as u64;
                done.id_taken = retried.replaced.len() as u64;
            }
            Change::Discard => {
                let discarded = operate::discard(conn, jobs).doing("discard jobs")?;
                done.changed = discarded.len() as u64;
            }
            Change::RunAt(time) => {
                let when = When::At(time.naive_utc());
                let moved = operate::reschedule(conn, jobs, when).doing("reschedule jobs")?;
                done.changed = moved.len() as u64;
            }
            Change::RunIn(delay) => {
                let when = When::In(i64::try_from(delay.as_micros()).unwrap_or(i64::MAX));
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

/// A job may be moved while it is looked for, from where we have yet to look
/// to where we have looked. Then it is looked for again, in a transaction of
/// its own so that locks are taken in order.
fn cancel_all(conn: &mut Conn<'_>, jobs: &[i64]) -> Result<Batch> {
    let mut batch = Batch::default();
    let mut open = jobs.to_vec();
    // Who waits for a move that is under way comes just in time for the next:
    // a job that goes round and round can be missed many times.
    for _ in 0..100 {
        let done = operate::cancel(conn, &open).doing("cancel jobs")?;
        batch.ended += done.ended.len();
        batch.asked += done.asked.len();
        batch.in_ruby += done.in_ruby.len();
        let settled = [done.ended, done.asked, done.in_ruby].concat();
        open.retain(|job| !settled.contains(job));
        if !open.is_empty() {
            open = operate::open(conn, &open).doing("cancel jobs")?;
        }
        if open.is_empty() {
            break;
        }
    }
    Ok(batch)
}
