//! Failed jobs, grouped by what their failures have in common.

use crate::admin::bulk::change::Change;
use crate::admin::jobs::{Changed, Jobs};
use crate::clock;
use crate::db::model::fingerprint::shape;
use crate::db::model::outcome;
use crate::db::query::jobs::{self, GroupRow};
use crate::db::table::failed::{self, FailureRow};
use crate::db::transition::operate::{self, AtMostOnce, RetrySpread};
use crate::db::{AsConn, Conn, own};
use crate::error::{Error, ErrorContext, Result};
use crate::job::JobId;
use chrono::{DateTime, NaiveDateTime, Utc};
use diesel::QueryResult;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::json;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::ControlFlow;
use std::str::FromStr;
use std::time::Duration;

/// The most fingerprints that are read. Of these, the ones seen last are shown.
const MOST_FINGERPRINTS: usize = 1_000;

/// The number up to which the jobs of a group are counted.
const MOST_COUNTED: u64 = 10_000;

/// The most failures without a stored fingerprint that are read: the newest ones.
const MOST_READ: usize = 1_000;

/// Failed jobs whose failures have the class, the kind and the shape of the message in common.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct FailedGroup {
    /// A hash of what they have in common, by which [`Jobs::fingerprint`](crate::Jobs::fingerprint)
    /// selects them.
    pub fingerprint: String,
    /// Their class.
    pub class_name: String,
    /// The kind of their failures.
    pub kind: String,
    /// The message, with placeholders for what differs: `{n}`, `{text}`, `{host}`, `{url}` and
    /// `{address}`.
    pub shape: String,
    /// The message of the newest failure.
    pub message: String,
    /// The place of the newest failure in the code, if it is known.
    pub place: Option<String>,
    /// The job that failed last.
    pub job_id: JobId,
    /// The number of jobs in the group, counted up to 10,000.
    pub count: u64,
    /// True if the group has no more jobs than `count`.
    pub is_exact: bool,
    /// The time at which the first job of the group failed, by the database's clock.
    pub first_at: DateTime<Utc>,
    /// The time at which the last job of the group failed.
    pub last_at: DateTime<Utc>,
}

/// The groups of failed jobs.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct FailedGroups {
    /// The group whose last failure is newest comes first.
    pub groups: Vec<FailedGroup>,
    /// True if these are all groups.
    pub is_complete: bool,
    /// The number of their failures that have no stored fingerprint, because another program or an
    /// earlier version has stored them. At most the newest 1,000 are read, and belong to the groups
    /// by what they say. A supervisor stores their fingerprints within minutes; until then
    /// [`Jobs::fingerprint`](crate::Jobs::fingerprint) does not select them.
    pub without_fingerprint: u64,
}

/// Returns the groups of failed jobs whose last failures are newest, at most `limit`.
///
/// It is fast however many jobs have failed: up to 1,000 groups are looked at, and the jobs of each group
/// are counted up to 10,000.
///
/// ```
/// # use diesel::prelude::*;
/// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
/// # windlass::migrate(&mut conn).unwrap();
/// for group in windlass::failed_groups(&mut conn, 20)?.groups {
///     println!("{} {}: {} ({})", group.class_name, group.kind, group.shape, group.count);
/// }
/// # Ok::<(), windlass::Error>(())
/// ```
///
/// # Errors
/// If the database does not answer or has no tables.
pub fn failed_groups<C: AsConn + ?Sized>(conn: &mut C, limit: u32) -> Result<FailedGroups> {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let mut conn = own(conn);
    let action = "group the failed jobs";
    let mut known = jobs::fingerprints(&mut conn, MOST_FINGERPRINTS + 1).during(action)?;
    let mut is_complete = known.len() <= MOST_FINGERPRINTS;
    known.sort_by_key(|one| std::cmp::Reverse(one.last_id));
    is_complete &= known.len() <= limit;
    known.truncate(limit);
    let rows = jobs::groups(&mut conn, &known, MOST_COUNTED).during(action)?;
    let mut groups: BTreeMap<String, FailedGroup> = rows
        .into_iter()
        .map(|row| (row.fingerprint.clone(), FailedGroup::of(row)))
        .collect();
    let others = failed::without_fingerprint(&mut conn, MOST_READ + 1).during(action)?;
    is_complete &= others.len() <= MOST_READ;
    let others = &others[..others.len().min(MOST_READ)];
    for row in others {
        add(&mut groups, row);
    }
    let mut groups: Vec<FailedGroup> = groups.into_values().collect();
    groups.sort_by_key(|group| std::cmp::Reverse((group.last_at, group.job_id.0)));
    is_complete &= groups.len() <= limit;
    groups.truncate(limit);
    Ok(FailedGroups {
        groups,
        is_complete,
        without_fingerprint: others.len() as u64,
    })
}

