//! Claims: the fence of a claim, what to claim, and what was claimed.

use crate::db::conn::dialect::{Lossy, MaybeLossy};
use crate::db::model::extras::BareArguments;
use crate::db::model::times::{FirstTime, SecondsBetween};
use chrono::NaiveDateTime;
use diesel::backend::Backend;
use diesel::deserialize::{self, FromSql};
use diesel::prelude::*;
use diesel::row::NamedRow;
use diesel::sql_types::{BigInt, Bool, Double, Integer, Nullable, Text, Timestamp};
use std::sync::Arc;

/// A claim and the process that must hold it for the claim to be ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fence {
    pub(crate) process_id: i64,
    pub(crate) claim_id: i64,
}

/// A claim and its job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ClaimOf {
    pub(crate) claim_id: i64,
    pub(crate) job_id: i64,
}

/// The treatment of the row of a job that has finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FinishedRow {
    /// It is kept, with its time.
    Keep,
    /// It is deleted.
    Delete,
}

#[derive(QueryableByName)]
pub(crate) struct EndedClaim {
    #[diesel(sql_type = BigInt)]
    pub(crate) claim_id: i64,
    #[diesel(sql_type = BigInt)]
    pub(crate) job_id: i64,
    /// True if a cancel was requested; it has no effect on a job that has finished.
    #[diesel(sql_type = Bool)]
    pub(crate) cancelled: bool,
    /// The key whose slot it held.
    #[diesel(sql_type = Nullable<Text>)]
    pub(crate) concurrency_key: Option<String>,
    /// The semaphore of Ruby of which it held a slot.
    #[diesel(sql_type = Nullable<BigInt>)]
    pub(crate) semaphore_id: Option<i64>,
}

/// The queues from which a worker takes jobs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ClaimQueues {
    /// All queues, by priority and age across them.
    All,
    /// These queues in this order; by priority and age within each.
    Named(Vec<String>),
}

/// The jobs that a process may claim next when one of its claims ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NextJobs {
    pub(crate) queues: ClaimQueues,
    pub(crate) classes: Vec<String>,
}

/// The claims of a process that promotes blocked jobs: of those that pass their gates, it starts the first at once.
#[derive(Debug)]
pub(crate) struct ClaimsAtGate {
    pub(crate) process_id: i64,
    pub(crate) next: Arc<NextJobs>,
    pub(crate) most: usize,
    /// True if these are more than threads are free.
    pub(crate) is_ahead: bool,
}

/// The rule for ready jobs of the same priority when a slot could be passed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EqualJobs {
    /// They wait until no slot is passed on.
    Wait,
    /// They go first: the slot is passed on only if there are none.
    GoFirst,
}

/// The jobs that a process has claimed next.
#[derive(Debug, Default)]
pub(crate) struct NextClaims {
    /// By priority, and then age.
    pub(crate) jobs: Vec<Claimed>,
    /// True if slots were left, and a promotion of their keys was requested.
    pub(crate) has_requested: bool,
}

impl NextClaims {
    pub(crate) fn new(mut jobs: Vec<Claimed>, has_requested: bool) -> Self {
        jobs.sort_unstable_by_key(|job| (job.priority, job.job_id));
        NextClaims {
            jobs,
            has_requested,
        }
    }
}

/// The jobs that a claim marks as started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Begins {
    /// All: a thread is idle for each.
    All,
    /// All but the cautious ones, as more are claimed than threads are idle.
    NotCautious,
    /// The same, and those that are cautious only because they run at most once or have passed a line: all start within moments.
    OnceToo,
}

impl Begins {
    /// Returns the number of it in a statement.
    pub(crate) fn number(self) -> i32 {
        match self {
            Begins::All => 0,
            Begins::NotCautious => 1,
            Begins::OnceToo => 2,
        }
    }

    /// Returns an expression: the ready execution `ready` is one that is not marked by a claim with the number
    /// `begins`, unless that marks all. Only for cautious ones is the job's row read.
    pub(crate) fn is_left(ready: &str, begins: &str) -> String {
        format!(
            "({ready}.cautious AND NOT ({begins} = 2 AND coalesce((SELECT {ONLY_ONCE} FROM solid_queue_jobs j \
             WHERE j.id = {ready}.job_id), false)))"
        )
    }
}

/// A condition: the job `j` uses a share of its queue, as its [line](crate::db::model::gate_line::FAIR) says, or it may, as one of an
/// ordered key.
const HAS_SHARE: &str =
    "substr(j.gate, 1, 1) = '\u{1d}' OR (substr(j.gate, 1, 1) = '\u{1e}' AND j.tenant IS NOT NULL)";

/// A condition: the job `j` is cautious only because it runs at most once, or has passed a line.
const ONLY_ONCE: &str = "(j.at_most_once OR j.gate IS NOT NULL) AND j.crash_count = 0 AND coalesce(j.max_crashes, 1) > 0";

