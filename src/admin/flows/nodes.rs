//! The jobs and batches of a flow, each kind read at once.

use crate::admin::batches::list::{BatchState, BatchSummary};
use crate::admin::flows::{FlowId, FlowNode};
use crate::admin::job_info::{StatusSigns, TaskStatus, kept_status};
use crate::db::Conn;
use crate::db::query::batches::list;
use crate::db::query::flows::nodes::{self as node_rows, FlowJobRow};
use crate::error::{Doing as _, Result};
use crate::job::id::{BatchId, JobId};
use std::collections::{BTreeMap, BTreeSet};

/// How far the jobs of a batch are counted.
const COUNTED: i64 = 10_000;

/// Returns the ids of the batches, and those of the jobs.
pub(super) fn parted<'i>(ids: impl IntoIterator<Item = &'i FlowId>) -> (Vec<i64>, Vec<i64>) {
    let (mut batches, mut jobs) = (Vec::new(), Vec::new());
    for id in ids {
        match id {
            FlowId::Batch(id) => batches.push(id.0),
            FlowId::Job(id) => jobs.push(id.0),
        }
    }
    (batches, jobs)
}

/// Reads jobs and batches, and returns them in their order.
pub(super) fn read(conn: &mut Conn<'_>, ids: &BTreeSet<FlowId>) -> Result<Vec<FlowNode>> {
    let (batches, jobs) = parted(ids);
    let mut found = BTreeMap::new();
    if !jobs.is_empty() {
        add_jobs(conn, &jobs, &mut found)?;
    }
    if !batches.is_empty() {
        let rows = list::some(conn, &batches, COUNTED).doing("read the batches")?;
        let rows = rows.into_iter().map(|row| BatchSummary::of(row, COUNTED));
        found.extend(rows.map(batch).map(|node| (node.id, node)));
    }
    let node = |id: &FlowId| {
        found.remove(id).unwrap_or(FlowNode {
            id: *id,
            name: String::new(),
            state: "not kept",
            open: None,
        })
    };
    Ok(ids.iter().map(node).collect())
}

/// The jobs are read first: if the row of one was deleted, its result was written before.
fn add_jobs(
    conn: &mut Conn<'_>,
    ids: &[i64],
    found: &mut BTreeMap<FlowId, FlowNode>,
) -> Result<()> {
    const ACTION: &str = "look the jobs up";
    let mut add = |id: i64, name: String, status: TaskStatus| {
        let id = FlowId::Job(JobId(id));
        let (state, open) = (word(status), None);
        let node = FlowNode {
            id,
            name,
            state,
            open,
        };
        found.insert(id, node);
    };
    let mut gone: BTreeSet<i64> = ids.iter().copied().collect();
    for row in node_rows::jobs(conn, ids).doing(ACTION)? {
        gone.remove(&row.job_id);
        let status = status(&row);
        add(row.job_id, row.class_name, status);
    }
    if gone.is_empty() {
        return Ok(());
    }
    let gone: Vec<i64> = gone.into_iter().collect();
    for kept in node_rows::results(conn, &gone).doing(ACTION)? {
        add(kept.job_id, kept.class_name, kept_status(&kept.outcome));
    }
    Ok(())
}

fn status(row: &FlowJobRow) -> TaskStatus {
    StatusSigns {
        has_failed: row.has_failed,
        has_finished: row.has_finished,
        is_claimed: row.is_claimed,
        last_outcome: row.last_outcome.as_deref(),
    }
    .status()
}

fn batch(batch: BatchSummary) -> FlowNode {
    FlowNode {
        id: FlowId::Batch(BatchId(batch.id.0)),
        state: match batch.state {
            BatchState::Open => "open",
            BatchState::Succeeded => "succeeded",
            BatchState::Failed => "failed",
        },
        name: batch.name,
        open: Some(batch.open.count),
    }
}

fn word(status: TaskStatus) -> &'static str {
    match status {
        TaskStatus::Queued => "waits",
        TaskStatus::Running => "runs",
        TaskStatus::Succeeded => "finished",
        TaskStatus::Failed => "failed",
        TaskStatus::Cancelled => "cancelled",
        TaskStatus::Discarded => "discarded",
    }
}
