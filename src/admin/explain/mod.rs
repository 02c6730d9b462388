//! Explains why a job is not running, or what it is doing.

pub mod obstacles;
mod sentence;
pub mod words;

use crate::admin::explain::obstacles::{Obstacle, is_beating, obstacles};
use crate::admin::job_info::{self, JobKey, TaskInfo, TaskStatus};
use crate::admin::secrets::Secrets;
use crate::db::model::gate_line::{GateLine, ShareOf};
use crate::db::model::new_row::{
    ORDERED, UNIQUE_SUCCESSOR, WAITS_AT_GATE, WAITS_FOR_EVENT, WAITS_FOR_PARENTS,
};
use crate::db::query::batches::{self, AwaitedBatch};
use crate::db::query::explain::{self, RubyProcesses};
use crate::db::query::job_view::{JobView, TextLimits};
use crate::db::table::claimed::Progress;
use crate::db::table::expiries;
use crate::db::table::flows::waits::{self, AwaitedEvent};
use crate::db::table::rates::{self, StartRate};
use crate::db::table::run_time::limits;
use crate::db::{AsConn, Conn, own};
use crate::error::{ErrorContext, Result};
use crate::job::policy::{Delivery, Policy};
use crate::job::{BatchId, JobId};
use chrono::{DateTime, NaiveDateTime, Utc};
use diesel::QueryResult;
use std::collections::BTreeSet;

/// The state of a job, and the reason for it.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
#[non_exhaustive]
pub struct Explanation {
    /// The job, as seen by the caller that enqueued it.
    pub task: TaskInfo,
    /// Its queue. `None` if its row was deleted and only its result is left.
    pub queue_name: Option<String>,
    /// Its priority; a smaller number is more important.
    pub priority: Option<i32>,
    /// Its state, and what it waits for.
    pub reason: Reason,
    /// The time by which it must have started, or else is discarded, by the database's clock. `None` if it
    /// does not expire, or has started once.
    pub expires_at: Option<DateTime<Utc>>,
    /// The time after which no further attempt is due, by the database's clock. `None` if there is no such
    /// limit, or the job has ended.
    pub retry_until: Option<DateTime<Utc>>,
    /// Its delivery: at least once, or at most once. `None` if its row was deleted.
    pub delivery: Option<Delivery>,
    /// The number of attempts that it may have. `None` if its row was deleted, or does not say.
    pub max_attempts: Option<u32>,
    /// The reason for which it has failed although it may have more attempts.
    pub not_retried: Option<NotRetried>,
}

