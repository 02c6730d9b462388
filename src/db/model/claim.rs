//! Claims: the fence of a claim, what to claim, and what was claimed.

use crate::db::conn::dialect::Lossy;
use crate::db::model::extras::BareArguments;
#[cfg(feature = "sqlite")]
use chrono::NaiveDate;
use chrono::NaiveDateTime;
use diesel::deserialize::{self, FromSql, FromSqlRow};
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Bool, Double, Integer, Nullable, Text, Timestamp};

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
    /// The same, and those that are cautious only because they run at most once: all start within moments.
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

/// A condition: the job `j` is cautious only because it runs at most once.
const ONLY_ONCE: &str = "j.at_most_once AND j.crash_count = 0 AND coalesce(j.max_crashes, 1) > 0";

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
#[derive(Debug, Clone, QueryableByName)]
pub(crate) struct Claimed {
    /// The fence: every change of the job names it.
    #[diesel(sql_type = BigInt)]
    pub(crate) claim_id: i64,
    /// True if it is marked as started: a thread may run it at once.
    #[diesel(sql_type = Bool)]
    pub(crate) begun: bool,
    /// The seconds that it had been ready when it was claimed, by the database's clock. `None` if
    /// another program made it ready at no calendar time.
    #[diesel(sql_type = Nullable<Double>, deserialize_as = SecondsBetween)]
    pub(crate) waited: Option<f64>,
    #[diesel(sql_type = BigInt)]
    pub(crate) job_id: i64,
    #[diesel(sql_type = Text, deserialize_as = Lossy)]
    pub(crate) queue_name: String,
    #[diesel(sql_type = Text, deserialize_as = Lossy)]
    pub(crate) class_name: String,
    #[diesel(sql_type = Text, deserialize_as = BareArguments)]
    pub(crate) arguments: String,
    #[diesel(sql_type = Integer)]
    pub(crate) priority: i32,
    #[diesel(sql_type = Integer)]
    pub(crate) attempts: i32,
    #[diesel(sql_type = Bool)]
    pub(crate) at_most_once: bool,
    #[diesel(sql_type = Timestamp, deserialize_as = FirstTime)]
    pub(crate) created_at: NaiveDateTime,
    #[diesel(sql_type = Nullable<Timestamp>)]
    pub(crate) scheduled_at: Option<NaiveDateTime>,
    #[diesel(sql_type = Nullable<Integer>)]
    pub(crate) max_attempts: Option<i32>,
    #[diesel(sql_type = Nullable<Text>)]
    pub(crate) policy: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    pub(crate) unique_id: Option<String>,
    /// True if it holds a slot of its concurrency key.
    #[diesel(sql_type = Bool)]
    pub(crate) is_limited: bool,
    /// True if an earlier run was ended by its process, or crashed.
    #[diesel(sql_type = Bool)]
    pub(crate) has_run: bool,
    /// Empty if there is none. Any program may have written it.
    #[diesel(sql_type = Text, deserialize_as = Lossy)]
    pub(crate) traceparent: String,
    #[diesel(sql_type = Nullable<BigInt>)]
    pub(crate) batch_id: Option<i64>,
    /// True if other jobs waited for it when it was claimed.
    #[diesel(sql_type = Bool)]
    pub(crate) has_dependents: bool,
    /// True if blocked jobs of any key must be promoted.
    #[diesel(sql_type = Bool)]
    pub(crate) is_wanted: bool,
    /// True if other jobs were picked too, and blocked by their limit.
    #[diesel(sql_type = Bool)]
    pub(crate) has_blocked: bool,
}

