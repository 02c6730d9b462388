//! Where the boxes of a flow are: a column for each layer, from left to right.

use crate::web::pages::flow::alike::{FlowGroups, GroupEdge};
use crate::web::pages::flow::kinds::FlowStroke;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

pub(super) const BOX_WIDTH: f64 = 224.0;
pub(super) const BOX_HEIGHT: f64 = 44.0;
/// From the left of a column to the left of the next.
const COLUMN: f64 = 284.0;
/// Between two boxes of a column.
const GAP: f64 = 14.0;
/// The height of an edge that passes a column.
const LANE: f64 = 6.0;
const MARGIN: f64 = 6.0;

/// The edges of one kind that leave one group: they share their way.
type EdgeBundle = (usize, FlowStroke);

/// What has a place in a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum FlowSlot {
    Group(usize),
    /// A bundle passes.
    Lane(EdgeBundle),
}

/// A part of the way of an edge, from left to right unless there is a circle.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct FlowCurve {
    pub(super) stroke: FlowStroke,
    pub(super) from: (f64, f64),
    pub(super) to: (f64, f64),
    /// Whether it ends at a box, and has the head of an arrow.
    pub(super) ends: bool,
}

/// A drawing of groups.
#[derive(Debug)]
pub(super) struct FlowLayout {
    pub(super) width: f64,
    pub(super) height: f64,
    /// The column of each group.
    pub(super) columns: Vec<usize>,
    /// The left upper corner of each group's box.
    pub(super) boxes: Vec<(f64, f64)>,
    pub(super) curves: Vec<FlowCurve>,
}

impl FlowLayout {
    pub(super) fn of(groups: &FlowGroups) -> Self {
        let columns = columns(groups);
        let mut layers = FlowLayers {
            groups,
            columns: &columns,
            middles: BTreeMap::new(),
        };
        let slots = layers.slots();
        let height = slots
            .iter()
            .map(|slots| height_of_all(slots))
            .fold(0.0, f64::max);
        for (column, slots) in slots.iter().enumerate() {
            layers.place(column, slots, height);
        }
        let boxes = (0..columns.len()).map(|group| {
            let middle = layers.middle(FlowSlot::Group(group), columns[group]);
            (left(columns[group]), middle - BOX_HEIGHT / 2.0)
        });
        FlowLayout {
            width: left(slots.len().saturating_sub(1)) + BOX_WIDTH + MARGIN,
            height: height + 2.0 * MARGIN,
            boxes: boxes.collect(),
            curves: layers.curves(),
            columns: columns.clone(),
        }
    }
}

/// Returns the longest way from what waits for nothing. In a circle, a job comes first, and the edges back to it do not
/// count.
fn columns(groups: &FlowGroups) -> Vec<usize> {
    let count = groups.members.len();
    let others = || groups.edges.iter().filter(|edge| edge.from != edge.to);
    let mut columns = vec![0; count];
    let mut waits = vec![0_usize; count];
    for edge in others() {
        waits[edge.to] += 1;
    }
    let mut left: BTreeSet<usize> = (0..count).collect();
    let key = |group: &usize, waits: &[usize]| (waits[*group] > 0, groups.are_batches[*group]);
    while let Some(next) = left.iter().copied().min_by_key(|group| key(group, &waits)) {
        left.remove(&next);
        for edge in others().filter(|edge| edge.from == next && left.contains(&edge.to)) {
            columns[edge.to] = columns[edge.to].max(columns[next] + 1);
        }
        for edge in others().filter(|edge| edge.from == next) {
            waits[edge.to] = waits[edge.to].saturating_sub(1);
        }
    }
    columns
}

fn left(column: usize) -> f64 {
    MARGIN + column as f64 * COLUMN
}

fn height_of(slot: &FlowSlot) -> f64 {
    match slot {
        FlowSlot::Group(_) => BOX_HEIGHT,
        FlowSlot::Lane(_) => LANE,
    }
}

/// Returns the height of a column.
fn height_of_all(slots: &[FlowSlot]) -> f64 {
    let gaps = slots.len().saturating_sub(1) as f64 * GAP;
    slots.iter().map(height_of).sum::<f64>() + gaps
}