/// The state of a job, and what it waits for.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
#[serde(rename_all = "snake_case", tag = "is")]
pub enum Reason {
    /// A worker may claim it.
    Ready {
        /// The number of jobs of its queue that are claimed before it, because they are more
        /// important or older. The count stops at 10,000.
        ahead: u32,
        /// The other obstacles to a claim; empty if there are none.
        obstacles: Vec<Obstacle>,
    },
    /// It waits until it is due.
    Scheduled {
        /// The time at which it is due, by the database's clock.
        at: DateTime<Utc>,
        /// The seconds since it was due; negative before that.
        overdue_seconds: f64,
        /// The obstacles that will prevent a claim even at that time.
        obstacles: Vec<Obstacle>,
    },
    /// It waits until another job has ended.
    Blocked {
        /// The other job, which runs with the same unique id.
        by: Option<JobId>,
        /// The unique id that both share.
        key: String,
    },
    /// It follows a batch, and waits until that is over.
    Batch {
        /// The batch.
        batch: BatchId,
        /// Its name.
        name: String,
        /// The number of its jobs that have not ended; no more than 10,001 are counted.
        open: u64,
        /// The number of jobs it has had.
        total: u64,
        /// The oldest of the jobs that have not ended.
        oldest: Option<JobId>,
    },
    /// It waits for other jobs to end.
    Jobs {
        /// The number of them that have not ended.
        open: u64,
        /// The number of jobs that it waits for.
        total: u64,
        /// The oldest of those that have not ended.
        oldest: Option<JobId>,
        /// One that has not succeeded, if the job waits for its retry.
        failed: Option<JobId>,
    },
    /// It waits at a step for an [event](crate::events::emit).
    Event {
        /// The name of the event.
        name: String,
        /// The step.
        step: String,
        /// The time at which the wait times out, by the database's clock. `None` if that is no
        /// calendar time.
        until: Option<DateTime<Utc>>,
    },
    /// It waits for a slot of its concurrency key.
    Limited {
        /// The key.
        key: String,
        /// The oldest of the jobs that hold its slots.
        by: Option<JobId>,
        /// The number of jobs of the key that may hold a slot, if that was set at run time.
        set_limit: Option<i32>,
    },
    /// It waits for a token of a [rate](crate::limits::Rate).
    Rate {
        /// The key of the rate.
        key: String,
        /// The number of jobs before it in its line, counted up to 10,000.
        ahead: u32,
        /// The seconds until its token comes, if each job before it takes one. `None` if that depends on jobs that are
        /// ready and have not started, or if it never comes.
        seconds: Option<f64>,
        /// The rate that counts for it. A job that costs more than its burst never starts.
        rate: Option<StartRate>,
        /// The tokens that it needs.
        cost: i64,
        /// The key for which the rate was set at run time: its own, or that of its group.
        set_as: Option<String>,
        /// The seconds for which the key is closed, as a job was refused by the other side.
        closed_seconds: Option<f64>,
    },
    /// It waits for its tenant's [share](crate::tenants) of its queue.
    Share {
        /// The queue.
        queue: String,
        /// The tenant.
        tenant: String,
        /// The number of jobs of the tenant before it in its line, counted up to 10,000.
        ahead: u32,
    },
    /// It waits for its turn: its concurrency key is [ordered](crate::Concurrency::ordered).
    InLine {
        /// The key.
        key: String,
        /// The job that holds the key's slot, or else the one before it in the line.
        behind: Option<JobId>,
        /// The time at which the next run of that job is due, by the database's clock, if it waits
        /// for one.
        until: Option<DateTime<Utc>>,
    },
    /// A process holds it.
    Claimed {
        /// The process. `None` if its row was deleted.
        process_name: Option<String>,
        /// The host it runs on.
        hostname: Option<String>,
        /// Its process id on that host.
        pid: Option<i32>,
        /// The thread that runs the job, as of the last heartbeat.
        thread: Option<String>,
        /// The time of the claim, by the database's clock.
        since: Option<DateTime<Utc>>,
        /// Seconds since it was claimed.
        seconds: f64,
        /// Seconds since the last heartbeat of the process. If this reaches the alive threshold, a
        /// supervisor recovers the job.
        heartbeat_seconds: Option<f64>,
        /// The time at which its cancellation was requested.
        cancel_requested_at: Option<DateTime<Utc>>,
        /// Its progress, as it reported it.
        progress: Option<Progress>,
    },
    /// It has ended; `task` has the outcome.
    Ended,
    /// It is in no state that Windlass uses: its execution was deleted by hand.
    Adrift,
}

/// Explains why a job is not running, or what it is doing. Returns `None` if nothing is stored
/// about the job.
///
/// ```
/// # use diesel::prelude::*;
/// # use windlass::NewJob;
/// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
/// # windlass::migrate(&mut conn).unwrap();
/// use windlass::jobs::{Obstacle, Reason};
///
/// let job = NewJob::of_class("import", "{}").enqueue(&mut conn)?.id;
/// let explanation = windlass::jobs::explain(&mut conn, job)?.expect("it is known");
/// let Reason::Ready { ahead, obstacles } = explanation.reason else { panic!() };
/// assert_eq!((ahead, obstacles), (0, vec![Obstacle::NoWorkerForQueue]));
/// # Ok::<(), windlass::Error>(())
/// ```
///
/// # Errors
/// If the database does not answer or has no tables.
pub fn explain<C: AsConn + ?Sized>(
    conn: &mut C,
    job: impl Into<JobKey>,
) -> Result<Option<Explanation>> {
    let mut conn = own(conn);
    let Some((mut found, _)) = find(&mut conn, job.into(), TextLimits::OUTCOME)? else {
        return Ok(None);
    };
    Secrets::cover(&mut conn, &mut found.task).during("look the job up")?;
    Ok(Some(found))
}

/// An explanation, and the job if it has a row.
type Explained = (Explanation, Option<JobView>);

/// Explains a job, with its secrets.
pub fn find(conn: &mut Conn<'_>, job: JobKey, texts: TextLimits) -> Result<Option<Explained>> {
    let Some(id) = job.resolve(conn)? else {
        return Ok(None);
    };
    // It may move between two reads, so it is read again.
    for _ in 0..3 {
        let found = once(conn, id, texts)?;
        if !matches!(&found, Some((found, _)) if found.reason == Reason::Adrift) {
            return Ok(found);
        }
    }
    once(conn, id, texts)
}

fn once(conn: &mut Conn<'_>, id: i64, texts: TextLimits) -> Result<Option<Explained>> {
    let Some((task, job)) = job_info::read(conn, &[id], texts)?.remove(&id) else {
        return Ok(None);
    };
    let mut explanation = Explanation {
        task,
        queue_name: None,
        priority: None,
        reason: Reason::Ended,
        expires_at: None,
        retry_until: None,
        delivery: None,
        max_attempts: None,
        not_retried: None,
    };
    if let Some(job) = &job {
        explanation.complete(conn, job).during("look the job up")?;
    }
    Ok(Some((explanation, job)))
}

