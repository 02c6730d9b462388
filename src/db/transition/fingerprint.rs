//! Stores the fingerprints of failures that another program has stored without one.

use crate::db::conn::connection::Conn;
use crate::db::model::outcome;
use crate::db::table::failed;
use crate::db::transition::clear::{ClearedPage, one_by_one};
use diesel::QueryResult;
use std::collections::BTreeMap;

/// Stores the fingerprints of up to `chunk` failures, the newest first. Those that are locked, or that the
/// database refuses to change, are left.
pub(crate) fn fill(conn: &mut Conn<'_>, chunk: usize) -> QueryResult<ClearedPage> {
    let found = failed::without_fingerprint(conn, chunk)?;
    let fingerprints: BTreeMap<i64, String> = found
        .iter()
        .map(|row| {
            let error = row.error.as_deref().unwrap_or_default();
            (row.id, outcome::fingerprint_of(&row.class_name, error))
        })
        .collect();
    let ids: Vec<i64> = fingerprints.keys().copied().collect();
    let (counts, left) = one_by_one(conn, &ids, |conn, part| {
        let part: Vec<(i64, &str)> = part.iter().map(|id| (*id, &*fingerprints[id])).collect();
        failed::set_fingerprints(conn, &part)
    })?;
    let filled: usize = counts.into_iter().sum();
    Ok(ClearedPage {
        reached: (found.len() == chunk && filled > 0).then_some(0),
        cleared: filled,
        left,
    })
}
