//! The changes that can be made to selected jobs.

use crate::admin::jobs::Changed;
use crate::admin::rate::RetryRate;
use crate::db::Conn;
use crate::db::model::audit::AuditAction;
use crate::db::model::decision::JobState;
use crate::db::table::recurring_tasks;
use crate::db::transition::operate::{self, AtMostOnce, RetrySpread, RunTime, edit};
use crate::error::{Error, Result};
use crate::job::options::humane;
use crate::queue::check_name;
use chrono::{DateTime, NaiveDateTime, Utc};
use diesel::QueryResult;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::time::Duration;

/// A change to jobs. A job that a process holds is only affected by `Cancel`, and its own code
/// decides when to stop.
///
/// ```
/// # use diesel::prelude::*;
/// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
/// # windlass::migrate(&mut conn).unwrap();
/// use std::time::Duration;
/// use windlass::NewJob;
/// use windlass::jobs::{Change, Jobs};
///
/// NewJob::of_class("import", "{}").enqueue(&mut conn)?;
/// let imports = Jobs::waiting().class("import");
/// assert_eq!(imports.change(&mut conn, Change::RunIn(Duration::from_secs(3600)))?.changed, 1);
/// # Ok::<(), windlass::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
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

    /// Changes the jobs that are in this state, in one transaction. A job that moved meanwhile is
    /// passed over, except that a cancel returns those that moved during its search.
    pub(crate) fn apply(
        &self,
        conn: &mut Conn<'_>,
        state: JobState,
        jobs: &[i64],
    ) -> QueryResult<(Changed, Vec<i64>)> {
        let count = jobs.len() as u64;
        let mut done = Changed::default();
        if *self == Change::Cancel {
            return cancel_all(conn, jobs);
        }
        if state == JobState::Claimed {
            done.running = count;
            return Ok((done, Vec::new()));
        }
        let changed = match self {
            Change::Cancel => Vec::new(),
            Change::Retry { even_at_most_once } => {
                let even = AtMostOnce::retry_if(*even_at_most_once);
                let retried = operate::retry(conn, jobs, even)?;
                return Ok((Changed::of_retry(&retried, count), Vec::new()));
            }
            Change::Discard => operate::discard(conn, jobs)?,
            Change::RunAt(time) => operate::reschedule(conn, jobs, RunTime::At(time.naive_utc()))?,
            Change::RunIn(delay) => {
                let micros = i64::try_from(delay.as_micros()).unwrap_or(i64::MAX);
                operate::reschedule(conn, jobs, RunTime::In(micros))?
            }
            Change::Priority(priority) => operate::change_priority(conn, jobs, *priority)?,
            Change::Queue(name) => edit::requeue(conn, jobs, name)?,
        };
        done.changed = changed.len() as u64;
        done.passed_over = count - done.changed;
        Ok((done, Vec::new()))
    }
}

/// Cancels jobs, and returns those that moved during the search.
pub(crate) fn cancel_all(conn: &mut Conn<'_>, jobs: &[i64]) -> QueryResult<(Changed, Vec<i64>)> {
    let cancelled = operate::cancel(conn, jobs)?;
    let mut done = Changed {
        changed: cancelled.ended.len() as u64,
        running: cancelled.asked.len() as u64,
        in_ruby: cancelled.in_ruby.len() as u64,
        ..Changed::default()
    };
    let handled = [cancelled.ended, cancelled.asked, cancelled.in_ruby].concat();
    let rest = jobs.iter().copied().filter(|job| !handled.contains(job));
    let rest: Vec<i64> = rest.collect();
    if rest.is_empty() {
        return Ok((done, rest));
    }
    let moved = operate::open(conn, &rest)?;
    done.passed_over = (rest.len() - moved.len()) as u64;
    Ok((done, moved))
}

impl Changed {
    /// Returns how many jobs a change affected, for the audit. A cancel also affects the running jobs that it asks to
    /// stop.
    pub(crate) fn affected(&self, is_cancel: bool) -> u64 {
        self.changed + if is_cancel { self.running } else { 0 }
    }
}

// --- A change, and the rate at which retried jobs become due ---

/// A change as operations store it. A program that does not know one of its values leaves the
/// operation to others.
#[doc(hidden)]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PacedChange {
    pub change: Change,
    /// The rate at which retried jobs become due.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<RetryRate>,
}

/// The number of jobs that have become due at a rate, and the time of the first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Pace {
    due: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    start: Option<NaiveDateTime>,
}

impl PacedChange {
    /// Does what [`Change::apply`] does.
    pub(crate) fn apply(
        &self,
        conn: &mut Conn<'_>,
        pace: &mut Pace,
        (state, jobs): (JobState, &[i64]),
    ) -> QueryResult<(Changed, Vec<i64>)> {
        let (Change::Retry { even_at_most_once }, Some(rate)) = (&self.change, self.rate) else {
            return self.change.apply(conn, state, jobs);
        };
        let start = match pace.start {
            Some(start) => start,
            None => recurring_tasks::now(conn)?,
        };
        let spread = RetrySpread {
            start,
            before: pace.due,
            time_for: &|jobs| rate.time_for(jobs),
        };
        let even = AtMostOnce::retry_if(*even_at_most_once);
        let retried = operate::retry_spread(conn, jobs, even, &spread)?;
        let done = Changed::of_retry(&retried, jobs.len() as u64);
        (pace.due, pace.start) = (pace.due + done.changed, Some(start));
        Ok((done, Vec::new()))
    }

    /// Returns its values as JSON, if it has any.
    pub(crate) fn parameters(&self) -> Option<String> {
        match (&self.change, self.rate) {
            (Change::Cancel | Change::Discard, _) => None,
            (Change::Retry { even_at_most_once }, Some(rate)) => {
                let values = json!({ "even_at_most_once": even_at_most_once, "rate": rate });
                Some(json!({ "retry": values }).to_string())
            }
            (change, _) => serde_json::to_string(change).ok(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_of_a_newer_version_is_not_read() {
        let change = PacedChange {
            change: Change::Queue("slow".into()),
            rate: None,
        };
        let text = serde_json::to_string(&change).unwrap();
        assert_eq!(text, r#"{"change":{"queue":"slow"}}"#);
        assert_eq!(serde_json::from_str::<PacedChange>(&text).unwrap(), change);
        for newer in [
            r#"{"change":{"explode":1}}"#,
            r#"{"change":"discard","slowly":true}"#,
        ] {
            assert!(serde_json::from_str::<PacedChange>(newer).is_err());
        }
    }
}
