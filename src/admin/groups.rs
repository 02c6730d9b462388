//! Failed jobs, grouped by what their failures have in common.

use crate::db::model::fingerprint::shape;
use crate::db::model::outcome;
use crate::db::query::jobs::{self, GroupRow};
use crate::db::table::failed::{self, FailureRow};
use crate::db::{AsConn, own};
use crate::error::{ErrorContext, Result};
use crate::job::JobId;
use chrono::{DateTime, Utc};
use serde::Serialize;
use std::collections::BTreeMap;

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
    /// A hash of what they have in common, by which [`Jobs::fingerprint`](crate::jobs::Jobs::fingerprint)
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
    /// [`Jobs::fingerprint`](crate::jobs::Jobs::fingerprint) does not select them.
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
/// for group in windlass::failed::groups(&mut conn, 20)?.groups {
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
