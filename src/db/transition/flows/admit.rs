//! Decides about jobs that wait for batches, for a promotion.

use crate::db::conn::connection::Conn;
use crate::db::table::blocked;
use crate::db::table::flows::edges::{self, Edge, EdgeState};
use crate::db::table::flows::{CHILD, members};
use crate::db::table::wanted_keys;
use crate::db::transition::{clear, place};
use diesel::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// The class of the job that stands for a batch in the batch around it. No worker performs it.
pub(crate) const NESTED: &str = "windlass_batch";

/// What came of the requests.
#[derive(Debug, Default)]
pub(crate) struct AdmittedJobs {
    /// Jobs that wait no longer.
    pub(crate) entered: Vec<i64>,
    /// How many were requested again, because another transaction has locked them.
    pub(crate) left_over: usize,
}

fn parsed(key: &str) -> Option<i64> {
    key.strip_prefix(CHILD)?.parse().ok()
}

/// Lets those of the requested jobs run whose batches have the outcomes that they wait for, and deletes those that are
/// not wanted any more.
pub(crate) fn admit(
    conn: &mut Conn<'_>,
    requested: &BTreeSet<String>,
) -> QueryResult<AdmittedJobs> {
    let named: Vec<i64> = requested.iter().filter_map(|key| parsed(key)).collect();
    if named.is_empty() {
        return Ok(AdmittedJobs::default());
    }
    let locked = edges::lock_free(conn, &named)?;
    let mut states: BTreeMap<i64, (EdgeState, Vec<Edge>)> = BTreeMap::new();
    for edge in edges::of(conn, &locked)? {
        let (state, all) = states
            .entry(edge.child_job_id)
            .or_insert((EdgeState::Open, Vec::new()));
        *state = (*state).max(edge.state());
        all.push(edge);
    }
    let of = |wanted: EdgeState, nested: bool| -> Vec<i64> {
        let chosen = states.iter().filter(|(_, (state, edges))| {
            *state == wanted && edges.iter().any(|edge| edge.class_name == NESTED) == nested
        });
        chosen.map(|(job, _)| *job).collect()
    };
    let (open, nested) = (of(EdgeState::Open, false), of(EdgeState::Open, true));
    let dropped = of(EdgeState::Dropped, false);
    let all: Vec<i64> = [&open[..], &nested, &dropped].concat();
    if !all.is_empty() {
        blocked::delete(conn, &all)?;
    }
    if !open.is_empty() {
        place::place(conn, &open)?;
    }
    clear::delete::delete(conn, &dropped)?;
    end_nested(conn, &nested, &states)?;
    let left_over = request_again(conn, &named, &locked)?;
    Ok(AdmittedJobs {
        entered: all,
        left_over,
    })
}

/// Ends jobs that stand for batches which are over.
fn end_nested(
    conn: &mut Conn<'_>,
    nested: &[i64],
    states: &BTreeMap<i64, (EdgeState, Vec<Edge>)>,
) -> QueryResult<()> {
    if nested.is_empty() {
        return Ok(());
    }
    let has_succeeded = |job: &i64| {
        let edges = states.get(job).map(|(_, edges)| edges);
        edges.is_some_and(|edges| edges.iter().all(Edge::has_succeeded))
    };
    let failed = nested.iter().copied().filter(|job| !has_succeeded(job));
    members::fail(conn, &failed.collect::<Vec<_>>())?;
    members::finish_unrun(conn, nested)?;
    members::leave(conn, nested)
}

/// Requests another promotion of jobs that wait and were skipped as locked, and returns how many these are.
fn request_again(conn: &mut Conn<'_>, named: &[i64], locked: &[i64]) -> QueryResult<usize> {
    let skipped: Vec<i64> = named
        .iter()
        .copied()
        .filter(|job| !locked.contains(job))
        .collect();
    if skipped.is_empty() {
        return Ok(0);
    }
    let waiting = edges::waiting(conn, &skipped)?;
    let keys = waiting.iter().map(|job| format!("{CHILD}{job}"));
    wanted_keys::request_promotion_later(conn, &keys.collect())?;
    Ok(waiting.len())
}