/// A request to claim jobs for a process.
#[derive(Debug)]
pub(crate) struct ClaimRequest<'a> {
    pub(crate) process_id: i64,
    pub(crate) queues: &'a ClaimQueues,
    /// Rows of other classes are left for a worker that has them. Rows made by Rails name no class
    /// here and are taken.
    pub(crate) classes: &'a [String],
    pub(crate) max_jobs: usize,
    pub(crate) begins: Begins,
    /// The cursors where the search starts, one per queue in order, or one for all together. Where
    /// there is none, it starts at the beginning.
    pub(crate) from: &'a [Cursor],
    /// The id after which to look for keys to promote.
    pub(crate) wanted_after: i64,
}

/// The part of the ready executions that a claim reads to get past those of paused classes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PausedScan {
    /// It takes what comes at the cursors or after them, on SQLite as well.
    FromCursors,
    /// It takes what comes before the cursors, of the executions whose id is greater than this.
    NewerThan(i64),
}

/// A position in the order of ready executions.
///
/// Postgres keeps taken rows in the index until the next vacuum, and a search from the beginning
/// has to pass all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Cursor {
    pub(crate) priority: i32,
    pub(crate) job_id: i64,
}

impl Cursor {
    /// Before all executions.
    pub(crate) const BEGINNING: Cursor = Cursor {
        priority: i32::MIN,
        job_id: i64::MIN,
    };

    /// After all executions.
    pub(crate) const END: Cursor = Cursor {
        priority: i32::MAX,
        job_id: i64::MAX,
    };

    /// Returns the position of a claimed job.
    pub(crate) fn of(job: &Claimed) -> Self {
        Cursor {
            priority: job.priority,
            job_id: job.job_id,
        }
    }
}

impl ClaimRequest<'_> {
    /// Returns the queues in their order, each with its cursor. All queues together are one with an
    /// empty name.
    pub(crate) fn slots(&self) -> Vec<(&str, Cursor)> {
        let names = self.queues.names().into_iter().enumerate();
        let from = |slot: usize| self.from.get(slot).copied().unwrap_or(Cursor::BEGINNING);
        names.map(|(slot, name)| (name, from(slot))).collect()
    }
}

impl ClaimQueues {
    /// Returns the names, or one empty name for all queues together.
    pub(crate) fn names(&self) -> Vec<&str> {
        match self {
            ClaimQueues::All => vec![""],
            ClaimQueues::Named(names) => names.iter().map(|name| &**name).collect(),
        }
    }
}

/// The result of a claim.
#[derive(Debug)]
pub(crate) enum Claims {
    /// The process holds these jobs now.
    Held {
        /// The most important first.
        jobs: Vec<Claimed>,
        /// True if blocked jobs must be promoted, see [`promote`](crate::db::transition::promote).
        is_wanted: bool,
    },
    /// The process is not registered, or draining: nothing was claimed.
    Unregistered,
}

/// A job that a process holds.
#[derive(Debug, Clone, Default)]
pub(crate) struct Claimed {
    /// The fence: every change of the job names it.
    pub(crate) claim_id: i64,
    /// True if it is marked as started: a thread may run it at once.
    pub(crate) begun: bool,
    /// The seconds that it had been ready when it was claimed, by the database's clock. `None` if
    /// another program made it ready at no calendar time.
    pub(crate) waited: Option<f64>,
    pub(crate) job_id: i64,
    pub(crate) queue_name: String,
    pub(crate) class_name: String,
    pub(crate) arguments: String,
    pub(crate) priority: i32,
    pub(crate) attempts: i32,
    pub(crate) at_most_once: bool,
    /// True if it has a rate.
    pub(crate) has_rate: bool,
    /// True if it uses a share of its queue.
    pub(crate) has_share: bool,
    pub(crate) created_at: NaiveDateTime,
    pub(crate) scheduled_at: Option<NaiveDateTime>,
    pub(crate) max_attempts: Option<i32>,
    pub(crate) policy: Option<String>,
    pub(crate) unique_id: Option<String>,
    /// True if it holds a slot of its concurrency key.
    pub(crate) is_limited: bool,
    /// True if an earlier run was ended by its process, or crashed.
    pub(crate) has_run: bool,
    /// Empty if there is none. Any program may have written it.
    pub(crate) traceparent: String,
    pub(crate) batch_id: Option<i64>,
    /// True if other jobs waited for it when it was claimed.
    pub(crate) has_dependents: bool,
    /// True if blocked jobs of any key must be promoted.
    pub(crate) is_wanted: bool,
    /// True if other jobs were picked too, and blocked by their limit.
    pub(crate) has_blocked: bool,
}

/// The expressions of a row that is read as [`Claimed`], beside those of its job `j`. What is NULL counts as false.
pub(crate) struct ClaimedRow<'s> {
    pub(crate) claim_id: &'s str,
    pub(crate) waited: &'s str,
    /// The time of the enqueue, or now if that is no calendar time.
    pub(crate) created_at: &'s str,
    pub(crate) begun: &'s str,
    pub(crate) is_wanted: &'s str,
    pub(crate) has_blocked: &'s str,
}

