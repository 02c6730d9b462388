//! A job to insert, and the result of the insert.

use crate::db::model::extras::Follows;
use crate::db::model::rate::NewRate;
use chrono::NaiveDateTime;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// One job to insert.
#[doc(hidden)]
#[derive(Debug, Clone)]
pub struct NewRow {
    pub(crate) queue_name: String,
    pub(crate) class_name: String,
    pub arguments: String,
    pub(crate) priority: i32,
    pub(crate) active_job_id: Option<String>,
    /// Takes precedence over `delay`.
    pub(crate) at: Option<NaiveDateTime>,
    /// Microseconds from the database's current time.
    pub(crate) delay: Option<i64>,
    pub(crate) idempotency_key: Option<String>,
    pub(crate) max_attempts: Option<i32>,
    pub(crate) max_crashes: Option<i32>,
    pub(crate) at_most_once: bool,
    pub(crate) policy: Option<String>,
    /// The trace context of the enqueue, in the form that [`Traceparent`] reads.
    pub(crate) traceparent: Option<String>,
    /// The customer, or whatever else shares are for.
    pub(crate) tenant: Option<String>,
    /// True if it has a tenant, and the threads of its queue are shared between tenants.
    pub(crate) is_shared: bool,
    pub unique_id: Option<String>,
    pub(crate) unique_scope: UniqueScope,
    pub(crate) on_conflict: OnConflict,
    /// The priority becomes the time minus this many seconds; see [`rank_by_time`].
    pub(crate) ahead_by: Option<i64>,
    pub(crate) limit: Option<NewLimit>,
    pub(crate) rates: Vec<NewRate>,
    pub(crate) expiry: Option<NewExpiry>,
    /// True if the class was given by name: such a job replaces none of an internal class.
    pub(crate) by_name: bool,
    pub(crate) left_out: LeftOut,
    /// Only counts where [`admit`](crate::db::transition::enqueue::admit) inserts the job.
    pub(crate) quota: Option<NewQuota>,
    /// The batch that the job belongs to.
    pub(crate) batch_id: Option<i64>,
    /// The jobs and batches that it waits for.
    pub(crate) follows: Option<Box<Follows>>,
    /// True if the caller connects it with what it waits for, which the same transaction inserts.
    pub(crate) is_connected_later: bool,
}

/// The values that an enqueue by the name of a class left out. They are those of the class, if a worker has stored it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct LeftOut {
    pub(crate) queue: bool,
    pub(crate) priority: bool,
    pub(crate) delivery: bool,
    pub(crate) rates: bool,
    /// The bytes of the arguments, tags and metadata, if no maximum was given.
    pub(crate) maximum_of: Option<usize>,
}

/// By when a job must have started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NewExpiry {
    At(NaiveDateTime),
    /// So long after it is due.
    In(Duration),
}

/// The priority of blocked executions of ordered jobs. They come by age, whatever the priorities of
/// their jobs are, and none is promoted while another transaction has locked the one before it.
pub(crate) const IN_ORDER: i32 = i32::MIN;

/// The value of `concurrency_conflict` of a job of an ordered key.
pub const ORDERED: &str = "ordered";

/// The limit of the jobs with the same key that may be ready or claimed at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NewLimit {
    /// The key with its group: `import/7`.
    pub(crate) key: String,
    pub(crate) slots: i32,
    /// True if a job that finds no slot ends instead of waiting.
    pub(crate) discards: bool,
    /// True if its jobs run in the order of their enqueue, and keep their place between attempts.
    pub(crate) ordered: bool,
}