/// The columns while their places are sought.
struct FlowLayers<'g> {
    groups: &'g FlowGroups,
    columns: &'g [usize],
    /// How far below the top the middle of each slot is, of those that have a place.
    middles: BTreeMap<(usize, FlowSlot), f64>,
}

impl FlowLayers<'_> {
    /// Returns the edges that go to the right, by their bundles.
    fn bundles(&self) -> BTreeMap<EdgeBundle, Vec<&GroupEdge>> {
        let mut bundles: BTreeMap<EdgeBundle, Vec<&GroupEdge>> = BTreeMap::new();
        for edge in self.groups.edges.iter().filter(|edge| self.goes_on(edge)) {
            bundles
                .entry((edge.from, edge.stroke))
                .or_default()
                .push(edge);
        }
        bundles
    }

    fn goes_on(&self, edge: &GroupEdge) -> bool {
        self.columns[edge.from] < self.columns[edge.to]
    }

    /// Returns the columns in which a bundle needs a lane: those between its box and the farthest one it leads to.
    fn lanes(&self, bundle: EdgeBundle, edges: &[&GroupEdge]) -> Range<usize> {
        let columns = edges.iter().map(|edge| self.columns[edge.to]);
        self.columns[bundle.0] + 1..columns.max().unwrap_or(0)
    }

    /// Returns what is in each column.
    fn slots(&self) -> Vec<Vec<FlowSlot>> {
        let count = self.columns.iter().max().map_or(0, |last| last + 1);
        let mut slots = vec![Vec::new(); count];
        for (group, column) in self.columns.iter().enumerate() {
            slots[*column].push(FlowSlot::Group(group));
        }
        for (bundle, edges) in self.bundles() {
            for column in self.lanes(bundle, &edges) {
                slots[column].push(FlowSlot::Lane(bundle));
            }
        }
        slots
    }

    fn middle(&self, slot: FlowSlot, column: usize) -> f64 {
        self.middles.get(&(column, slot)).copied().unwrap_or(0.0)
    }

    /// Returns where a bundle is at a column: its box, or its lane.
    fn at(&self, bundle: EdgeBundle, column: usize) -> f64 {
        match self.columns[bundle.0] == column {
            true => self.middle(FlowSlot::Group(bundle.0), column),
            false => self.middle(FlowSlot::Lane(bundle), column),
        }
    }

    /// Returns where a slot of a column would best be: beside what it waits for.
    fn wish(&self, slot: FlowSlot, column: usize) -> f64 {
        let Some(before) = column.checked_sub(1) else {
            return 0.0;
        };
        let group = match slot {
            FlowSlot::Lane(bundle) => return self.at(bundle, before),
            FlowSlot::Group(group) => group,
        };
        let edges = self.groups.edges.iter();
        let edges = edges.filter(|edge| edge.to == group && self.goes_on(edge));
        let (sum, count) = edges.fold((0.0, 0.0), |(sum, count), edge| {
            (sum + self.at((edge.from, edge.stroke), before), count + 1.0)
        });
        sum / f64::max(count, 1.0)
    }

    /// Gives the slots of a column their places, in the middle of the height.
    fn place(&mut self, column: usize, slots: &[FlowSlot], all: f64) {
        let mut top = MARGIN + (all - height_of_all(slots)) / 2.0;
        let wished = slots.iter().map(|slot| (self.wish(*slot, column), *slot));
        let mut sorted: Vec<(f64, FlowSlot)> = wished.collect();
        sorted.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        for (_, slot) in sorted {
            let middle = top + height_of(&slot) / 2.0;
            self.middles.insert((column, slot), middle);
            top += height_of(&slot) + GAP;
        }
    }

    /// Returns the ways of all edges. Those of a bundle have their lanes in common.
    fn curves(&self) -> Vec<FlowCurve> {
        let mut curves = Vec::new();
        for (bundle, edges) in self.bundles() {
            for column in self.lanes(bundle, &edges) {
                let (before, here) = (self.at(bundle, column - 1), self.at(bundle, column));
                let (from, through) = (right(column - 1), (left(column), here));
                curves.push(curve(bundle.1, (from, before), through, false));
                curves.push(curve(bundle.1, through, (right(column), here), false));
            }
            for edge in edges {
                let before = self.columns[edge.to].saturating_sub(1);
                let from = (right(before), self.at(bundle, before));
                curves.push(curve(bundle.1, from, self.entry(edge.to), true));
            }
        }
        for edge in self.groups.edges.iter().filter(|edge| !self.goes_on(edge)) {
            let column = self.columns[edge.from];
            let from = (
                right(column),
                self.middle(FlowSlot::Group(edge.from), column),
            );
            curves.push(curve(edge.stroke, from, self.entry(edge.to), true));
        }
        curves
    }

    /// Returns where edges come to a box.
    fn entry(&self, group: usize) -> (f64, f64) {
        let column = self.columns[group];
        (left(column), self.middle(FlowSlot::Group(group), column))
    }
}

