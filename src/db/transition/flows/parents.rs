//! Looks which jobs have ended that others wait for, for a promotion.

use crate::db::conn::connection::Conn;
use crate::db::table::flows::edges::{self, FAILED, Resolved, SUCCEEDED};
use crate::db::table::flows::parents;
use crate::db::table::flows::{CHILD, DROPPED, ENDED};
use crate::db::table::{jobs, wanted_keys};
use diesel::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// What came of the requests.
#[derive(Debug, Default)]
pub(crate) struct EndedParents {
    /// How many jobs waited for them.
    pub(crate) followed: usize,
    /// How many were requested again.
    pub(crate) left_over: usize,
}

/// The job that a request names, and whether it was deleted without having finished.
fn parsed(key: &str) -> Option<(i64, bool)> {
    let rest = key.strip_prefix(ENDED)?;
    let (job, is_dropped) = match rest.strip_suffix(DROPPED) {
        Some(job) => (job, true),
        None => (rest, false),
    };
    Some((job.parse().ok()?, is_dropped))
}

/// Stores the outcomes of those of the requested jobs that have ended, and requests a promotion of the jobs that waited
/// for them.
///
/// It locks the rows of the jobs: so none is retried, and ends again, between the look and the commit.
pub(crate) fn resolve(
    conn: &mut Conn<'_>,
    requested: &BTreeSet<String>,
) -> QueryResult<EndedParents> {
    let mut named: BTreeMap<i64, bool> = BTreeMap::new();
    for (job, is_dropped) in requested.iter().filter_map(|key| parsed(key)) {
        *named.entry(job).or_default() |= is_dropped;
    }
    if named.is_empty() {
        return Ok(EndedParents::default());
    }
    let all: Vec<i64> = named.keys().copied().collect();
    let locked = jobs::lock_free(conn, &all)?;
    let mut again: BTreeSet<String> = named
        .iter()
        .filter(|(job, _)| !locked.contains(job))
        .map(|(job, is_dropped)| request(*job, *is_dropped))
        .collect();
    let outcomes = Outcomes::of(conn, &named, &locked)?;
    let mut children: BTreeSet<i64> = edges::give_up(conn, &outcomes.deleted())?
        .into_iter()
        .collect();
    for (which, outcome, parents) in outcomes.each() {
        let followers = edges::resolve(conn, which, parents, outcome)?;
        children.extend(followers.jobs);
        if followers.has_more {
            let is_dropped = |job: &i64| named.get(job) == Some(&true);
            again.extend(parents.iter().map(|job| request(*job, is_dropped(job))));
        }
    }
    let left_over = again.len();
    again.extend(children.iter().map(|child| format!("{CHILD}{child}")));
    wanted_keys::request_promotion_later(conn, &again)?;
    Ok(EndedParents {
        followed: children.len(),
        left_over,
    })
}

fn request(job: i64, is_dropped: bool) -> String {
    format!("{ENDED}{job}{}", if is_dropped { DROPPED } else { "" })
}

/// How jobs have ended.
#[derive(Debug, Default)]
struct Outcomes {
    succeeded: Vec<i64>,
    failed: Vec<i64>,
    /// Those that do not exist any more.
    deleted_succeeded: Vec<i64>,
    deleted_failed: Vec<i64>,
}

impl Outcomes {
    /// Reads them, of locked jobs. A statement of its own: it sees what was committed before the locks were granted.
    fn of(
        conn: &mut Conn<'_>,
        named: &BTreeMap<i64, bool>,
        locked: &[i64],
    ) -> QueryResult<Outcomes> {
        let states = parents::states(conn, locked)?;
        let mut outcomes = Outcomes::default();
        for state in &states {
            match (state.has_failed, state.has_finished) {
                (true, _) => outcomes.failed.push(state.id),
                (false, true) => outcomes.succeeded.push(state.id),
                (false, false) => {}
            }
        }
        let exists: BTreeSet<i64> = states.iter().map(|state| state.id).collect();
        let deleted = locked.iter().filter(|job| !exists.contains(job));
        let deleted: Vec<i64> = deleted.copied().collect();
        if deleted.is_empty() {
            return Ok(outcomes);
        }
        let stored = parents::stored(conn, &deleted)?;
        let has_failed = |job: &i64| {
            let stored = stored.iter().find(|stored| stored.job_id == *job);
            let is_dropped = named.get(job) == Some(&true);
            stored.map_or(is_dropped, |stored| !stored.has_succeeded)
        };
        (outcomes.deleted_failed, outcomes.deleted_succeeded) =
            deleted.into_iter().partition(has_failed);
        Ok(outcomes)
    }

    fn deleted(&self) -> Vec<i64> {
        [&self.deleted_succeeded[..], &self.deleted_failed].concat()
    }

    fn each(&self) -> [(Resolved, &'static str, &[i64]); 4] {
        [
            (Resolved::Jobs, SUCCEEDED, &self.succeeded),
            (Resolved::Jobs, FAILED, &self.failed),
            (Resolved::DeletedJobs, SUCCEEDED, &self.deleted_succeeded),
            (Resolved::DeletedJobs, FAILED, &self.deleted_failed),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::{parsed, request};

    #[test]
    fn a_request_names_a_job() {
        for (job, is_dropped) in [(7, false), (8, true)] {
            assert_eq!(parsed(&request(job, is_dropped)), Some((job, is_dropped)));
        }
        assert_eq!(parsed("windlass/ended/x"), None);
        assert_eq!(parsed("windlass/after/7"), None);
    }
}
