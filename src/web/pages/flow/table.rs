//! A flow as a table.

use crate::admin::flows::{FlowEdge, FlowGraph, FlowId, FlowNode};
use crate::web::pages::flow::kinds;
use crate::web::request::shell::Shell;
use crate::web::show::markup::Markup;
use crate::web::show::numbers::count;
use std::collections::BTreeMap;

/// A job or a batch of a flow.
#[derive(Debug)]
pub(super) struct FlowRow {
    pub(super) anchor: String,
    pub(super) name: String,
    pub(super) title: String,
    /// Empty if it is not kept.
    pub(super) href: String,
    pub(super) state: Markup,
    /// How many jobs of a batch are open.
    pub(super) open: Option<String>,
    pub(super) is_here: bool,
    pub(super) waits: Vec<FlowWaits>,
}

/// What a job or a batch waits for in one way.
#[derive(Debug)]
pub(super) struct FlowWaits {
    pub(super) how: String,
    pub(super) parents: Vec<FlowParent>,
}

/// What is waited for.
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
        name: kinds::name(node),
        title: kinds::title(node.id),
        href: kinds::href(node, shell),
        state: kinds::state_of(node),
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

fn ways(edges: &[&FlowEdge], nodes: &BTreeMap<FlowId, &FlowNode>, shell: &Shell) -> Vec<FlowWaits> {
    let mut ways: BTreeMap<String, Vec<FlowParent>> = BTreeMap::new();
    for edge in edges {
        let node = nodes.get(&edge.from);
        ways.entry(kinds::words(edge))
            .or_default()
            .push(FlowParent {
                name: kinds::title(edge.from),
                href: node.map_or_else(String::new, |node| kinds::href(node, shell)),
                read_as: kinds::read_as(edge).to_owned(),
            });
    }
    ways.into_iter()
        .map(|(how, parents)| FlowWaits { how, parents })
        .collect()
}