impl NewRow {
    /// Returns a job with default options.
    pub(crate) fn new(class: String, arguments: String, queue: String, priority: i32) -> Self {
        NewRow {
            queue_name: queue,
            class_name: class,
            arguments,
            priority,
            active_job_id: None,
            at: None,
            delay: None,
            idempotency_key: None,
            max_attempts: None,
            max_crashes: None,
            at_most_once: false,
            policy: None,
            traceparent: None,
            tenant: None,
            is_shared: false,
            unique_id: None,
            unique_scope: UniqueScope::default(),
            on_conflict: OnConflict::default(),
            ahead_by: None,
            limit: None,
            rates: Vec::new(),
            expiry: None,
            by_name: false,
            left_out: LeftOut::default(),
            quota: None,
            batch_id: None,
            follows: None,
            is_connected_later: false,
        }
    }

    /// Returns whether the job waits for jobs or batches: it is inserted blocked.
    pub(crate) fn is_dependent(&self) -> bool {
        let follows = self.follows.as_ref();
        self.is_connected_later || follows.is_some_and(|follows| !follows.parents.is_empty())
    }

    /// Returns whether the new job must not be marked as started before a thread is free for it: `{cautious}` of its row.
    pub(crate) fn is_cautious(&self) -> bool {
        self.at_most_once || self.max_crashes == Some(0)
    }

    /// Returns whether the job waits until a promotion lets it through.
    pub(crate) fn is_gated(&self) -> bool {
        self.limit.is_some() || self.has_line()
    }

    pub(crate) fn rates_column(&self) -> Option<String> {
        rates_to_column(&self.rates)
    }

    pub(crate) fn concurrency_key(&self) -> Option<&str> {
        self.limit.as_ref().map(|limit| &*limit.key)
    }

    pub(crate) fn concurrency_slots(&self) -> Option<i32> {
        self.limit.as_ref().map(|limit| limit.slots)
    }

    pub(crate) fn concurrency_conflict(&self) -> Option<&'static str> {
        let limit = self.limit.as_ref()?;
        match (limit.discards, limit.ordered) {
            (true, _) => Some("discard"),
            (false, true) => Some(ORDERED),
            (false, false) => None,
        }
    }

    /// Returns by what the insert may find an existing job: a kind and a value.
    pub(crate) fn names(&self) -> impl Iterator<Item = (bool, &str)> {
        let key = self.idempotency_key.as_deref().map(|key| (true, key));
        let id = self.unique_id.as_deref().map(|id| (false, id));
        key.into_iter().chain(id)
    }

    /// Returns whether the insert may find an existing job.
    pub(crate) fn is_named(&self) -> bool {
        self.idempotency_key.is_some() || self.unique_id.is_some()
    }
}

/// The result of an enqueue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EnqueueOutcome {
    /// The job is new.
    New,
    /// The job is new, and starts when the one that runs with the same unique id has ended.
    Again,
    /// A job with this idempotency key, or one that holds this unique id, existed already and is
    /// unchanged.
    Existing,
    /// The job that holds this unique id was waiting, and has been replaced by the new one.
    Replaced,
    /// A job that holds this unique id exists already, and [`OnConflict::Refuse`] was set.
    Refused,
    /// The job exceeded its [`Quota`](crate::Quota) and was discarded: its row is new, and it never
    /// runs.
    Shed,
}

/// The result of an insert.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Inserted {
    pub(crate) id: i64,
    /// `false` if a job existed already.
    pub(crate) is_new: bool,
    pub(crate) outcome: EnqueueOutcome,
}

impl Inserted {
    pub(crate) fn new(id: i64, outcome: EnqueueOutcome) -> Self {
        Inserted {
            id,
            is_new: matches!(
                outcome,
                EnqueueOutcome::New | EnqueueOutcome::Again | EnqueueOutcome::Shed
            ),
            outcome,
        }
    }
}

/// The time for which a job holds its unique id.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum UniqueScope {
    /// Until a worker has claimed it: one job may run while the next waits. A job that waits for
    /// another attempt holds it too, unless a newer job has taken it meanwhile.
    WhileWaiting,
    /// Until it has finished, failed permanently, or was cancelled or discarded.
    #[default]
    UntilFinished,
    /// Until its result expires, see [`Policy::keep_result`](crate::Policy::keep_result).
    UntilResultExpires,
}