impl FailedGroup {
    fn of(row: GroupRow) -> Self {
        let count = u64::try_from(row.count).unwrap_or(0);
        FailedGroup {
            fingerprint: row.fingerprint,
            count: count.min(MOST_COUNTED),
            is_exact: count <= MOST_COUNTED,
            first_at: row.first_at.and_utc(),
            last_at: row.last_at.and_utc(),
            ..Self::of_one(&row.newest)
        }
    }

    /// Returns a group of one failure.
    fn of_one(row: &FailureRow) -> Self {
        let error = row.error.as_deref().unwrap_or_default();
        let (kind, message) = outcome::parts(error);
        FailedGroup {
            fingerprint: outcome::fingerprint_of(&row.class_name, error),
            class_name: row.class_name.clone(),
            shape: shape(&message),
            kind,
            message,
            place: outcome::first_location(error),
            job_id: JobId(row.job_id),
            count: 1,
            is_exact: true,
            first_at: row.at.and_utc(),
            last_at: row.at.and_utc(),
        }
    }
}

/// Adds a failure without a stored fingerprint to its group.
fn add(groups: &mut BTreeMap<String, FailedGroup>, row: &FailureRow) {
    let one = FailedGroup::of_one(row);
    match groups.get_mut(&one.fingerprint) {
        None => {
            groups.insert(one.fingerprint.clone(), one);
        }
        Some(group) => {
            let count = group.count + 1;
            group.is_exact &= count <= MOST_COUNTED;
            group.count = count.min(MOST_COUNTED);
            let first_at = group.first_at.min(one.first_at);
            if one.last_at > group.last_at {
                *group = FailedGroup {
                    count: group.count,
                    is_exact: group.is_exact,
                    ..one
                };
            }
            group.first_at = first_at;
        }
    }
}

// --- Retries failed jobs spread over time ---

/// A rate at which jobs are retried: `50/s`, `100/min`, `20/h`, `1000/10m`.
///
/// ```
/// let rate: windlass::RetryRate = "100/min".parse()?;
/// assert_eq!(rate.time_for(200).as_secs(), 120);
/// # Ok::<(), windlass::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryRate {
    jobs: u32,
    per: Duration,
}

impl RetryRate {
    /// Returns the rate of this many jobs in this time.
    ///
    /// # Errors
    /// If one of them is zero, or it is more than a million jobs a second.
    pub fn new(jobs: u32, per: Duration) -> Result<Self> {
        let rate = RetryRate { jobs, per };
        if jobs == 0 || per < Duration::from_micros(jobs.into()) {
            return Err(Error::Settings(
                "a rate needs at least one job, and at most a million jobs a second".to_owned(),
            ));
        }
        Ok(rate)
    }

    /// Retries jobs, so many after the first one, which is due at `start`.
    pub(crate) fn retry(
        self,
        conn: &mut Conn<'_>,
        jobs: &[i64],
        even_at_most_once: bool,
        start: NaiveDateTime,
        before: u64,
    ) -> QueryResult<Changed> {
        let spread = RetrySpread {
            start,
            before,
            time_for: &|jobs| self.time_for(jobs),
        };
        let even = AtMostOnce::retry_if(even_at_most_once);
        let retried = operate::retry_spread(conn, jobs, even, &spread)?;
        Ok(Changed::of_retry(&retried, jobs.len() as u64))
    }

