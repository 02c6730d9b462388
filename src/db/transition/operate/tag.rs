//! Adds tags to jobs, and removes them.

use crate::db::conn::connection::Conn;
use crate::db::model::extras::TagChange;
use crate::db::table::jobs;
use diesel::prelude::*;

/// Changes the tags of jobs, and returns the jobs that have changed.
///
/// Only their rows are locked: a tag decides nothing about a claim, so a running job may be tagged.
pub(crate) fn tag(
    conn: &mut Conn<'_>,
    ids: &[i64],
    change: TagChange<'_>,
) -> QueryResult<Vec<i64>> {
    conn.transaction(|conn| {
        let policies = jobs::lock_policies(conn, ids)?;
        let changed = policies.into_iter().filter_map(|row| {
            let policy = change.apply(row.policy.as_deref())?;
            Some((row.id, policy))
        });
        let changed: Vec<(i64, String)> = changed.collect();
        jobs::set_policies(conn, &changed)?;
        Ok(changed.into_iter().map(|(id, _)| id).collect())
    })
}
