//! A flow as a text tree, and in the languages of Graphviz and Mermaid.

use crate::admin::flows::{FlowEdge, FlowGraph, FlowId, FlowNode};
use std::collections::BTreeSet;
use std::fmt::Write as _;

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
