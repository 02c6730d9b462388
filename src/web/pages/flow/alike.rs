//! Which jobs and batches are alike, so that one box stands for all of them.

use crate::admin::flows::{FlowGraph, FlowId};
use crate::web::pages::flow::kinds::FlowStroke;
use std::collections::{BTreeMap, BTreeSet};

/// An edge from a group of jobs or batches to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct GroupEdge {
    pub(super) from: usize,
    pub(super) stroke: FlowStroke,
    pub(super) to: usize,
}

/// The jobs and batches of a graph, those that are alike in one group.
#[derive(Debug)]
pub(super) struct FlowGroups {
    /// The places of each group's nodes in the graph, at least one.
    pub(super) members: Vec<Vec<usize>>,
    pub(super) edges: BTreeSet<GroupEdge>,
    /// Which groups are batches.
    pub(super) are_batches: Vec<bool>,
}

impl FlowGroups {
    /// Groups the nodes that have the same name and state, wait for the same groups, and are waited for by the same
    /// groups. The one at `here` stays alone.
    pub(super) fn of(graph: &FlowGraph, here: FlowId) -> Self {
        let places: BTreeMap<FlowId, usize> = (0..)
            .zip(&graph.nodes)
            .map(|(place, node)| (node.id, place))
            .collect();
        let place = |id: &FlowId| places.get(id).copied();
        let edges: Vec<(usize, &'static str, usize)> = graph
            .edges
            .iter()
            .filter_map(|edge| Some((place(&edge.from)?, edge.kind, place(&edge.to)?)))
            .collect();
        let nodes = graph.nodes.iter();
        let looks = nodes.map(|node| (is_batch(node.id), node.id == here, &node.name, node.state));
        let (mut groups, mut count) = numbered(looks);
        loop {
            let (next, next_count) = refined(&groups, &edges);
            if next_count == count {
                break;
            }
            (groups, count) = (next, next_count);
        }
        let mut members = vec![Vec::new(); count];
        for (node, group) in groups.iter().enumerate() {
            members[*group].push(node);
        }
        let edge = |(from, kind, to): &(usize, &str, usize)| GroupEdge {
            from: groups[*from],
            stroke: FlowStroke::of(kind),
            to: groups[*to],
        };
        FlowGroups {
            edges: edges.iter().map(edge).collect(),
            are_batches: members
                .iter()
                .map(|nodes| is_batch(graph.nodes[nodes[0]].id))
                .collect(),
            members,
        }
    }
}

fn is_batch(id: FlowId) -> bool {
    matches!(id, FlowId::Batch(_))
}

/// Gives each key a number, in the order in which they come. Returns how many there are, too.
fn numbered<K: Ord>(keys: impl IntoIterator<Item = K>) -> (Vec<usize>, usize) {
    let mut numbers = BTreeMap::new();
    let number = |key: K| {
        let next = numbers.len();
        *numbers.entry(key).or_insert(next)
    };
    let all: Vec<usize> = keys.into_iter().map(number).collect();
    let count = numbers.len();
    (all, count)
}

/// Parts groups whose nodes differ in the groups beside them.
fn refined(groups: &[usize], edges: &[(usize, &'static str, usize)]) -> (Vec<usize>, usize) {
    let mut beside = vec![(BTreeSet::new(), BTreeSet::new()); groups.len()];
    for (from, kind, to) in edges {
        beside[*to].0.insert((groups[*from], *kind));
        beside[*from].1.insert((groups[*to], *kind));
    }
    numbered(groups.iter().zip(beside))
}