impl ClaimedRow<'_> {
    /// Returns the columns in the order in which they are read. All that is true or false is in one: each column of a job
    /// costs the server and the worker more than its bit. There may be no job.
    pub(crate) fn columns(&self) -> String {
        let flags = [
            self.begun,
            self.is_wanted,
            self.has_blocked,
            "j.at_most_once",
            "j.concurrency_key IS NOT NULL",
            "j.last_claim_id IS NOT NULL OR j.crash_count > 0",
            "j.has_dependents",
            "j.rates IS NOT NULL",
            HAS_SHARE,
        ];
        let flags = flags.iter().enumerate();
        let flags =
            flags.map(|(bit, flag)| format!("CASE WHEN {flag} THEN {} ELSE 0 END", 1 << bit));
        format!(
            "{} AS claim_id, coalesce(j.id, 0) AS job_id, {} AS flags, {} AS waited, {} AS created_at, \
             coalesce(j.queue_name, '') AS queue_name, coalesce(j.class_name, '') AS class_name, \
             coalesce(j.arguments, 'null') AS arguments, coalesce(j.priority, 0) AS priority, coalesce(j.attempts, 0) AS attempts, \
             {{moment j.scheduled_at}} AS scheduled_at, j.max_attempts, j.policy, j.unique_id, j.traceparent, j.batch_id",
            self.claim_id,
            flags.collect::<Vec<_>>().join(" + "),
            self.waited,
            self.created_at,
        )
    }
}

/// Reads the columns of [`ClaimedRow`] by their places, since a look for its name takes each column as long as the rest.
impl<DB: Backend> QueryableByName<DB> for Claimed
where
    i64: FromSql<BigInt, DB>,
    i32: FromSql<Integer, DB>,
    String: FromSql<Text, DB>,
    NaiveDateTime: FromSql<Timestamp, DB>,
    Lossy: FromSql<Text, DB>,
    FirstTime: FromSql<Timestamp, DB>,
    SecondsBetween: FromSql<Nullable<Double>, DB>,
{
    fn build<'a>(row: &impl NamedRow<'a, DB>) -> deserialize::Result<Self> {
        let flags: i32 = row.get_value::<Integer, _, _>(2)?;
        let is = |bit: u32| flags & (1 << bit) != 0;
        let text = |place| row.get_value::<Text, Lossy, usize>(place).map(String::from);
        let traceparent: MaybeLossy = row.get_value::<Nullable<Text>, _, _>(14)?;
        Ok(Claimed {
            claim_id: row.get_value::<BigInt, _, _>(0)?,
            job_id: row.get_value::<BigInt, _, _>(1)?,
            begun: is(0),
            is_wanted: is(1),
            has_blocked: is(2),
            at_most_once: is(3),
            is_limited: is(4),
            has_run: is(5),
            has_dependents: is(6),
            has_rate: is(7),
            has_share: is(8),
            waited: row.get_value::<Nullable<Double>, SecondsBetween, _>(3)?.0,
            created_at: row.get_value::<Timestamp, FirstTime, _>(4)?.0,
            queue_name: text(5)?,
            class_name: text(6)?,
            arguments: row.get_value::<Text, BareArguments, _>(7)?.into(),
            priority: row.get_value::<Integer, _, _>(8)?,
            attempts: row.get_value::<Integer, _, _>(9)?,
            scheduled_at: row.get_value::<Nullable<Timestamp>, _, _>(10)?,
            max_attempts: row.get_value::<Nullable<Integer>, _, _>(11)?,
            policy: row.get_value::<Nullable<Text>, _, _>(12)?,
            unique_id: row.get_value::<Nullable<Text>, _, _>(13)?,
            traceparent: Option::from(traceparent).unwrap_or_default(),
            batch_id: row.get_value::<Nullable<BigInt>, _, _>(15)?,
        })
    }
}

impl Claimed {
    /// Returns whether its outcome must soon be written: something may wait for it, or it would be unknown after a crash.
    pub(crate) fn is_awaited(&self) -> bool {
        let has_followers = self.is_limited || self.batch_id.is_some() || self.has_dependents;
        has_followers || self.at_most_once
    }

    /// Returns the number of the attempt that its next run is, starting at 1.
    pub(crate) fn attempt(&self) -> u32 {
        u32::try_from(self.attempts).unwrap_or(0).saturating_add(1)
    }

    /// Returns whether it was enqueued with an expiry, and this is its first attempt.
    pub(crate) fn may_expire(&self) -> bool {
        let policy = self.policy.as_deref();
        self.attempts == 0 && policy.is_some_and(|text| text.contains("\"expiry\""))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outcome_is_awaited_if_something_follows_or_it_would_be_lost() {
        let none = Claimed::default;
        let awaited = [
            Claimed {
                is_limited: true,
                ..none()
            },
            Claimed {
                batch_id: Some(1),
                ..none()
            },
            Claimed {
                has_dependents: true,
                ..none()
            },
            Claimed {
                at_most_once: true,
                ..none()
            },
        ];
        assert!(awaited.iter().all(Claimed::is_awaited));
        assert!(!none().is_awaited());
    }
}
