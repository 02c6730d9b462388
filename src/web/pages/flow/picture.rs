//! A flow as a picture. It has geometry and classes only, as charts do, and texts in its boxes.

use crate::admin::flows::{FlowGraph, FlowId, FlowNode};
use crate::web::pages::flow::alike::FlowGroups;
use crate::web::pages::flow::kinds::{self, look};
use crate::web::pages::flow::layers::{BOX_HEIGHT, BOX_WIDTH, FlowCurve, FlowLayout};
use crate::web::pages::flow::table::anchor;
use crate::web::request::shell::Shell;
use crate::web::show::chart::svg::number;
use crate::web::show::markup::{Markup, escaped};
use crate::web::show::numbers::count;

/// How many narrow characters fit into a box.
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
    let (class, word) = look(first);
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