impl UniqueScope {
    pub(crate) fn column(self) -> &'static str {
        match self {
            UniqueScope::WhileWaiting => "while_waiting",
            UniqueScope::UntilFinished => "until_finished",
            UniqueScope::UntilResultExpires => "until_result_expires",
        }
    }

    pub(crate) fn of_column(text: &str) -> Self {
        match text {
            "while_waiting" => UniqueScope::WhileWaiting,
            "until_result_expires" => UniqueScope::UntilResultExpires,
            _ => UniqueScope::UntilFinished,
        }
    }

    /// Returns whether a job in this state holds its unique id.
    pub(crate) fn holds(self, standing: HolderState) -> bool {
        match standing {
            HolderState::Waiting(_) => true,
            HolderState::Claimed => self != UniqueScope::WhileWaiting,
            HolderState::Kept => self == UniqueScope::UntilResultExpires,
            HolderState::Ended => false,
        }
    }
}

/// The policy of an enqueue whose unique id another job holds.
///
/// ```
/// # use diesel::prelude::*;
/// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
/// # windlass::migrate(&mut conn).unwrap();
/// use windlass::{NewJob, OnConflict, Policy};
///
/// let policy = Policy::new().on_conflict(OnConflict::Existing);
/// let import = || NewJob::of_class("import", "{}").unique_id("users").policy(policy.clone());
/// let first = import().enqueue(&mut conn)?;
/// let second = import().enqueue(&mut conn)?;
/// assert_eq!((second.id, second.is_new), (first.id, false));
/// # Ok::<(), windlass::Error>(())
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum OnConflict {
    /// Leaves the existing job as it is and returns it. If it waits, it does not start before the
    /// enqueueing transaction has ended, so it sees what that transaction has written.
    #[default]
    Existing,
    /// Refuses, with an error that names the existing job.
    Refuse,
    /// Replaces a waiting job's arguments, time and everything else with those of the new one: of
    /// many in a row, only the last counts. If the existing job runs already, the new one runs
    /// after it.
    Replace,
    /// If the existing job runs already, runs the new one after it, once for any number of
    /// requests. If it waits, changes nothing.
    RunAgain,
}

/// The state of the job that has a unique id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HolderState {
    /// It has not started; its execution is in this table.
    Waiting(&'static str),
    /// A process holds it.
    Claimed,
    /// It has ended, and its result is kept.
    Kept,
    /// It has ended, or it does not exist.
    Ended,
}

// --- A quota as an enqueue passes it, and what is left of it ---

/// The name of a quota, and its limits.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct NewQuota {
    pub(crate) name: String,
    pub(crate) limits: QuotaLimits,
}

/// The limits of a quota, as they are stored beside its counts.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct QuotaLimits {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) waiting: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) per_second: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) per_minute: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) per_day: Option<i64>,
    /// True if jobs that exceed the quota are discarded, instead of an error.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) shed: bool,
}

impl NewQuota {
    /// Returns the value of the column `quota` of a class.
    pub(crate) fn to_column(&self) -> Option<String> {
        serde_json::to_string(self).ok()
    }

    pub(crate) fn of_column(text: Option<&str>) -> Option<Self> {
        serde_json::from_str(text?).ok()
    }
}

impl QuotaLimits {
    pub(crate) fn to_column(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Returns the limits that are set, in the order in which they are asked.
    pub(crate) fn set(&self) -> impl Iterator<Item = (Per, i64)> {
        let all = [
            (Per::Day, self.per_day),
            (Per::Minute, self.per_minute),
            (Per::Second, self.per_second),
            (Per::Waiting, self.waiting),
        ];
        let set = |(per, limit): (Per, Option<i64>)| Some((per, limit?));
        all.into_iter().filter_map(set)
    }

    pub(crate) fn of_column(text: Option<&str>) -> Self {
        let limits = text.and_then(|text| serde_json::from_str(text).ok());
        limits.unwrap_or_default()
    }
}

/// The jobs that a limit of a quota counts. In the order in which they are asked: of several that refuse
/// jobs, the one that refuses them longest comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Per {
    Day,
    Minute,
    Second,
    Waiting,
}

