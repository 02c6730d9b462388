//! All queues, and the paused classes.

pub(crate) mod changes;
pub(crate) mod lines;

use crate::admin::now::{LoadNow, Promises};
use crate::db::table::run_time::class_pauses::{self, PausedClass};
use crate::error::Doing as _;
use crate::history::TimeRange;
use crate::history::curves::{QueueCurves, queue_curves};
use crate::web::http::page_error::PageError;
use crate::web::http::response::Response;
use crate::web::pages::queues::lines::{QueueLine, QueueSums};
use crate::web::read::places::PlaceCounts;
use crate::web::read::watch::Found;
use crate::web::reads::looks::PLACES;
use crate::web::request::cx::Cx;
use crate::web::request::panel::Panel;
use crate::web::request::shell::Shell;
use crate::web::show::filters;
use crate::web::show::markup::Markup;
use crate::web::site::section::Section;
use askama::Template;
use std::time::Duration;

#[derive(Template)]
#[template(path = "queues/page.html")]
struct QueuesPage {
    shell: Shell,
    lead: Markup,
    has_rails: bool,
    queues: Panel<QueueTable>,
    /// By what the table is sorted: empty for the worst first.
    sort: String,
    classes: Panel<Vec<PausedClass>>,
}

/// The table of the queues.
#[derive(Debug)]
struct QueueTable {
    lines: Vec<QueueLine>,
    sums: QueueSums,
    is_more: bool,
}

/// Shows all queues.
pub(crate) fn show(cx: &mut Cx<'_>) -> Result<Response, PageError> {
    let promises = &cx.site.settings.promises;
    let found = cx.look_panel("the jobs of each queue");
    let counts = cx.shared_panel("the jobs of each queue", &PLACES);
    let curves = cx.panel("the rates of the queues", |conn| {
        queue_curves(conn, TimeRange::Hour)
    });
    let classes = cx.panel("the paused classes", |conn| {
        class_pauses::all(conn).doing("look at the paused classes")
    });
    let sort = cx.query().get("sort").unwrap_or_default().to_owned();
    let load = together(found, counts, curves.ready(), promises);
    let has_rails = load.ready().is_some_and(|(load, _)| load.fleet.has_rails());
    let lead = lines::lead(load.ready().map(|(load, _)| load));
    let queues = load.map(|(load, counts)| QueueTable {
        lines: lines::of(&load, &counts, curves.ready(), &sort),
        sums: QueueSums::of(&load, &counts),
        is_more: load.is_more,
    });
    let page = QueuesPage {
        lead,
        has_rails,
        queues,
        sort,
        classes,
        shell: cx.shell("Queues", Section::Queues)?,
    };
    cx.render(&page)
}

/// Returns the queues that are known from anywhere, and what they have.
fn together(
    found: Panel<Found>,
    counts: Panel<(PlaceCounts, Duration)>,
    curves: Option<&QueueCurves>,
    promises: &Promises,
) -> Panel<(LoadNow, PlaceCounts)> {
    let (mut load, counts) = match (found, counts) {
        (Panel::Ready((load, _)), Panel::Ready((counts, _))) => (load, counts),
        (Panel::Missing(missing), _) | (_, Panel::Missing(missing)) => {
            return Panel::Missing(missing);
        }
    };
    let curves = curves.into_iter().flat_map(QueueCurves::names);
    for name in counts.names().chain(curves) {
        load.add_empty(name, promises);
    }
    Panel::Ready((load, counts))
}
