//! Changes of selected jobs: in chunks, each of which has its row in the audit.

use crate::admin::change::{Change, Pace, PacedChange, cancel_all};
use crate::admin::jobs::{Changed, Jobs};
use crate::admin::rate::RetryRate;
use crate::admin::walk::{JobWalk, WalkPosition};
use crate::db::model::audit::{Actor, AuditAction};
use crate::db::model::decision::JobState;
use crate::db::model::extras::{MAX_LABEL, TagChange, is_label};
use crate::db::transition::audit::{AuditEffect, AuditTrail};
use crate::db::transition::operate::edit;
use crate::db::{AsConn, Conn, own};
use crate::error::{Error, ErrorContext, Result};
use crate::job::JobId;
use diesel::QueryResult;
use serde::Serialize;
use serde_json::json;
use std::ops::ControlFlow;

/// The most searches for jobs that move to another state meanwhile. A search that waits for a current
/// move continues just in time for the next one, so a job that moves repeatedly can be missed many times.
const MOST_SEARCHES: usize = 100;

/// The states through which jobs move until they run, in this order.
const MOVES: [JobState; 4] = [
    JobState::Scheduled,
    JobState::Blocked,
    JobState::Ready,
    JobState::Claimed,
];

/// Changes the jobs of a chunk, and writes the rows of the audit.
///
/// A job may move during the search, from a table not yet searched to one already searched. Then it
/// is searched for again, in a new transaction so that locks are taken in order.
fn record(
    conn: &mut Conn<'_>,
    trail: &mut AuditTrail<'_>,
    action: &'static str,
    jobs: &[i64],
    mut change: impl FnMut(&mut Conn<'_>, &[i64]) -> QueryResult<(Changed, Vec<i64>)>,
) -> Result<Changed> {
    let is_cancel = trail.is_of(AuditAction::CancelJobs);
    let (mut all, mut open) = (Changed::default(), jobs.to_vec());
    for _ in 0..MOST_SEARCHES {
        let recorded = trail.record(
            conn,
            |conn| change(conn, &open),
            |(done, _)| AuditEffect::of_jobs(done.affected(is_cancel)),
        );
        let (done, moved) = recorded.during(action)?;
        all.add(done);
        open = moved;
        if open.is_empty() {
            break;
        }
    }
    all.passed_over += open.len() as u64;
    Ok(all)
}

impl Jobs {
    /// Changes the jobs in chunks of 500, each in one transaction with its row of the audit.
    ///
    /// # Errors
    /// - If the database does not answer or has no tables; completed chunks stay changed.
    /// - If the time of a [`Change::RunAt`] or [`Change::RunIn`] is out of range, or the name of a queue
    ///   is invalid, before any job is changed.
    pub fn change<C: AsConn + ?Sized>(&self, conn: &mut C, change: Change) -> Result<Changed> {
        self.change_with_progress(conn, change, |_| {})
    }

    /// Changes the jobs and calls `progress` after every chunk with the totals so far.
    ///
    /// # Errors
    /// As for [`change`](Self::change).
    pub fn change_with_progress<C: AsConn + ?Sized>(
        &self,
        conn: &mut C,
        change: Change,
        progress: impl FnMut(&Changed),
    ) -> Result<Changed> {
        change.check()?;
        let paced = PacedChange { change, rate: None };
        self.change_at_pace(conn, &paced, unbroken(progress))
    }

    /// Retries the failed jobs of this selection, spread over time: the first is due at once, each
    /// further one a little later, by the database's clock. Until then they are scheduled jobs, which
    /// need a dispatcher. All have their attempts available again.
    ///
    /// The jobs are changed in chunks of 500, each in one transaction. After each, `progress` gets
    /// the totals; on [`ControlFlow::Break`] the other jobs stay as they are.
    ///
    /// # Errors
    /// If the database does not answer or has no tables; completed chunks stay changed.
    pub fn retry_at_rate<C: AsConn + ?Sized>(
        &self,
        conn: &mut C,
        rate: RetryRate,
        even_at_most_once: bool,
        progress: impl FnMut(&Changed) -> ControlFlow<()>,
    ) -> Result<Changed> {
        let paced = PacedChange {
            change: Change::Retry { even_at_most_once },
            rate: Some(rate),
        };
        self.failed_only().change_at_pace(conn, &paced, progress)
    }

    fn change_at_pace<C: AsConn + ?Sized>(
        &self,
        conn: &mut C,
        paced: &PacedChange,
        progress: impl FnMut(&Changed) -> ControlFlow<()>,
    ) -> Result<Changed> {
        let mut trail = self.trail(paced.change.action());
        if let Some(parameters) = paced.parameters() {
            trail = trail.parameters(parameters);
        }
        let mut pace = Pace::default();
        let action = paced.change.action_text();
        self.each_chunk(&mut own(conn), trail, action, progress, |conn, chunk| {
            paced.apply(conn, &mut pace, chunk)
        })
    }

    /// Changes the jobs in chunks, each with its rows in the audit, until `progress` breaks. `change` returns the jobs
    /// that moved during its search, which are searched for again.
    pub(crate) fn each_chunk(
        &self,
        conn: &mut Conn<'_>,
        mut trail: AuditTrail<'_>,
        action: &'static str,
        mut progress: impl FnMut(&Changed) -> ControlFlow<()>,
        mut change: impl FnMut(&mut Conn<'_>, (JobState, &[i64])) -> QueryResult<(Changed, Vec<i64>)>,
    ) -> Result<Changed> {
        const READ: &str = "read the jobs";
        self.whole_batch(conn)?;
        let followed = self.followed(trail.is_of(AuditAction::CancelJobs));
        let selected = followed.as_ref().unwrap_or(self);
        let mut all = Changed::default();
        for walk in JobWalk::all(conn, selected, followed.is_some()).during(READ)? {
            let mut position = WalkPosition::start(selected.limit);
            while let Some((state, jobs)) = walk.next(conn, &mut position).during(READ)? {
                if jobs.is_empty() {
                    continue;
                }
                self.name_chunk(&mut trail, &jobs);
                all.add(record(conn, &mut trail, action, &jobs, |conn, jobs| {
                    change(conn, (state, jobs))
                })?);
                if progress(&all).is_break() {
                    return Ok(all);
                }
            }
        }
        Ok(all)
    }

    /// Returns the selection in the order in which its jobs are followed from state to state, if a
    /// change can do that. `None` if not.
    ///
    /// A cancel of all jobs that wait or run can: no job comes to these states from another one, unless
    /// it is new or an operator retries it. Other changes leave out states from which jobs come that
    /// were not selected.
    pub(crate) fn followed(&self, is_cancel: bool) -> Option<Self> {
        let has_all = MOVES.iter().all(|state| self.states.contains(state));
        if !is_cancel || !has_all || self.filter.whole_batch.is_some() {
            return None;
        }
        let mut jobs = self.clone();
        jobs.states.retain(|state| !MOVES.contains(state));
        jobs.states.splice(0..0, MOVES);
        Some(jobs)
    }

    /// Restricts the selection to failed jobs.
    pub(crate) fn failed_only(&self) -> Self {
        let mut jobs = self.clone();
        jobs.states.retain(|state| *state == JobState::Failed);
        jobs
    }

    /// Returns the trail of a change of these jobs in the audit.
    pub(crate) fn trail(&self, action: AuditAction) -> AuditTrail<'_> {
        let trail = AuditTrail::new(&self.actor, action);
        match self.filter.ids.as_deref() {
            Some(&[one]) => trail.target(one.to_string()),
            _ => trail.filter(serde_json::to_string(self).unwrap_or_default()),
        }
    }

    /// Names the jobs of a chunk in its row, if the jobs were selected by their ids.
    fn name_chunk(&self, trail: &mut AuditTrail<'_>, jobs: &[i64]) {
        if self.filter.ids.as_ref().is_some_and(|ids| ids.len() > 1) {
            let chunk = self.clone().ids(jobs.iter().map(|id| JobId(*id)));
            trail.filter_of_each(serde_json::to_string(&chunk).unwrap_or_default());
        }
    }
}

/// Returns a progress that never breaks.
pub(crate) fn unbroken(
    mut progress: impl FnMut(&Changed),
) -> impl FnMut(&Changed) -> ControlFlow<()> {
    move |done| {
        progress(done);
        ControlFlow::Continue(())
    }
}

// --- Cancelling one job ---

/// The result of [`cancel`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Cancelled {
    /// The job had not started, and is now cancelled.
    Ended,
    /// A process holds the job and learns of the request with its next heartbeat.
    ///
    /// The job is cancelled as soon as it calls [`check`](crate::Context::check), or fails, or its
    /// process dies. If it succeeds before, it has succeeded.
    Asked,
    /// A Ruby process runs the job and cannot be asked to cancel it: nothing was changed.
    InRuby,
    /// The job had ended before, or does not exist.
    NotThere,
}

