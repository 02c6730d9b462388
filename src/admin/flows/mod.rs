//! What waits for what, around a job or a batch.

pub(crate) mod draw;
mod nodes;

use crate::db::query::batches::list;
use crate::db::query::flows::nodes::{self as rows, EdgeRow, EdgesOf};
use crate::db::{AsConn, Conn, own};
use crate::error::{Doing as _, Error, Result};
use crate::job::id::{BatchId, JobId};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// How many jobs and batches a graph has at most.
const MOST: usize = 200;

/// A job or a batch in a [`FlowGraph`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FlowId {
    /// A batch.
    Batch(BatchId),
    /// A job.
    Job(JobId),
}

impl From<JobId> for FlowId {
    fn from(id: JobId) -> Self {
        FlowId::Job(id)
    }
}

impl From<BatchId> for FlowId {
    fn from(id: BatchId) -> Self {
        FlowId::Batch(id)
    }
}

/// The jobs and batches that wait for each other, directly and indirectly.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct FlowGraph {
    /// Batches first, then jobs, by their ids. At most 200.
    pub nodes: Vec<FlowNode>,
    /// By what is waited for, and by what waits.
    pub edges: Vec<FlowEdge>,
    /// Whether there are more than it has.
    pub is_cut: bool,
}

/// A job or a batch of a [`FlowGraph`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct FlowNode {
    /// Which one.
    pub id: FlowId,
    /// The class of the job, or the name of the batch. Empty if it is not kept any more.
    pub name: String,
    /// Where it is: `waits`, `runs`, `finished`, `failed`, `cancelled` or `discarded`; for a batch `open`, `succeeded` or
    /// `failed`; or `not kept`.
    pub state: &'static str,
    /// How many jobs of a batch have not ended, up to 10,000.
    pub open: Option<u64>,
}

/// That a job or a batch of a [`FlowGraph`] waits for another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct FlowEdge {
    /// What is waited for.
    pub from: FlowId,
    /// What waits.
    pub to: FlowId,
    /// `success`, `failure` or `finish`: on which outcome the job runs. `in`: the batch has the job or the batch.
    /// `undoes`: the job undoes a step. `before`: it undoes a later step than the other.
    pub kind: &'static str,
    /// The name that the job reads the result by, or that of the step.
    pub name: Option<String>,
    /// The outcome of what is waited for: `succeeded` or `failed`. `None` while it has not ended.
    pub outcome: Option<String>,
}

impl FlowGraph {
    /// Returns what waits for what around a job or a batch: a [`JobId`] or a [`BatchId`].
    ///
    /// ```
    /// # use diesel::prelude::*;
    /// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
    /// # windlass::migrate(&mut conn).unwrap();
    /// use windlass::{FlowGraph, NewJob};
    ///
    /// let read = NewJob::of_class("read", "{}").enqueue(&mut conn)?;
    /// NewJob::of_class("report", "{}").after(("lines", read)).enqueue(&mut conn)?;
    /// let graph = FlowGraph::around(&mut conn, read.id)?;
    /// assert_eq!(graph.tree(), "job 1 read: waits\n└─ success, lines: job 2 report: waits\n");
    /// # Ok::<(), windlass::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NoSuchJob`] or [`Error::NoSuchBatch`] if nothing is known of it. Also if the database does not answer or has
    /// no tables.
    pub fn around<C: AsConn + ?Sized>(conn: &mut C, id: impl Into<FlowId>) -> Result<FlowGraph> {
        let conn = &mut own(conn);
        let id = id.into();
        let graph = Walk::from(id).walk(conn)?;
        let is_known =
            graph.edges.len() + graph.nodes.len() > 1 || graph.nodes[0].state != "not kept";
        match id {
            _ if is_known => Ok(graph),
            FlowId::Batch(id) => Err(Error::NoSuchBatch { id: id.0 }),
            FlowId::Job(id) => Err(Error::NoSuchJob {
                job: id.to_string(),
            }),
        }
    }
}

/// The way from a job or a batch to all others.
#[derive(Debug, Default)]
struct Walk {
    seen: BTreeSet<FlowId>,
    edges: BTreeMap<(FlowId, FlowId), FlowEdge>,
    /// Where the next step begins.
    front: Vec<FlowId>,
    is_cut: bool,
}

impl Walk {
    fn from(id: FlowId) -> Self {
        Walk {
            seen: BTreeSet::from([id]),
            front: vec![id],
            ..Walk::default()
        }
    }

    fn walk(mut self, conn: &mut Conn<'_>) -> Result<FlowGraph> {
        while !self.front.is_empty() {
            self.step(conn)?;
        }
        let nodes = nodes::read(conn, &self.seen)?;
        let is_seen =
            |edge: &FlowEdge| self.seen.contains(&edge.from) && self.seen.contains(&edge.to);
        Ok(FlowGraph {
            nodes,
            edges: self.edges.into_values().filter(is_seen).collect(),
            is_cut: self.is_cut,
        })
    }

    /// Goes from the front to all neighbours.
    fn step(&mut self, conn: &mut Conn<'_>) -> Result<()> {
        const ACTION: &str = "read what waits for what";
        let front = std::mem::take(&mut self.front);
        let (batches, jobs) = nodes::parted(&front);
        for (which, ids) in [
            (EdgesOf::Children, &jobs),
            (EdgesOf::ParentJobs, &jobs),
            (EdgesOf::ParentBatches, &batches),
        ] {
            if ids.is_empty() {
                continue;
            }
            let found = rows::edges(conn, which, ids, MOST * 2).doing(ACTION)?;
            self.is_cut |= found.len() == MOST * 2;
            found.into_iter().for_each(|row| self.add(edge(row)));
        }
        if !jobs.is_empty() {
            for member in rows::batches_of(conn, &jobs).doing(ACTION)? {
                self.add(within(JobId(member.job_id).into(), member.batch_id));
            }
        }
        if batches.is_empty() {
            return Ok(());
        }
        for (outer, inner) in list::inner(conn, &batches, MOST).doing(ACTION)? {
            self.add(within(BatchId(inner).into(), outer));
        }
        Ok(())
    }

    fn add(&mut self, edge: FlowEdge) {
        for id in [edge.from, edge.to] {
            if self.seen.contains(&id) {
                continue;
            }
            if self.seen.len() == MOST {
                self.is_cut = true;
                return;
            }
            self.seen.insert(id);
            self.front.push(id);
        }
        self.edges.insert((edge.from, edge.to), edge);
    }
}

/// That a batch has a job or a batch.
fn within(id: FlowId, batch: i64) -> FlowEdge {
    FlowEdge {
        from: id,
        to: BatchId(batch).into(),
        kind: "in",
        name: None,
        outcome: None,
    }
}

fn edge(row: EdgeRow) -> FlowEdge {
    let from = match (row.parent_job_id, row.parent_batch_id) {
        (Some(job), _) => FlowId::Job(JobId(job)),
        (None, batch) => FlowId::Batch(BatchId(batch.unwrap_or_default())),
    };
    if let Some(outer) = row.outer_batch {
        return FlowEdge {
            outcome: row.outcome,
            ..within(from, outer)
        };
    }
    let kind = match (&*row.runs_on, &*row.otherwise) {
        (_, "undo") => "undoes",
        (_, "wait" | "discard") if row.is_of_undo => "before",
        ("success", _) => "success",
        ("failure", _) => "failure",
        _ => "finish",
    };
    FlowEdge {
        from,
        to: JobId(row.child_job_id).into(),
        kind,
        name: row.name,
        outcome: row.outcome,
    }
}
