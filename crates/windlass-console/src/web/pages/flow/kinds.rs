//! The display of states and of kinds of edges.

use crate::web::http;
use crate::web::request::shell::Shell;
use crate::web::show::{Markup, count, state};
use std::collections::BTreeMap;
use windlass::flows::{FlowEdge, FlowGraph, FlowId, FlowNode};

/// Returns the class and the word of a state, as on other pages. There is no class for what is not kept.
pub(super) fn class_and_word(node: &FlowNode) -> (&'static str, &'static str) {
    match (node.id, node.state) {
        (FlowId::Job(_), "waits") => ("ready", "waits"),
        (FlowId::Job(_), "runs") => ("run", "running"),
        (FlowId::Batch(_), "open") => ("run", "open"),
        (_, "finished") => ("done", "finished"),
        (_, "succeeded") => ("done", "succeeded"),
        (_, "failed") => ("fail", "failed"),
        (_, "cancelled") => ("disc", "cancelled"),
        (_, "discarded") => ("disc", "discarded"),
        _ => ("", "not kept any more"),
    }
}

/// Returns a state as a shape, a word and a colour.
pub(super) fn state_of(node: &FlowNode) -> Markup {
    match class_and_word(node) {
        ("", word) => Markup::element("span", "q", word),
        (class, word) => state(&format!("{class} ink"), word),
    }
}

/// Returns `job 4,711` or `batch 7`.
pub(super) fn title(id: FlowId) -> String {
    match id {
        FlowId::Job(id) => format!("job {}", count(id.0)),
        FlowId::Batch(id) => format!("batch {}", id.0),
    }
}

/// Returns the name, or `job 4,711` if none is kept.
pub(super) fn name(node: &FlowNode) -> String {
    match node.name.trim() {
        "" => title(node.id),
        _ => node.name.clone(),
    }
}

/// Returns a link to the page of a job or a batch. Empty if it is not kept.
pub(super) fn href(node: &FlowNode, shell: &Shell) -> String {
    match node.state {
        "not kept" => String::new(),
        _ => shell.link(&path(node.id)),
    }
}

/// Returns the path of the page of a job or a batch.
pub(super) fn path(id: FlowId) -> String {
    match id {
        FlowId::Job(id) => http::path(&["jobs", &id.0.to_string()]),
        FlowId::Batch(id) => http::path(&["batches", &id.0.to_string()]),
    }
}

/// Returns what comes before the name of what is waited for.
pub(super) fn words(edge: &FlowEdge) -> String {
    match (edge.kind, &edge.name) {
        ("success", _) => "on success of".to_owned(),
        ("failure", _) => "on failure of".to_owned(),
        ("in", _) => "in it:".to_owned(),
        ("undoes", Some(step)) => format!("undoes step {step} of"),
        ("undoes", None) => "undoes a step of".to_owned(),
        ("before", _) => "after a later step is undone by".to_owned(),
        _ => "on any end of".to_owned(),
    }
}

/// Returns the name by which the result is read.
pub(super) fn read_as(edge: &FlowEdge) -> &str {
    match edge.kind {
        "success" | "failure" | "finish" => edge.name.as_deref().unwrap_or_default(),
        _ => "",
    }
}

/// The stroke of an edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum FlowStroke {
    /// On success, or on any end.
    Plain,
    /// A batch has it.
    Within,
    /// On failure, or to undo a step.
    Undoing,
}

impl FlowStroke {
    pub(super) fn of(kind: &str) -> Self {
        match kind {
            "in" => FlowStroke::Within,
            "failure" | "undoes" | "before" => FlowStroke::Undoing,
            _ => FlowStroke::Plain,
        }
    }

    /// Returns the class of the picture.
    pub(super) fn class(self) -> &'static str {
        match self {
            FlowStroke::Plain => "",
            FlowStroke::Within => " in",
            FlowStroke::Undoing => " undo",
        }
    }

    /// Returns the class and the words of the legend.
    pub(super) fn key(self) -> (&'static str, &'static str) {
        match self {
            FlowStroke::Plain => ("f-ink", "on success, or on any end"),
            FlowStroke::Within => ("dash f-ink", "is in the batch"),
            FlowStroke::Undoing => ("dot f-fail", "on failure, or to undo a step"),
        }
    }
}

// --- A flow as a table ---

/// A job or a batch of a flow.
#[derive(Debug)]
pub(super) struct FlowRow {
    pub(super) anchor: String,
    pub(super) name: String,
    pub(super) title: String,
    /// Empty if it is not kept.
    pub(super) href: String,
    pub(super) state: Markup,
    /// The number of open jobs of a batch.
    pub(super) open: Option<String>,
    pub(super) is_here: bool,
    pub(super) waits: Vec<FlowDependency>,
}

/// The parents for which a job or a batch waits in the same way.
#[derive(Debug)]
pub(super) struct FlowDependency {
    pub(super) how: String,
    pub(super) parents: Vec<FlowParent>,
}

/// A job or a batch that another one waits for.
#[derive(Debug)]
pub(super) struct FlowParent {
    pub(super) name: String,
    pub(super) href: String,
    /// The name by which the result is read.
    pub(super) read_as: String,
}

/// Returns the name of a row, for links to it.
pub(super) fn anchor(id: FlowId) -> String {
    match id {
        FlowId::Job(id) => format!("job-{}", id.0),
        FlowId::Batch(id) => format!("batch-{}", id.0),
    }
}

/// Returns the rows in this order of the nodes.
pub(super) fn rows(
    graph: &FlowGraph,
    order: &[usize],
    here: FlowId,
    shell: &Shell,
) -> Vec<FlowRow> {
    let nodes: BTreeMap<FlowId, &FlowNode> =
        graph.nodes.iter().map(|node| (node.id, node)).collect();
    let mut waits: BTreeMap<FlowId, Vec<&FlowEdge>> = BTreeMap::new();
    for edge in &graph.edges {
        waits.entry(edge.to).or_default().push(edge);
    }
    let row = |node: &FlowNode| FlowRow {
        anchor: anchor(node.id),
        name: name(node),
        title: title(node.id),
        href: href(node, shell),
        state: state_of(node),
        open: node.open.filter(|open| *open > 0).map(count),
        is_here: node.id == here,
        waits: waits
            .get(&node.id)
            .map_or_else(Vec::new, |edges| ways(edges, &nodes, shell)),
    };
    order
        .iter()
        .filter_map(|place| graph.nodes.get(*place).map(row))
        .collect()
}

fn ways(
    edges: &[&FlowEdge],
    nodes: &BTreeMap<FlowId, &FlowNode>,
    shell: &Shell,
) -> Vec<FlowDependency> {
    let mut ways: BTreeMap<String, Vec<FlowParent>> = BTreeMap::new();
    for edge in edges {
        let node = nodes.get(&edge.from);
        ways.entry(words(edge)).or_default().push(FlowParent {
            name: title(edge.from),
            href: node.map_or_else(String::new, |node| href(node, shell)),
            read_as: read_as(edge).to_owned(),
        });
    }
    ways.into_iter()
        .map(|(how, parents)| FlowDependency { how, parents })
        .collect()
}