/// Cancels a job.
///
/// ```
/// # use diesel::prelude::*;
/// # use windlass::NewJob;
/// # use windlass::jobs::Cancelled;
/// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
/// # windlass::migrate(&mut conn).unwrap();
/// let job = NewJob::of_class("import", "{}").enqueue(&mut conn)?.id;
/// assert_eq!(windlass::jobs::cancel(&mut conn, job)?, Cancelled::Ended);
/// assert_eq!(windlass::jobs::cancel(&mut conn, job)?, Cancelled::NotThere);
/// # Ok::<(), windlass::Error>(())
/// ```
///
/// # Errors
/// If the database does not answer or has no tables.
pub fn cancel<C: AsConn + ?Sized>(conn: &mut C, job: JobId) -> Result<Cancelled> {
    Actor::default().cancel(conn, job)
}

impl Actor {
    /// Does what [`cancel`] does.
    ///
    /// # Errors
    /// As for [`cancel`].
    pub fn cancel<C: AsConn + ?Sized>(&self, conn: &mut C, job: JobId) -> Result<Cancelled> {
        let mut trail = AuditTrail::new(self, AuditAction::CancelJobs).target(job.to_string());
        let action = Change::Cancel.action_text();
        let done = record(&mut own(conn), &mut trail, action, &[job.0], cancel_all)?;
        Ok(match done {
            Changed { changed: 1.., .. } => Cancelled::Ended,
            Changed { running: 1.., .. } => Cancelled::Asked,
            Changed { in_ruby: 1.., .. } => Cancelled::InRuby,
            _ => Cancelled::NotThere,
        })
    }
}