fn reason(conn: &mut Conn<'_>, job: &JobView) -> QueryResult<Reason> {
    if job.is_claimed {
        return Ok(claimed(job));
    }
    if let Some(at) = job.due_at {
        let mut obstacles = obstacles(conn, job)?;
        // Ruby's dispatchers make every job ready.
        let dispatchers = explain::registered(conn, "Dispatcher", RubyProcesses::Include)?;
        if !dispatchers.iter().any(is_beating) {
            obstacles.insert(0, Obstacle::NoDispatcher);
        }
        return Ok(Reason::Scheduled {
            at: at.and_utc(),
            overdue_seconds: job.seconds_since(Some(at)),
            obstacles,
        });
    }
    if let Some(key) = &job.blocked_key {
        return blocked(conn, job, key);
    }
    Ok(match explain::ahead(conn, job.job_id)? {
        Some(ahead) => Reason::Ready {
            ahead,
            obstacles: obstacles(conn, job)?,
        },
        None => Reason::Adrift,
    })
}

fn blocked(conn: &mut Conn<'_>, job: &JobView, key: &str) -> QueryResult<Reason> {
    let waits_for = match key {
        WAITS_FOR_EVENT => waits::awaited_event(conn, job.job_id)?.map(event),
        WAITS_FOR_PARENTS => follows(conn, job.job_id)?,
        UNIQUE_SUCCESSOR => None,
        WAITS_AT_GATE => at_gate(conn, job)?,
        _ => return limited(conn, job, key),
    };
    Ok(waits_for.unwrap_or_else(|| Reason::Blocked {
        by: job.after_job_id.map(JobId),
        key: job.unique_id.clone().unwrap_or_else(|| key.to_owned()),
    }))
}

/// Returns what a job in a line waits for: the gate that was closed when its line was last looked at.
fn at_gate(conn: &mut Conn<'_>, job: &JobView) -> QueryResult<Option<Reason>> {
    let Some(place) = rates::place(conn, job.job_id, explain::MOST)? else {
        return Ok(None);
    };
    let gates = GateLine::of(&place.line);
    let kind = place.gate_kind.as_deref();
    if let (Some("limit"), Some(key)) = (kind, &place.gate_key) {
        return limited(conn, job, key).map(Some);
    }
    let ahead = u32::try_from(place.ahead).unwrap_or(explain::MOST);
    if let (Some("share") | None, Some(ShareOf { queue, tenant })) = (kind, gates.share) {
        return Ok(Some(Reason::Share {
            queue,
            tenant,
            ahead,
        }));
    }
    let own = rates::of_job(conn, job.job_id)?;
    let first = own.first().map(|rate| rate.key.clone());
    let key = place.gate_key.or(gates.rates.into_iter().next()).or(first);
    let Some(key) = key else {
        return Ok(None);
    };
    let set = rates::set_paces(conn, &BTreeSet::from([key.clone()]))?;
    let own = own.into_iter().find(|rate| rate.key == key);
    let (pace, cost) = own.map_or((None, 1), |rate| (Some(set.pace(&rate)), rate.cost));
    let is_met = pace.is_none_or(|pace| cost <= pace.burst);
    let closed = rates::closed_for(conn, &key)?;
    let due = rates::due_in(conn, &key)?.filter(|_| is_met);
    let seconds = due.map(|(due, each)| {
        let due = due.as_secs_f64().max(closed.unwrap_or(0.0));
        due + (each * ahead).as_secs_f64()
    });
    Ok(Some(Reason::Rate {
        set_as: set.of(&key).map(|(key, _)| key.to_owned()),
        rate: pace.map(StartRate::from),
        closed_seconds: closed,
        seconds,
        cost,
        key,
        ahead,
    }))
}

fn limited(conn: &mut Conn<'_>, job: &JobView, key: &str) -> QueryResult<Reason> {
    let is_ordered = job.on_conflict.as_deref() == Some(ORDERED);
    let before = explain::predecessor(conn, key, is_ordered.then_some(job.job_id))?;
    let (key, by) = (key.to_owned(), before.job_id.map(JobId));
    Ok(match is_ordered {
        true => Reason::InLine {
            key,
            behind: by,
            until: before.next_run_at.map(|at| at.and_utc()),
        },
        false => Reason::Limited {
            set_limit: limits::of_key(conn, &key)?,
            key,
            by,
        },
    })
}

/// Returns what a blocked job waits for, if it is jobs or a batch. Those that are open come first.
fn follows(conn: &mut Conn<'_>, id: i64) -> QueryResult<Option<Reason>> {
    let jobs = batches::awaited_jobs(conn, id)?;
    if let Some(jobs) = jobs.filter(|jobs| jobs.open > 0 || jobs.failed.is_some()) {
        return Ok(Some(Reason::Jobs {
            open: u64::try_from(jobs.open).unwrap_or(0),
            total: u64::try_from(jobs.total).unwrap_or(0),
            oldest: jobs.oldest.map(JobId),
            failed: jobs.failed.map(JobId),
        }));
    }
    Ok(batches::awaited_batch(conn, id)?.map(of_batch))
}

