//! The waits between jobs and batches, around a job or a batch.

use crate::admin::batches::{BatchState, BatchSummary};
use crate::admin::job_info::{self, TaskInfo, TaskStatus};
use crate::db::query::batches;
use crate::db::query::flows::{self as rows, EdgeRow, EdgesOf};
use crate::db::query::job_view::TextLimits;
use crate::db::{AsConn, Conn, own};
use crate::error::{Error, ErrorContext as _, Result};
use crate::job::{BatchId, JobId};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// The most jobs and batches that a graph has.
const MOST: usize = 200;

/// A job or a batch in a [`FlowGraph`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
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
    /// True if there are more jobs, batches or edges than the graph has.
    pub is_cut: bool,
}

/// A job or a batch of a [`FlowGraph`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct FlowNode {
    /// The id of the job or the batch.
    pub id: FlowId,
    /// The class of the job, or the name of the batch. Empty if it is not kept any more.
    pub name: String,
    /// Its state: `waits`, `runs`, `finished`, `failed`, `cancelled` or `discarded`; for a batch `open`, `succeeded`
    /// or `failed`; or `not kept`.
    pub state: &'static str,
    /// The number of jobs of a batch that have not ended, counted up to 10,000.
    pub open: Option<u64>,
}

/// An edge of a [`FlowGraph`]: a job or a batch waits for another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct FlowEdge {
    /// The job or batch that is waited for.
    pub from: FlowId,
    /// The job or batch that waits.
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
    /// use windlass::NewJob;
    /// use windlass::flows::FlowGraph;
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
    visited: BTreeSet<FlowId>,
    edges: BTreeMap<(FlowId, FlowId), FlowEdge>,
    /// The jobs and batches from which the walk goes on.
    front: Vec<FlowId>,
    is_cut: bool,
}

impl Walk {
    fn from(id: FlowId) -> Self {
        Walk {
            visited: BTreeSet::from([id]),
            front: vec![id],
            ..Walk::default()
        }
    }

    fn walk(mut self, conn: &mut Conn<'_>) -> Result<FlowGraph> {
        while !self.front.is_empty() {
            self.expand(conn)?;
        }
        let nodes = read(conn, &self.visited)?;
        let is_visited =
            |edge: &FlowEdge| self.visited.contains(&edge.from) && self.visited.contains(&edge.to);
        Ok(FlowGraph {
            nodes,
            edges: self.edges.into_values().filter(is_visited).collect(),
            is_cut: self.is_cut,
        })
    }

    /// Goes from the front to all neighbours.
    fn expand(&mut self, conn: &mut Conn<'_>) -> Result<()> {
        const ACTION: &str = "read what waits for what";
        let front = std::mem::take(&mut self.front);
        let (batches, jobs) = parted(&front);
        for (which, ids) in [
            (EdgesOf::Children, &jobs),
            (EdgesOf::ParentJobs, &jobs),
            (EdgesOf::ParentBatches, &batches),
        ] {
            if ids.is_empty() {
                continue;
            }
            let found = rows::edges(conn, which, ids, MOST * 2).during(ACTION)?;
            self.is_cut |= found.len() == MOST * 2;
            found.into_iter().for_each(|row| self.add(edge(row)));
        }
        if !jobs.is_empty() {
            for member in rows::batches_of(conn, &jobs).during(ACTION)? {
                self.add(within(JobId(member.job_id).into(), member.batch_id));
            }
        }
        if batches.is_empty() {
            return Ok(());
        }
        for (outer, inner) in batches::inner(conn, &batches, MOST).during(ACTION)? {
            self.add(within(BatchId(inner).into(), outer));
        }
        Ok(())
    }

    fn add(&mut self, edge: FlowEdge) {
        for id in [edge.from, edge.to] {
            if self.visited.contains(&id) {
                continue;
            }
            if self.visited.len() == MOST {
                self.is_cut = true;
                return;
            }
            self.visited.insert(id);
            self.front.push(id);
        }
        self.edges.insert((edge.from, edge.to), edge);
    }
}

/// Returns the edge of a job or a batch to the batch that has it.
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

// --- A flow as a text tree, and in the languages of Graphviz and Mermaid ---

impl FlowId {
    /// `job 7` or `batch 7`.
    fn words(self) -> String {
        match self {
            FlowId::Batch(id) => format!("batch {id}"),
            FlowId::Job(id) => format!("job {id}"),
        }
    }

    /// `job7` or `batch7`.
    fn key(self) -> String {
        self.words().replace(' ', "")
    }
}