// --- Selecting jobs by their tags, and changing these ---

fn list<T: Into<String>>(tags: impl IntoIterator<Item = T>) -> Vec<String> {
    tags.into_iter().map(Into::into).collect()
}

impl Jobs {
    /// Restricts the selection to jobs with all of these [tags](crate::NewJob::tag).
    ///
    /// Tags are compared exactly. There is no index: all jobs of the selected states are read.
    pub fn tagged<T: Into<String>>(mut self, tags: impl IntoIterator<Item = T>) -> Self {
        self.filter.tags = Some(list(tags));
        self
    }

    /// Restricts the selection to jobs with at least one of these [tags](crate::NewJob::tag), so to
    /// none without tags.
    pub fn tagged_any<T: Into<String>>(mut self, tags: impl IntoIterator<Item = T>) -> Self {
        self.filter.any_tag = Some(list(tags));
        self
    }

    /// Adds a [tag](crate::NewJob::tag) to the jobs, in chunks of 500, each in one transaction.
    ///
    /// Running jobs are tagged too, but do not see it before their next attempt. A job that has the
    /// tag, or 32 others, is passed over.
    ///
    /// # Errors
    /// - If the database does not answer or has no tables; completed chunks stay changed.
    /// - If the tag is not 1 to 100 bytes long or contains NUL, before any job is changed.
    pub fn tag<C: AsConn + ?Sized>(&self, conn: &mut C, tag: &str) -> Result<Changed> {
        self.retag(conn, TagChange::Add(tag), |_| {})
    }

    /// Removes a tag from the jobs, in chunks of 500, each in one transaction. A job without the tag
    /// is passed over.
    ///
    /// # Errors
    /// As for [`tag`](Self::tag).
    pub fn untag<C: AsConn + ?Sized>(&self, conn: &mut C, tag: &str) -> Result<Changed> {
        self.retag(conn, TagChange::Remove(tag), |_| {})
    }

    #[doc(hidden)]
    pub fn retag<C: AsConn + ?Sized>(
        &self,
        conn: &mut C,
        change: TagChange<'_>,
        progress: impl FnMut(&Changed),
    ) -> Result<Changed> {
        let (action, text) = match change {
            TagChange::Add(text) => (AuditAction::TagJobs, text),
            TagChange::Remove(text) => (AuditAction::UntagJobs, text),
        };
        if !is_label(text) {
            return Err(Error::Settings(format!(
                "a tag must have 1 to {MAX_LABEL} bytes and no NUL"
            )));
        }
        let parameters = json!({ "tag": text }).to_string();
        let trail = self.trail(action).parameters(parameters);
        let (action, progress) = ("change the tags of jobs", unbroken(progress));
        self.each_chunk(
            &mut own(conn),
            trail,
            action,
            progress,
            |conn, (_, jobs)| {
                let changed = edit::tag(conn, jobs, change)?.len() as u64;
                let done = Changed {
                    changed,
                    passed_over: jobs.len() as u64 - changed,
                    ..Changed::default()
                };
                Ok((done, Vec::new()))
            },
        )
    }
}