impl Claimed {
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

// --- Times that a claim reads ---

#[cfg(feature = "sqlite")]
type SqliteValue<'v> = <diesel::sqlite::Sqlite as diesel::backend::Backend>::RawValue<'v>;

/// Parses a timestamp in the form that Windlass and Rails write, by its places, or in another form of ISO
/// 8601, which another program may have written. Returns `None` for what is no calendar time.
#[cfg(feature = "sqlite")]
fn parse(text: &str) -> Option<NaiveDateTime> {
    parse_usual(text).or_else(|| parse_other(text.trim()))
}

#[cfg(feature = "sqlite")]
fn parse_usual(text: &str) -> Option<NaiveDateTime> {
    let number = |from: usize, to: usize| text.get(from..to)?.parse::<u32>().ok();
    if text.len() != 26 || text.as_bytes()[19] != b'.' {
        return None;
    }
    let year = i32::try_from(number(0, 4)?).ok()?;
    let date = NaiveDate::from_ymd_opt(year, number(5, 7)?, number(8, 10)?)?;
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    date.and_hms_micro_opt(hour, minute, second, number(20, 26)?)
}

#[cfg(feature = "sqlite")]
fn parse_other(text: &str) -> Option<NaiveDateTime> {
    let text = text.replacen('T', " ", 1).replacen('Z', "+00:00", 1);
    let zoned = |form: &&str| {
        let time = chrono::DateTime::parse_from_str(&text, form).ok()?;
        Some(time.naive_utc())
    };
    let plain = |form: &&str| NaiveDateTime::parse_from_str(&text, form).ok();
    let day = || NaiveDate::parse_from_str(&text, "%Y-%m-%d").ok();
    let forms = ["%Y-%m-%d %H:%M:%S%.f%#z", "%Y-%m-%d %H:%M%#z"];
    let zoned = forms.iter().find_map(zoned);
    let forms = ["%Y-%m-%d %H:%M:%S%.f", "%Y-%m-%d %H:%M"];
    let plain = || forms.iter().find_map(plain);
    zoned
        .or_else(plain)
        .or_else(|| day().map(NaiveDateTime::from))
}

/// Returns two timestamps that were selected as one text with `/` between them.
#[cfg(feature = "sqlite")]
fn parse_two(mut value: SqliteValue<'_>) -> [Option<NaiveDateTime>; 2] {
    let text = String::from_utf8_lossy(value.read_blob());
    match text.rsplit_once('/') {
        Some((one, other)) => [parse(one), parse(other)],
        None => [None, None],
    }
}

/// A time; on SQLite the first of two, with `/` between them, that is a calendar time.
#[derive(Debug, FromSqlRow)]
pub(crate) struct FirstTime(NaiveDateTime);

impl From<FirstTime> for NaiveDateTime {
    fn from(time: FirstTime) -> Self {
        time.0
    }
}

#[cfg(feature = "postgres")]
impl FromSql<Timestamp, diesel::pg::Pg> for FirstTime {
    fn from_sql(value: diesel::pg::PgValue<'_>) -> deserialize::Result<Self> {
        FromSql::<Timestamp, diesel::pg::Pg>::from_sql(value).map(FirstTime)
    }
}

#[cfg(feature = "sqlite")]
impl FromSql<Timestamp, diesel::sqlite::Sqlite> for FirstTime {
    fn from_sql(value: SqliteValue<'_>) -> deserialize::Result<Self> {
        let [one, other] = parse_two(value);
        Ok(FirstTime(one.or(other).unwrap_or_default()))
    }
}

/// The seconds between two times, `None` if one of them is no calendar time. On Postgres a number; on
/// SQLite both times as one text, with `/` between them.
#[derive(Debug, FromSqlRow)]
pub(crate) struct SecondsBetween(Option<f64>);

impl From<SecondsBetween> for Option<f64> {
    fn from(seconds: SecondsBetween) -> Self {
        seconds.0
    }
}

#[cfg(feature = "postgres")]
impl FromSql<Double, diesel::pg::Pg> for SecondsBetween {
    fn from_sql(value: diesel::pg::PgValue<'_>) -> deserialize::Result<Self> {
        let seconds: f64 = FromSql::<Double, diesel::pg::Pg>::from_sql(value)?;
        Ok(SecondsBetween(Some(seconds)))
    }
}

#[cfg(feature = "sqlite")]
impl FromSql<Double, diesel::sqlite::Sqlite> for SecondsBetween {
    fn from_sql(value: SqliteValue<'_>) -> deserialize::Result<Self> {
        let [from, to] = parse_two(value);
        let between = to.zip(from).map(|(to, from)| to - from);
        Ok(SecondsBetween(between.map(|time| time.as_seconds_f64())))
    }
}

impl<DB> FromSql<Nullable<Double>, DB> for SecondsBetween
where
    DB: diesel::backend::Backend,
    SecondsBetween: FromSql<Double, DB>,
{
    fn from_sql(value: DB::RawValue<'_>) -> deserialize::Result<Self> {
        <SecondsBetween as FromSql<Double, DB>>::from_sql(value)
    }

    fn from_nullable_sql(value: Option<DB::RawValue<'_>>) -> deserialize::Result<Self> {
        value.map_or(Ok(SecondsBetween(None)), Self::from_sql)
    }
}

#[cfg(all(test, feature = "sqlite"))]
mod tests {
    use super::*;

    #[test]
    fn only_calendar_times_are_parsed() {
        for (text, read) in [
            ("2026-02-28 23:59:58.000250", "2026-02-28 23:59:58.000250"),
            ("2026-02-28 23:59:58", "2026-02-28 23:59:58"),
            ("2026-02-28 23:59:58.5", "2026-02-28 23:59:58.500"),
            ("2026-02-28T23:59:58.000250Z", "2026-02-28 23:59:58.000250"),
            ("2026-02-28 23:59:58.1 +01:00", "2026-02-28 22:59:58.100"),
            ("2026-02-28T23:59-02:30", "2026-03-01 02:29:00"),
            ("2026-02-28 23:59", "2026-02-28 23:59:00"),
            ("2026-02-28", "2026-02-28 00:00:00"),
            // As long as the usual form.
            ("2026-02-28 23:59:58.12 +00", "2026-02-28 23:59:58.120"),
            ("2026-02-28T23:59:58 +00:00", "2026-02-28 23:59:58"),
        ] {
            let time = parse(text).map(|time| time.to_string());
            assert_eq!(time.unwrap_or_default(), read, "{text}");
        }
        for text in [
            "",
            "infinity",
            "2026-02-30 00:00:00.000000",
            "2026-02-28 24:00:00.000000",
            "2026-02-2\u{e9} 23:59:58",
            "1234.5",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
