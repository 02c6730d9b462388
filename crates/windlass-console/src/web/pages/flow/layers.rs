//! The layout of a flow: its boxes are in a column for each layer, from left to right.

use crate::web::pages::flow::kinds::{self, FlowStroke, anchor, class_and_word};
use crate::web::request::shell::Shell;
use crate::web::show::chart::number;
use crate::web::show::{Markup, count, escaped};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use windlass::flows::{FlowGraph, FlowId, FlowNode};

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

/// An element that has a place in a column.
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
    /// True if it ends at a box, and has the head of an arrow.
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
    /// The distance from the top to the middle of each slot that has a place.
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

// --- Jobs and batches that are alike, so that one box stands for all of them ---

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
    /// True for each group that is a batch.
    pub(super) are_batches: Vec<bool>,
}

impl FlowGroups {
    /// Groups the nodes that have the same name and state, wait for the same groups, and are waited for by the same
    /// groups. The one at `here` stays alone.
    pub(super) fn of(graph: &FlowGraph, here: FlowId) -> Self {
        let positions: BTreeMap<FlowId, usize> = (0..)
            .zip(&graph.nodes)
            .map(|(position, node)| (node.id, position))
            .collect();
        let position = |id: &FlowId| positions.get(id).copied();
        let edges: Vec<(usize, &'static str, usize)> = graph
            .edges
            .iter()
            .filter_map(|edge| Some((position(&edge.from)?, edge.kind, position(&edge.to)?)))
            .collect();
        let nodes = graph.nodes.iter();
        let shown = nodes.map(|node| (is_batch(node.id), node.id == here, &node.name, node.state));
        let (mut groups, mut count) = numbered(shown);
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

// --- A flow as a picture ---

/// The number of narrow characters that fit into the upper and the lower line of a box.
const NAME: usize = 22;
const BELOW: usize = 26;

/// Draws a flow. The job or batch at `here` has a thick frame. It is a group and no image, since an image has no links.
pub(super) fn picture(
    graph: &FlowGraph,
    groups: &FlowGroups,
    layout: &FlowLayout,
    here: FlowId,
    shell: &Shell,
) -> Markup {
    let mut content: String = layout.curves.iter().map(drawn).collect();
    for (members, at) in groups.members.iter().zip(&layout.boxes) {
        let nodes: Vec<&FlowNode> = members.iter().map(|place| &graph.nodes[*place]).collect();
        content.push_str(&boxed(&nodes, *at, here, shell));
    }
    let (width, height) = (number(layout.width), number(layout.height));
    let label = format!(
        "{} jobs and batches, from left to right as they wait for each other; the table below has the same",
        count(graph.nodes.len())
    );
    Markup::trusted(format!(
        "<svg class=\"flow\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" role=\"group\" \
         aria-label=\"{}\">{content}</svg>",
        escaped(&label)
    ))
}

fn drawn(curve: &FlowCurve) -> String {
    let ((x1, y1), (x2, y2)) = (curve.from, curve.to);
    let bend = if x2 > x1 { (x2 - x1) / 2.0 } else { 48.0 };
    let class = curve.stroke.class();
    let [a, b, c, d, e, f] = [x1, y1, x1 + bend, x2 - bend, x2, y2].map(number);
    let way = format!("<path class=\"way{class}\" d=\"M{a} {b}C{c} {b} {d} {f} {e} {f}\"/>");
    match curve.ends {
        true => format!("{way}<path class=\"tip{class}\" d=\"M{e} {f}l-7-4v8z\"/>"),
        false => way,
    }
}

/// Returns the box of jobs or batches that are alike.
fn boxed(nodes: &[&FlowNode], (x, y): (f64, f64), here: FlowId, shell: &Shell) -> String {
    let Some(first) = nodes.first() else {
        return String::new();
    };
    let (class, word) = class_and_word(first);
    let name = kinds::name(first);
    let (top, below, href) = match nodes.len() {
        1 => {
            let word = if class.is_empty() { "not kept" } else { word };
            let below = format!("{word} · {}", kinds::title(first.id));
            (name, below, kinds::href(first, shell))
        }
        many => {
            let top = format!("{} × {name}", count(many));
            (top, word.to_owned(), format!("#{}", anchor(first.id)))
        }
    };
    let frame = if first.id == here {
        "node here"
    } else {
        "node"
    };
    let [x, y, width, height] = [x, y, BOX_WIDTH, BOX_HEIGHT].map(number);
    let inner = format!(
        "<svg class=\"{class}\" x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\">\
         <title>{}</title><rect class=\"{frame}\" x=\"1\" y=\"1\" width=\"{}\" height=\"{}\" rx=\"4\"/>{}\
         <text x=\"10\" y=\"18\">{}</text><text class=\"sub\" x=\"{}\" y=\"35\">{}</text></svg>",
        escaped(&format!("{top}: {below}")),
        number(BOX_WIDTH - 2.0),
        number(BOX_HEIGHT - 2.0),
        shape(class),
        escaped(&fitting(&top, NAME)),
        if class.is_empty() { 10 } else { 25 },
        escaped(&fitting(&below, BELOW)),
    );
    match href.is_empty() {
        true => inner,
        false => format!("<a href=\"{}\">{inner}</a>", escaped(&href)),
    }
}

/// Cuts a text to the place of so many narrow characters. Those outside of Latin are taken as wide.
fn fitting(text: &str, most: usize) -> String {
    let mut used = 0;
    let wide = |c: char| if c < '\u{250}' { 1 } else { 2 };
    let end = text.char_indices().find(|(_, c)| {
        used += wide(*c);
        used > most
    });
    match end {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Returns the shape of a state, as beside its word on the pages.
fn shape(class: &str) -> String {
    let data = match class {
        "run" => "M12 26.5v9l8-4.5z",
        "done" => "M11 31.2l1.4-1.5 2.1 2 4.2-4.6 1.4 1.4-5.5 6.2z",
        "fail" => {
            "M12.4 26.4l3.1 3.1 3.1-3.1 1.5 1.5-3.1 3.1 3.1 3.1-1.5 1.5-3.1-3.1-3.1 3.1-1.5-1.5 3.1-3.1-3.1-3.1z"
        }
        "disc" => "M11 30h9v2h-9z",
        "ready" => return "<circle class=\"ring\" cx=\"15.5\" cy=\"31\" r=\"3.5\"/>".to_owned(),
        _ => return String::new(),
    };
    format!("<path class=\"mark\" d=\"{data}\"/>")
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass::flows::{FlowEdge, FlowGraph, FlowId, FlowNode};
    use windlass::{BatchId, JobId};

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

    #[test]
    fn a_text_is_cut_to_its_box() {
        for (text, shown) in [
            ("resize", "resize"),
            ("resize_it", "resize_…"),
            ("漢字漢字漢字", "漢字漢…"),
        ] {
            assert_eq!(fitting(text, 7), shown);
        }
    }
}