impl Per {
    /// Returns the value of the column `per`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Per::Day => "day",
            Per::Minute => "minute",
            Per::Second => "second",
            Per::Waiting => "waiting",
        }
    }

    /// Returns the length of a window, if there are windows.
    pub(crate) fn window(self) -> Option<Duration> {
        match self {
            Per::Day => Some(Duration::from_secs(24 * 3600)),
            Per::Minute => Some(Duration::from_secs(60)),
            Per::Second => Some(Duration::from_secs(1)),
            Per::Waiting => None,
        }
    }

    pub(crate) fn counts(self) -> &'static str {
        match self {
            Per::Day => "enqueues per day",
            Per::Minute => "enqueues per minute",
            Per::Second => "enqueues per second",
            Per::Waiting => "waiting jobs",
        }
    }
}

/// A limit that an enqueue exceeds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct QuotaRefusal {
    pub(crate) class: String,
    pub(crate) quota: String,
    pub(crate) limit: u64,
    pub(crate) counts: &'static str,
    pub(crate) wanted: u64,
    pub(crate) retry_after: Option<Duration>,
}

impl QuotaRefusal {
    /// Returns why `wanted` jobs are refused. `left` is the time to the next window.
    pub(crate) fn new(
        class: &str,
        quota: &NewQuota,
        (per, limit): (Per, i64),
        wanted: i64,
        left: Option<Duration>,
    ) -> Self {
        // Not a moment before the next window starts.
        let after = |left: Duration| Duration::from_secs(left.as_secs() + 1);
        QuotaRefusal {
            class: class.to_owned(),
            quota: quota.name.clone(),
            limit: u64::try_from(limit).unwrap_or(0),
            counts: per.counts(),
            wanted: u64::try_from(wanted).unwrap_or(0),
            retry_after: left.filter(|_| wanted <= limit).map(after),
        }
    }
}

/// `the quota `mail` allows 100 enqueues per minute`.
impl fmt::Display for QuotaRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let QuotaRefusal {
            quota,
            limit,
            counts,
            ..
        } = self;
        write!(f, "the quota `{quota}` allows {limit} {counts}")
    }
}

/// Returns rates as they are stored, or `None` if there are none.
pub(crate) fn rates_to_column(rates: &[NewRate]) -> Option<String> {
    let text = (!rates.is_empty()).then(|| serde_json::to_string(rates));
    text.and_then(|text| text.ok())
}

// --- The concurrency keys of executions that wait for something else than a slot ---

/// The key of executions that wait for the job before them, with the same unique id.
pub const UNIQUE_SUCCESSOR: &str = " ";

/// The key of executions that wait for jobs and batches.
pub const WAITS_FOR_PARENTS: &str = "  ";

/// The key of executions that wait for an event.
pub const WAITS_FOR_EVENT: &str = "   ";

/// The key of executions of jobs with rates, whose line is in a column of its own.
pub const WAITS_AT_GATE: &str = "    ";

/// Returns whether jobs that are blocked under this key wait for other jobs, batches or events, or in a line
/// with rates, and not for a slot alone.
pub fn waits_for_others(key: &str) -> bool {
    [
        UNIQUE_SUCCESSOR,
        WAITS_FOR_PARENTS,
        WAITS_FOR_EVENT,
        WAITS_AT_GATE,
    ]
    .contains(&key)
}

/// Returns the condition for that.
pub fn waits_for_others_sql(key: &str) -> String {
    format!(
        "({key} IN ('{UNIQUE_SUCCESSOR}', '{WAITS_FOR_PARENTS}', '{WAITS_FOR_EVENT}', '{WAITS_AT_GATE}'))"
    )
}