impl FlowNode {
    fn words(&self) -> String {
        let mut words = self.id.words();
        if !self.name.is_empty() {
            let _ = write!(words, " {}", self.name.escape_debug());
        }
        let _ = write!(words, ": {}", self.state);
        if let Some(open) = self.open.filter(|open| *open > 0) {
            let _ = write!(words, ", {open} jobs are open");
        }
        words
    }
}

impl FlowEdge {
    fn words(&self) -> String {
        match &self.name {
            Some(name) => format!("{}, {}", self.kind, name.escape_debug()),
            None => self.kind.to_owned(),
        }
    }
}

impl FlowGraph {
    /// Returns the flow as a tree: what waits is below what it waits for. What waits for several is drawn below the first
    /// of them, and named below the others.
    pub fn tree(&self) -> String {
        let is_root = |node: &&FlowNode| !self.edges.iter().any(|edge| edge.to == node.id);
        let mut tree = FlowTree {
            graph: self,
            drawn: BTreeSet::new(),
            text: String::new(),
        };
        for root in self.nodes.iter().filter(is_root) {
            let _ = writeln!(tree.text, "{}", root.words());
            tree.drawn.insert(root.id);
            tree.below(root.id, "");
        }
        if self.is_cut {
            tree.text += "There is more: ask for a job that is not shown.\n";
        }
        tree.text
    }

    /// Returns the flow in the language of Graphviz.
    pub fn dot(&self) -> String {
        let mut text = "digraph flow {\n  node [shape=box];\n".to_owned();
        for node in &self.nodes {
            let _ = writeln!(
                text,
                "  {} [label={}];",
                node.id.key(),
                quoted(&node.words())
            );
        }
        for edge in &self.edges {
            let (from, to, label) = (edge.from.key(), edge.to.key(), quoted(&edge.words()));
            let _ = writeln!(text, "  {from} -> {to} [label={label}];");
        }
        text + "}\n"
    }

    /// Returns the flow in the language of Mermaid.
    pub fn mermaid(&self) -> String {
        let mut text = "flowchart TD\n".to_owned();
        for node in &self.nodes {
            let _ = writeln!(text, "  {}[\"{}\"]", node.id.key(), entities(&node.words()));
        }
        for edge in &self.edges {
            let (from, to, label) = (edge.from.key(), edge.to.key(), entities(&edge.words()));
            let _ = writeln!(text, "  {from} -->|\"{label}\"| {to}");
        }
        text
    }
}

/// A string of Graphviz.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

/// Text in a label of Mermaid, which reads `#35;` as a character.
fn entities(text: &str) -> String {
    let entity = |char: char| match char {
        '"' | '#' | '&' | '<' | '>' | '`' | '|' | '\\' => format!("#{};", u32::from(char)),
        char => char.to_string(),
    };
    text.chars().map(entity).collect()
}

struct FlowTree<'g> {
    graph: &'g FlowGraph,
    drawn: BTreeSet<FlowId>,
    text: String,
}

impl FlowTree<'_> {
    /// Draws what waits for this.
    fn below(&mut self, id: FlowId, indent: &str) {
        let graph = self.graph;
        let edges: Vec<&FlowEdge> = graph.edges.iter().filter(|edge| edge.from == id).collect();
        for (number, edge) in edges.iter().enumerate() {
            let is_last = number + 1 == edges.len();
            let branch = if is_last { "└─" } else { "├─" };
            let node = graph.nodes.iter().find(|node| node.id == edge.to);
            let words = node.map_or_else(|| edge.to.words(), FlowNode::words);
            let is_new = self.drawn.insert(edge.to);
            let again = if is_new { "" } else { " (above)" };
            let _ = writeln!(
                self.text,
                "{indent}{branch} {}: {words}{again}",
                edge.words()
            );
            if is_new {
                let bar = if is_last { "   " } else { "│  " };
                self.below(edge.to, &format!("{indent}{bar}"));
            }
        }
    }
}

// --- The jobs and batches of a flow, each kind read at once ---

/// The number up to which the jobs of a batch are counted.
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
        let tasks = job_info::read(conn, &jobs, TextLimits::NONE)?;
        let tasks = tasks.into_values().map(|(task, _)| job(task));
        found.extend(tasks.map(|node| (node.id, node)));
    }
    if !batches.is_empty() {
        let rows = batches::some(conn, &batches, COUNTED).during("read the batches")?;
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

fn job(task: TaskInfo) -> FlowNode {
    FlowNode {
        id: FlowId::Job(task.job_id),
        name: task.class_name,
        state: word(task.status),
        open: None,
    }
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
