//! Selecting jobs.

use crate::db::model::audit::Actor;
use crate::db::model::decision::JobState;
use crate::db::query::filter::Filter;
use crate::db::query::jobs::{self, JobCount, JobSummary};
use crate::db::transition::operate::RetriedJobs;
use crate::db::{AsConn, own};
use crate::error::{ErrorContext, Result};
use crate::job::{BatchId, JobId};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

/// Selects jobs to list, count or change.
///
/// ```
/// # use diesel::prelude::*;
/// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
/// # windlass::migrate(&mut conn).unwrap();
/// use windlass::jobs::{Change, Jobs};
///
/// let broken = Jobs::failed().class("import").error_contains("connection refused");
/// println!("{} jobs failed for this reason", broken.count(&mut conn)?);
/// let done = broken.change(&mut conn, Change::Retry { even_at_most_once: false })?;
/// println!("{} are ready again", done.changed);
/// # Ok::<(), windlass::Error>(())
/// ```
///
/// A selection can be stored as JSON: it holds everything but the [actor](Self::by).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[must_use = "a selection does nothing until it is listed, counted or changed"]
pub struct Jobs {
    #[doc(hidden)]
    pub states: Vec<JobState>,
    #[serde(default)]
    pub(crate) filter: Filter,
    #[doc(hidden)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    #[serde(skip)]
    pub(crate) actor: Actor,
}

/// A number of jobs that was counted up to a bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct BoundedCount {
    /// The number of jobs that were found.
    pub count: u64,
    /// True if there are no more jobs than `count`.
    pub is_exact: bool,
}

impl Jobs {
    fn in_states(states: impl Into<Vec<JobState>>) -> Self {
        Jobs {
            states: states.into(),
            filter: Filter::default(),
            limit: None,
            actor: Actor::default(),
        }
    }

    /// Selects failed jobs.
    pub fn failed() -> Self {
        Self::in_states([JobState::Failed])
    }

