//! The dependencies around a job or a batch: a picture, and a table with the same content.

mod kinds;
mod layers;

use crate::web::http::{PageError, Response};
use crate::web::pages::batches::one::no_such_batch;
use crate::web::pages::flow::kinds::{FlowRow, FlowStroke, rows};
use crate::web::pages::flow::layers::{FlowGroups, FlowLayout, picture};
use crate::web::pages::job::{no_such_job, number};
use crate::web::request::panels::Panel;
use crate::web::request::route::Cx;
use crate::web::request::shell::Shell;
use crate::web::show::{Markup, filters};
use crate::web::site::Section;
use askama::Template;
use std::collections::BTreeSet;
use windlass::flows::{FlowGraph, FlowId};
use windlass::{BatchId, Conn, Error, JobId, Result};

// --- The pages of a flow ---

/// The content of a flow's page.
struct FlowView {
    picture: Markup,
    /// The strokes of the picture.
    keys: Vec<(&'static str, &'static str)>,
    rows: Vec<FlowRow>,
    is_cut: bool,
    /// True if one waits for another.
    has_edges: bool,
}

#[derive(Template)]
#[template(path = "flow.html")]
struct FlowPage {
    shell: Shell,
    /// `job 4,711`
    title: String,
    /// The page of the job or the batch.
    href: String,
    /// The arguments of `windlass flows show` for the same flow.
    arguments: String,
    flow: Panel<FlowView>,
}

/// Shows what waits for what around a job.
pub(crate) fn of_job(cx: &mut Cx<'_>) -> Result<Response, PageError> {
    let id = number(cx.param("id"))?;
    show(cx, FlowId::Job(JobId(id)), Section::Jobs, no_such_job(id))
}

/// Shows what waits for what around a batch.
pub(crate) fn of_batch(cx: &mut Cx<'_>) -> Result<Response, PageError> {
    let text = cx.param("id").to_owned();
    let missing = no_such_batch(&text);
    match text.parse() {
        Ok(id) => show(cx, FlowId::Batch(BatchId(id)), Section::Batches, missing),
        Err(_) => Err(missing),
    }
}

fn show(
    cx: &mut Cx<'_>,
    here: FlowId,
    section: Section,
    missing: PageError,
) -> Result<Response, PageError> {
    let title = kinds::title(here);
    let shell = cx.shell(&format!("Flow of {title}"), section)?;
    let flow = match cx.panel("what waits for what", |conn| read_graph(conn, here)) {
        Panel::Ready(None) => return Err(missing),
        Panel::Ready(Some(graph)) => Panel::Ready(FlowView::of(&graph, here, &shell)),
        Panel::Missing(missing) => Panel::Missing(missing),
    };
    cx.render(&FlowPage {
        href: shell.link(&kinds::path(here)),
        arguments: match here {
            FlowId::Job(id) => id.0.to_string(),
            FlowId::Batch(id) => format!("--batch {}", id.0),
        },
        title,
        flow,
        shell,
    })
}

fn read_graph(conn: &mut Conn<'_>, here: FlowId) -> Result<Option<FlowGraph>> {
    match FlowGraph::around(conn, here) {
        Err(Error::NoSuchJob { .. } | Error::NoSuchBatch { .. }) => Ok(None),
        graph => graph.map(Some),
    }
}

impl FlowView {
    fn of(graph: &FlowGraph, here: FlowId, shell: &Shell) -> Self {
        let groups = FlowGroups::of(graph, here);
        let layout = FlowLayout::of(&groups);
        let mut order: Vec<(usize, usize, usize)> = Vec::new();
        for (group, members) in groups.members.iter().enumerate() {
            let column = layout.columns[group];
            order.extend(members.iter().map(|place| (column, group, *place)));
        }
        order.sort_unstable();
        let order: Vec<usize> = order.into_iter().map(|(_, _, place)| place).collect();
        let strokes: BTreeSet<FlowStroke> = groups.edges.iter().map(|edge| edge.stroke).collect();
        FlowView {
            picture: picture(graph, &groups, &layout, here, shell),
            keys: strokes.into_iter().map(FlowStroke::key).collect(),
            rows: rows(graph, &order, here, shell),
            is_cut: graph.is_cut,
            has_edges: !graph.edges.is_empty(),
        }
    }
}