fn right(column: usize) -> f64 {
    left(column) + BOX_WIDTH
}

fn curve(stroke: FlowStroke, from: (f64, f64), to: (f64, f64), ends: bool) -> FlowCurve {
    FlowCurve {
        stroke,
        from,
        to,
        ends,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::flows::{FlowEdge, FlowGraph, FlowId, FlowNode};
    use crate::job::id::{BatchId, JobId};

    fn node(number: i64) -> FlowNode {
        let is_batch = number % 5 == 0;
        FlowNode {
            id: match is_batch {
                true => BatchId(number).into(),
                false => JobId(number).into(),
            },
            name: format!("n{}", number % 3),
            state: if is_batch { "open" } else { "waits" },
            open: None,
        }
    }

    fn edge(from: FlowId, to: FlowId, kind: &'static str) -> FlowEdge {
        FlowEdge {
            from,
            to,
            kind,
            name: None,
            outcome: None,
        }
    }

    /// A graph with any edges, among them some to the node itself and some in circles.
    fn any_graph(random: &mut fastrand::Rng) -> FlowGraph {
        let nodes: Vec<FlowNode> = (0..random.i64(1..60)).map(node).collect();
        let edges = (0..random.usize(0..90)).map(|_| {
            let [from, to] = [(); 2].map(|()| nodes[random.usize(0..nodes.len())].id);
            let kind = ["success", "in", "undoes"][random.usize(0..3)];
            edge(from, to, kind)
        });
        FlowGraph {
            edges: edges.collect(),
            is_cut: false,
            nodes,
        }
    }

    #[test]
    fn every_graph_is_laid_out_without_overlaps() {
        for seed in 0..300 {
            let graph = any_graph(&mut fastrand::Rng::with_seed(seed));
            let groups = FlowGroups::of(&graph, graph.nodes[0].id);
            let mut members = groups.members.concat();
            members.sort_unstable();
            assert!(members.into_iter().eq(0..graph.nodes.len()), "seed {seed}");
            let layout = FlowLayout::of(&groups);
            let ends = layout.curves.iter().filter(|curve| curve.ends).count();
            assert_eq!(ends, groups.edges.len(), "seed {seed}");
            for (place, (x, y)) in layout.boxes.iter().enumerate() {
                assert!(*x >= 0.0 && x + BOX_WIDTH <= layout.width, "seed {seed}");
                assert!(*y >= 0.0 && y + BOX_HEIGHT <= layout.height, "seed {seed}");
                let beside = layout.boxes.iter().enumerate();
                let mut beside = beside.filter(|(other, at)| *other != place && at.0 == *x);
                assert!(
                    beside.all(|(_, at)| (at.1 - y).abs() >= BOX_HEIGHT),
                    "seed {seed}"
                );
            }
        }
    }

    #[test]
    fn a_column_is_the_longest_way() {
        let nodes: Vec<FlowNode> = [1, 2, 3, 4].map(node).into();
        let [a, b, c, d] = [0, 1, 2, 3].map(|place| nodes[place].id);
        let pairs = [(a, b), (b, c), (a, c), (c, d), (d, b)];
        let edges = pairs.map(|(from, to)| edge(from, to, "success"));
        let graph = FlowGraph {
            nodes,
            edges: edges.into(),
            is_cut: false,
        };
        let groups = FlowGroups::of(&graph, a);
        assert_eq!(columns(&groups), [0, 1, 2, 3], "with a circle");
    }
}