fn event(wait: AwaitedEvent) -> Reason {
    Reason::Event {
        name: wait.event_name,
        step: wait.step,
        until: wait.timeout_at.map(|at| at.and_utc()),
    }
}

fn of_batch(batch: AwaitedBatch) -> Reason {
    let count = |count: i64| u64::try_from(count).unwrap_or(0);
    Reason::Batch {
        batch: BatchId(batch.id),
        name: batch.name,
        open: count(batch.open),
        total: count(batch.total),
        oldest: batch.oldest.map(JobId),
    }
}

fn claimed(job: &JobView) -> Reason {
    let in_utc = |time: NaiveDateTime| time.and_utc();
    let note = job.note();
    let beat = |_: &String| job.seconds_since(job.heartbeat_at);
    Reason::Claimed {
        thread: note.thread,
        progress: note.progress,
        since: job.claimed_at.map(in_utc),
        seconds: job.seconds_since(job.claimed_at),
        heartbeat_seconds: job.process_name.as_ref().map(beat),
        cancel_requested_at: job.cancel_requested_at.map(in_utc),
        process_name: job.process_name.clone(),
        hostname: job.hostname.clone(),
        pid: job.pid,
    }
}

impl Explanation {
    /// Returns `true` if the job will run without any intervention.
    pub fn is_on_its_way(&self) -> bool {
        match &self.reason {
            Reason::Ready { obstacles, .. } | Reason::Scheduled { obstacles, .. } => obstacles
                .iter()
                .all(|obstacle| matches!(obstacle, Obstacle::ThreadsBusy { .. })),
            Reason::Blocked { .. }
            | Reason::Batch { .. }
            | Reason::Jobs { .. }
            | Reason::Event { .. }
            | Reason::Limited { .. }
            | Reason::Rate { .. }
            | Reason::Share { .. }
            | Reason::InLine { .. }
            | Reason::Claimed { .. } => true,
            Reason::Ended => self.task.status == TaskStatus::Succeeded,
            Reason::Adrift => false,
        }
    }
}

// --- The delivery of a job, and its limits in time ---

/// The reason for which a job has failed that may have more attempts than it had.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum NotRetried {
    /// The outcome of its last run is not known, and it may only run again
    /// [after a known outcome](Delivery::AfterKnownOutcome).
    OutcomeUnknown,
    /// Its process has died too often while it ran.
    Crashed,
    /// The [last time](crate::Policy::retry_until) for an attempt had passed.
    TooLate,
    /// The job or its policy has made its last error final: by [`JobError::fail`](crate::JobError::fail), by what follows a
    /// timeout, or as the next attempt would have been due too late.
    FinalError,
}

impl NotRetried {
    /// Returns the reason for a job that has failed with attempts left.
    fn of(task: &TaskInfo, last: Option<NaiveDateTime>) -> Self {
        let kind = task
            .error
            .as_deref()
            .and_then(|error| error.split(':').next());
        let has_passed =
            |last: NaiveDateTime| task.finished_at.is_none_or(|at| at.naive_utc() > last);
        match kind {
            Some("outcome_unknown") => NotRetried::OutcomeUnknown,
            Some("crashed") => NotRetried::Crashed,
            _ if last.is_some_and(has_passed) => NotRetried::TooLate,
            _ => NotRetried::FinalError,
        }
    }
}

impl Explanation {
    /// Adds what the row of the job says. A job that has ended has only its delivery.
    fn complete(&mut self, conn: &mut Conn<'_>, job: &JobView) -> QueryResult<()> {
        self.queue_name = Some(job.queue_name.clone());
        self.priority = Some(job.priority);
        let policy = Policy::of_columns(job.policy.as_deref(), job.max_attempts, job.at_most_once);
        self.delivery = Some(policy.delivery.unwrap_or_default());
        self.max_attempts = policy.max_attempts;
        let last = policy.last_retry(job.created_at.unwrap_or(job.now), job.scheduled_at);
        let task = &self.task;
        let has_left = policy.max_attempts.is_some_and(|most| task.attempt < most);
        if task.status == TaskStatus::Failed && has_left {
            self.not_retried = Some(NotRetried::of(task, last));
        }
        if !task.status.has_ended() {
            self.reason = reason(conn, job)?;
            self.retry_until = last.map(|time| time.and_utc());
            if policy.expiry.is_some() {
                self.expires_at = expiries::of_job(conn, job.job_id)?.map(|time| time.and_utc());
            }
        }
        Ok(())
    }
}