    /// Selects waiting jobs: ready, scheduled and blocked.
    pub fn waiting() -> Self {
        Self::in_states(JobState::WAITING)
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

    /// Restricts the selection to jobs that failed, were cancelled or were discarded with this kind of
    /// error, as [`Attempt::kind`](crate::jobs::Attempt::kind) has it.
    pub fn kind(mut self, kind: impl Into<String>) -> Self {
        self.filter.kind = Some(kind.into());
        self
    }

    /// Restricts the selection to failed jobs with this
    /// [fingerprint](crate::failed::FailedGroup::fingerprint).
    pub fn fingerprint(mut self, fingerprint: impl Into<String>) -> Self {
        self.filter.fingerprint = Some(fingerprint.into());
        self
    }

    /// Restricts the selection to jobs with this unique id.
    pub fn unique_id(mut self, id: impl Into<String>) -> Self {
        self.filter.unique_id = Some(id.into());
        self
    }

    /// Selects only jobs of this batch: those that are in one of the selected states.
    pub fn batch(mut self, batch: BatchId) -> Self {
        self.filter.batch = Some(batch.0);
        self
    }

    /// Restricts the selection to jobs whose arguments, as they are stored, contain this text.
    pub fn arguments_contain(mut self, text: impl Into<String>) -> Self {
        self.filter.arguments = Some(text.into());
        self
    }

    /// Restricts the selection to jobs that were enqueued in this time, without its end, by the
    /// database's clock. `None` is no bound.
    pub fn created_between(
        mut self,
        from: Option<DateTime<Utc>>,
        to: Option<DateTime<Utc>>,
    ) -> Self {
        (self.filter.created_from, self.filter.created_to) = (from, to);
        self
    }

    /// Restricts the selection to jobs that finished, were cancelled or were discarded in this time,
    /// as [`created_between`](Self::created_between) does.
    pub fn finished_between(
        mut self,
        from: Option<DateTime<Utc>>,
        to: Option<DateTime<Utc>>,
    ) -> Self {
        (self.filter.finished_from, self.filter.finished_to) = (from, to);
        self
    }

    /// Restricts the selection to jobs that failed in this time, as
    /// [`created_between`](Self::created_between) does.
    pub fn failed_between(
        mut self,
        from: Option<DateTime<Utc>>,
        to: Option<DateTime<Utc>>,
    ) -> Self {
        (self.filter.failed_from, self.filter.failed_to) = (from, to);
        self
    }

    /// Restricts the selection to this many jobs.
    pub fn limit(mut self, jobs: u64) -> Self {
        self.limit = Some(jobs);
        self
    }

    /// Names the actor of a change of these jobs, for the audit. Default: the user of this process, at
    /// this host.
    pub fn by(mut self, name: impl Into<String>) -> Self {
        let name = name.into();
        if !name.is_empty() {
            self.actor = self.actor.with_name(name);
        }
        self
    }

    /// Names the reason of a change of these jobs, for the audit. Default: none.
    pub fn reason(mut self, reason: impl Into<String>) -> Self {
        self.actor = self.actor.reason(reason);
        self
    }

    /// Sets the actor of a change of these jobs, for the audit.
    pub fn by_actor(mut self, actor: Actor) -> Self {
        self.actor = actor;
        self
    }

    /// Returns the number of selected jobs. All of them are counted, so the time grows with their
    /// number; [`count_up_to`](Self::count_up_to) is bounded.
    ///
    /// # Errors
    /// If the database does not answer or has no tables.
    pub fn count<C: AsConn + ?Sized>(&self, conn: &mut C) -> Result<u64> {
        if let Some(whole) = self.whole_batch(&mut own(conn))? {
            let most = self.limit.unwrap_or(u64::MAX);
            return Ok(Self::count_members(&mut own(conn), whole, most)?.count);
        }
        let counts = self.counts(conn)?;
        let sum = counts.iter().map(|(_, count)| count.count).sum::<i64>();
        let all = u64::try_from(sum).unwrap_or(0);
        Ok(self.limit.map_or(all, |limit| limit.min(all)))
    }

    /// Counts the selected jobs up to `most`.
    ///
    /// Reads the newest 100,000 jobs of each state if no index finds the jobs: if there are more,
    /// the count is not exact.
    ///
    /// # Errors
    /// If the database does not answer or has no tables.
    pub fn count_up_to<C: AsConn + ?Sized>(&self, conn: &mut C, most: u64) -> Result<BoundedCount> {
        let most = self.limit.map_or(most, |limit| limit.min(most));
        if let Some(whole) = self.whole_batch(&mut own(conn))? {
            let counted = Self::count_members(&mut own(conn), whole, most)?;
            let is_exact =
                counted.is_exact || self.limit.is_some_and(|limit| counted.count >= limit);
            return Ok(BoundedCount {
                is_exact,
                ..counted
            });
        }
        let mut all = BoundedCount {
            count: 0,
            is_exact: true,
        };
        for state in &self.states {
            let counted = jobs::count(&mut own(conn), *state, &self.filter, most - all.count);
            let counted = counted.during("count the jobs")?;
            all.count += counted.count;
            all.is_exact &= counted.is_exact;
        }
        all.is_exact |= self.limit.is_some_and(|limit| all.count >= limit);
        Ok(all)
    }

    /// Returns the number of selected jobs by state, class and queue, regardless of the limit.
    ///
    /// # Errors
    /// If the database does not answer or has no tables.
    pub fn counts<C: AsConn + ?Sized>(&self, conn: &mut C) -> Result<Vec<(JobState, JobCount)>> {
        if let Some(whole) = self.whole_batch(&mut own(conn))? {
            return self.member_counts(&mut own(conn), whole);
        }
        let mut all = Vec::new();
        for state in &self.states {
            let counts = jobs::counts(&mut own(conn), *state, &self.filter);
            let counts = counts.during("count the jobs")?;
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
        let mut filter = self.filter.clone();
        if let Some(whole) = self.whole_batch(&mut own(conn))? {
            filter.ids = Some(Self::first_members(&mut own(conn), whole, limit)?);
            filter.whole_batch = None;
        }
        let mut all = Vec::new();
        for state in &self.states {
            let left = limit.saturating_sub(if self.limit.is_some() { all.len() } else { 0 });
            let jobs = jobs::list_jobs(&mut own(conn), *state, &filter, left);
            all.extend(jobs.during("list the jobs")?);
        }
        Ok(all)
    }
}

// --- The result of a change of jobs ---

/// The result of a change.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Changed {
    /// The number of changed jobs.
    pub changed: u64,
    /// The number of jobs that a process holds. `Cancel` asked these to stop; other changes left
    /// them as they are.
    pub running: u64,
    /// The number of jobs not cancelled because a Ruby process runs them.
    pub in_ruby: u64,
    /// The number of jobs not retried because they are at-most-once.
    pub at_most_once: u64,
    /// The number of jobs not retried because another job now holds their unique id.
    pub id_taken: u64,
    /// The number of jobs that moved or ended before they were reached, or are in a state to which
    /// the change does not apply.
    pub passed_over: u64,
}

impl Changed {
    /// Returns the number of jobs examined.
    #[doc(hidden)]
    pub fn looked_at(&self) -> u64 {
        self.changed + self.left() + self.passed_over
    }

    /// Returns the number of jobs left unchanged for a reason.
    pub(crate) fn left(&self) -> u64 {
        self.running + self.in_ruby + self.at_most_once + self.id_taken
    }

    /// Returns the same, for what is printed.
    #[doc(hidden)]
    pub fn left_alone(&self) -> u64 {
        self.in_ruby + self.at_most_once + self.id_taken
    }

    pub(crate) fn of_retry(retried: &RetriedJobs, count: u64) -> Self {
        let mut done = Changed {
            changed: retried.ready.len() as u64,
            at_most_once: retried.risky.len() as u64,
            id_taken: retried.replaced.len() as u64,
            ..Changed::default()
        };
        done.passed_over = count - done.changed - done.left();
        done
    }

    pub(crate) fn add(&mut self, other: Changed) {
        self.changed += other.changed;
        self.running += other.running;
        self.in_ruby += other.in_ruby;
        self.at_most_once += other.at_most_once;
        self.id_taken += other.id_taken;
        self.passed_over += other.passed_over;
    }
}
