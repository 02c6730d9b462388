//! All queues, and the paused classes.

pub(crate) mod changes;
pub(crate) mod lines;

use crate::db::Conn;
use crate::db::query::load::queues;
use crate::db::table::run_time::class_pauses::{self, PausedClass};
use crate::error::{Doing as _, Result as WindlassResult};
use crate::history::TimeRange;
use crate::history::curves::queue_curves;
use crate::web::http::response::Response;
use crate::web::pages::now::queues::{LoadNow, Promises};
use crate::web::pages::queues::lines::{PlaceCounts, QueueLine, QueueSums};
use crate::web::pages::section::Section;
use crate::web::pages::shell::Shell;
use crate::web::show::filters;
use crate::web::show::markup::Markup;
use crate::web::sql::cx::Cx;
use crate::web::sql::page_error::PageError;
use crate::web::sql::panel::Panel;
use askama::Template;

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
    let site = cx.site;
    let load = cx.panel("the jobs of each queue", |conn| {
        read(conn, &site.settings.promises)
    });
    let curves = cx.panel("the rates of the queues", |conn| {
        queue_curves(conn, TimeRange::Hour)
    });
    let classes = cx.panel("the paused classes", |conn| {
        class_pauses::all(conn).doing("look at the paused classes")
    });
    let sort = cx.query().get("sort").unwrap_or_default().to_owned();
    let has_rails = load.ready().is_some_and(|(load, _)| load.fleet.has_rails());
    let load = load.map(|(mut load, counts)| {
        if let Some(curves) = curves.ready() {
            for name in curves.names() {
                load.add_empty(name, &site.settings.promises);
            }
        }
        (load, counts)
    });
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

fn read(conn: &mut Conn<'_>, promises: &Promises) -> WindlassResult<(LoadNow, PlaceCounts)> {
    let doing = "count the jobs of each queue";
    let mut load = LoadNow::read(conn, promises)?;
    let counts = PlaceCounts {
        scheduled: queues::scheduled(conn).doing(doing)?,
        claimed: queues::claimed(conn).doing(doing)?,
        blocked: queues::blocked(conn).doing(doing)?,
        failed: queues::failed(conn).doing(doing)?,
    };
    let all = [
        &counts.scheduled,
        &counts.claimed,
        &counts.blocked,
        &counts.failed,
    ];
    let names = all.into_iter().flat_map(|counts| counts.names());
    for name in names.filter(|name| !name.is_empty()).collect::<Vec<_>>() {
        load.add_empty(name, promises);
    }
    Ok((load, counts))
}