    /// Returns the time that so many jobs take.
    pub fn time_for(self, jobs: u64) -> Duration {
        let micros = self.per.as_micros().saturating_mul(jobs.into()) / u128::from(self.jobs);
        Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
    }
}

impl FromStr for RetryRate {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = || {
            Error::Settings(format!(
                "`{}` is not a rate: write how many jobs in a second, a minute or an hour, as `50/s`, \
                 `100/min` or `20/h`",
                text.chars()
                    .take(80)
                    .flat_map(char::escape_default)
                    .collect::<String>()
            ))
        };
        let (jobs, unit) = text.trim().split_once('/').ok_or_else(wrong)?;
        let per = match unit.trim() {
            "s" | "sec" | "second" => Duration::from_secs(1),
            "m" | "min" | "minute" => Duration::from_secs(60),
            "h" | "hour" => Duration::from_secs(3600),
            time => humantime::parse_duration(time).map_err(|_| wrong())?,
        };
        let jobs = jobs.trim().parse().map_err(|_| wrong())?;
        RetryRate::new(jobs, per)
    }
}

impl fmt::Display for RetryRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.per.as_secs(), self.per.subsec_nanos()) {
            (1, 0) => write!(f, "{}/s", self.jobs),
            (60, 0) => write!(f, "{}/min", self.jobs),
            (3600, 0) => write!(f, "{}/h", self.jobs),
            _ => write!(f, "{}/{}", self.jobs, clock::in_units(self.per)),
        }
    }
}

impl Serialize for RetryRate {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for RetryRate {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        let text = String::deserialize(input)?;
        text.parse().map_err(de::Error::custom)
    }
}

impl Jobs {
    /// Retries the failed jobs of this selection, spread over time: the first is due at once, each
    /// further one a little later, by the database's clock. Until then they are scheduled jobs, which
    /// need a dispatcher. All have their attempts available again.
    ///
    /// The jobs are changed in batches of 500, each in one transaction. After each, `progress` gets
    /// the totals; on [`ControlFlow::Break`] the other jobs stay as they are.
    ///
    /// # Errors
    /// If the database does not answer or has no tables; completed batches stay changed.
    pub fn retry_at_rate<C: AsConn + ?Sized>(
        &self,
        conn: &mut C,
        rate: RetryRate,
        even_at_most_once: bool,
        progress: impl FnMut(&Changed) -> ControlFlow<()>,
    ) -> Result<Changed> {
        let mut conn = own(conn);
        let start = crate::db::table::recurring_tasks::now(&mut conn).during("read the time")?;
        let mut due = 0;
        let failed = self.failed_only();
        let retry = Change::Retry { even_at_most_once };
        let mut trail = failed.trail(retry.action()).parameters(
            json!({ "retry": { "even_at_most_once": even_at_most_once, "rate": rate } })
                .to_string(),
        );
        failed.each_batch(&mut conn, progress, |conn, _, jobs| {
            failed.name_batch(&mut trail, jobs);
            let done = trail.record(
                conn,
                |conn| rate.retry(conn, jobs, even_at_most_once, start, due),
                |done| retry.effect(done),
            );
            let done = done.during(retry.action_text())?;
            due += done.changed;
            Ok(done)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read() {
        for (text, seconds) in [("50/s", 20), (" 100 / min ", 600), ("20/h", 180_000)] {
            let rate: RetryRate = text.parse().unwrap();
            assert_eq!(rate.time_for(1000), Duration::from_secs(seconds), "{text}");
            assert_eq!(rate.to_string().parse::<RetryRate>().unwrap(), rate);
        }
        let rate = RetryRate::new(7, Duration::from_millis(90_500)).unwrap();
        assert_eq!(rate.to_string().parse::<RetryRate>().unwrap(), rate);
        for text in [
            "",
            "50",
            "50/",
            "/s",
            "0/s",
            "-1/s",
            "1.5/s",
            "5/day",
            "2000000/s",
            "5/s/s",
        ] {
            assert!(text.parse::<RetryRate>().is_err(), "{text}");
        }
    }
}
