//! One queue: whether its jobs start in time, why not, and what is next.

pub(crate) mod classes;
pub(crate) mod measures;
pub(crate) mod now;
pub(crate) mod why;

use crate::db::Conn;
use crate::error::Result as WindlassResult;
use crate::history::{Bucket, HistoryFilter, SeriesTally, TimeRange, by_class, series};
use crate::web::http::page_error::PageError;
use crate::web::http::response::Response;
use crate::web::pages::overview::charts::Charts;
use crate::web::pages::overview::vitals::Vital;
use crate::web::pages::queue::classes::ClassLine;
use crate::web::pages::queue::now::{LineJob, QueueDetails, ServingWorker};
use crate::web::pages::queue::why::Why;
use crate::web::pages::ranges::{self, RangeTab};
use crate::web::reads::looks::PLACES;
use crate::web::request::cx::Cx;
use crate::web::request::panel::Panel;
use crate::web::request::shell::Shell;
use crate::web::show::chart::histogram::run_times;
use crate::web::show::chart::throughput::throughput;
use crate::web::show::chart::waits::waits;
use crate::web::show::filters;
use crate::web::show::markup::Markup;
use crate::web::site::section::Section;
use askama::Template;
use std::time::Duration;

#[derive(Template)]
#[template(path = "queue/page.html")]
struct QueuePage {
    shell: Shell,
    name: String,
    has_rails: bool,
    why: Panel<Why>,
    is_paused: bool,
    measures: Panel<Vec<Vital>>,
    ranges: Vec<RangeTab>,
    charts: Panel<QueueCharts>,
    classes: Panel<Vec<ClassLine>>,
    next: Panel<Vec<LineJob>>,
    workers: Panel<Vec<ServingWorker>>,
    range_words: &'static str,
}

/// The charts of a queue.
#[derive(Debug, Clone)]
struct QueueCharts {
    of_time: Charts,
    run_times: Option<Markup>,
}

/// What the history has about a queue.
struct QueueHistory {
    hour: Vec<Bucket>,
    buckets: Vec<Bucket>,
    classes: Vec<SeriesTally>,
}

/// Shows a queue.
pub(crate) fn show(cx: &mut Cx<'_>) -> Result<Response, PageError> {
    let name = cx.param("name").to_owned();
    if name.contains('\0') {
        return Err(PageError::NotFound("No queue has this name.".to_owned()));
    }
    let site = cx.site;
    let promise = site.settings.promises.get(&name).copied();
    let details = details(cx, &name);
    let range = ranges::chosen(cx.request);
    let history = cx.panel("the history of this queue", |conn| {
        read_history(conn, &name, range)
    });
    let next = cx.panel("the next jobs of this queue", |conn| now::next(conn, &name));
    let counts = cx.panel("the jobs of each class", |conn| classes::read(conn, &name));
    let hour = history.ready().map(|history| history.hour.as_slice());
    let page = QueuePage {
        has_rails: details.ready().is_some_and(|one| one.fleet.has_rails()),
        is_paused: details.ready().is_some_and(|one| one.queue.pause.is_some()),
        why: details.clone().map(|details| why::of(&details)),
        measures: details.clone().map(|details| measures::of(&details, hour)),
        ranges: ranges::tabs(cx.request),
        range_words: ranges::in_words(range),
        charts: charts(&history, range, promise)?,
        classes: counts.map(|counts| {
            let ended = history.ready().map(|history| history.classes.as_slice());
            classes::lines(&counts, details.ready(), ended, range)
        }),
        workers: details.map(|details| now::serving(&details)),
        next,
        shell: cx.shell(&format!("Queue {name}"), Section::Queues)?,
        name,
    };
    cx.render(&page)
}

/// Reads the two parts of what is known of a queue's jobs, both for one panel.
fn details(cx: &mut Cx<'_>, name: &str) -> Panel<QueueDetails> {
    const WHAT: &str = "the jobs of this queue";
    let promises = &cx.site.settings.promises;
    match cx.shared_panel(WHAT, &PLACES) {
        Panel::Missing(missing) => Panel::Missing(missing),
        Panel::Ready((places, _)) => cx.panel(WHAT, |conn| {
            QueueDetails::read(conn, name, promises, &places)
        }),
    }
}

fn read_history(
    conn: &mut Conn<'_>,
    queue: &str,
    range: TimeRange,
) -> WindlassResult<QueueHistory> {
    let filter = HistoryFilter::all().queue(queue);
    let hour = series(conn, &filter, TimeRange::Hour)?;
    Ok(QueueHistory {
        buckets: match range {
            TimeRange::Hour => hour.clone(),
            range => series(conn, &filter, range)?,
        },
        hour,
        classes: by_class(conn, Some(queue), range)?,
    })
}

fn charts(
    history: &Panel<QueueHistory>,
    range: TimeRange,
    promise: Option<Duration>,
) -> Result<Panel<QueueCharts>, PageError> {
    let history = match history {
        Panel::Missing(missing) => return Ok(Panel::Missing(missing.clone())),
        Panel::Ready(history) => history,
    };
    let mut runs = crate::history::Histogram::default();
    for bucket in &history.buckets {
        runs.merge(&bucket.tally.run);
    }
    let run_times = match runs.is_empty() {
        true => None,
        false => Some(run_times(&runs, ranges::in_words(range))?),
    };
    Ok(Panel::Ready(QueueCharts {
        of_time: Charts {
            throughput: throughput(&history.buckets, range)?,
            waits: waits(&history.buckets, range, promise, "late")?,
        },
        run_times,
    }))
}
