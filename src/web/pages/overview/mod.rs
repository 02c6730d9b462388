//! The first page: what needs attention, then how the jobs run.

pub(crate) mod busiest;
pub(crate) mod charts;
pub(crate) mod doctor_rows;
pub(crate) mod lead;
pub(crate) mod queue_rows;
pub(crate) mod running;
pub(crate) mod vitals;

use crate::admin::finding::Finding;
use crate::history::curves::{QueueCurves, queue_curves};
use crate::history::{Bucket, HistoryFilter, SeriesTally, TimeRange, Usual, series, usual};
use crate::web::http::response::Response;
use crate::web::pages::now::concern::{Concern, ConcernAction};
use crate::web::pages::now::queues::LoadNow;
use crate::web::pages::overview::charts::Charts;
use crate::web::pages::overview::doctor_rows::DoctorRows;
use crate::web::pages::overview::queue_rows::QueueRow;
use crate::web::pages::overview::running::LongRun;
use crate::web::pages::overview::vitals::{Vital, VitalFacts};
use crate::web::pages::ranges::{self, RangeTab};
use crate::web::pages::section::Section;
use crate::web::pages::shell::Shell;
use crate::web::show::filters;
use crate::web::show::markup::Markup;
use crate::web::sql::cx::Cx;
use crate::web::sql::page_error::PageError;
use crate::web::sql::panel::Panel;
use askama::Template;
use std::time::Duration;

#[derive(Template)]
#[template(path = "overview/page.html")]
struct OverviewPage {
    shell: Shell,
    lead: Markup,
    has_rails: bool,
    concerns: Panel<Vec<Concern>>,
    vitals: Panel<Vec<Vital>>,
    ranges: Vec<RangeTab>,
    charts: Panel<Charts>,
    queues: Panel<Vec<QueueRow>>,
    running: Panel<Vec<LongRun>>,
    doctor: Panel<DoctorRows>,
    classes: Panel<Vec<SeriesTally>>,
}

/// The history of the last hour, and what is usual.
#[derive(Debug, Clone)]
struct LastHour {
    buckets: Vec<Bucket>,
    curves: QueueCurves,
    usual: Option<Usual>,
}

/// What needs attention, and the load that it was found in.
type Found = (LoadNow, Vec<Concern>);

/// Shows the overview.
pub(crate) fn show(cx: &mut Cx<'_>) -> Result<Response, PageError> {
    let now = cx.frame()?.now.and_utc();
    let found = look(cx);
    let hour = cx.panel("the rates of the last hour", |conn| {
        Ok(LastHour {
            buckets: series(conn, &HistoryFilter::all(), TimeRange::Hour)?,
            curves: queue_curves(conn, TimeRange::Hour)?,
            usual: usual(conn, &HistoryFilter::all(), now)?,
        })
    });
    let facts = cx.panel("how many jobs there are", vitals::read);
    let range = ranges::chosen(cx.request);
    let charts = charts::read(cx, range, hour.ready().map(|hour| hour.buckets.as_slice()));
    let running = cx.panel("the jobs that run for longest", running::read);
    let classes = cx.panel("the busiest classes of the last hour", busiest::read);
    let doctor = findings(cx);
    let page = OverviewPage {
        lead: lead::of(&found, hour.ready().map(|hour| hour.buckets.as_slice())),
        has_rails: found
            .ready()
            .is_some_and(|(load, _)| load.fleet.has_rails()),
        vitals: vitals_of(&found, &hour, facts),
        ranges: ranges::tabs(cx.request),
        charts: charts?,
        queues: found.clone().map(|(load, _)| {
            let curves = hour.ready().map(|hour| &hour.curves);
            queue_rows::of(&load, curves)
        }),
        running: running
            .map(|runs| running::rows(runs, found.ready().map(|(load, _)| &load.fleet))),
        concerns: found.map(|(_, concerns)| concerns),
        doctor: doctor.map(|(findings, age)| DoctorRows::of(&findings, age)),
        classes,
        shell: cx.shell("Overview", Section::Overview)?,
    };
    cx.render(&page)
}

fn look(cx: &mut Cx<'_>) -> Panel<Found> {
    let site = cx.site;
    let source = site.sources.get(cx.request.database);
    cx.panel("what needs attention", |conn| match source {
        Some(source) => source.watch.look(conn, &site.settings.promises),
        None => Ok((LoadNow::default(), Vec::new())),
    })
}

/// Reads the findings of `doctor`, at most a minute old.
pub(crate) fn findings(cx: &mut Cx<'_>) -> Panel<(Vec<Finding>, Duration)> {
    let source = cx.site.sources.get(cx.request.database);
    cx.panel("the checks of doctor", |conn| match source {
        Some(source) => source.watch.findings(conn),
        None => Ok((Vec::new(), Duration::ZERO)),
    })
}

/// Needs all three reads: a measure is shown with what it is judged by.
fn vitals_of(
    found: &Panel<Found>,
    hour: &Panel<LastHour>,
    facts: Panel<VitalFacts>,
) -> Panel<Vec<Vital>> {
    let (load, hour) = match (found, hour) {
        (Panel::Ready((load, _)), Panel::Ready(hour)) => (load, hour),
        (Panel::Missing(missing), _) | (_, Panel::Missing(missing)) => {
            return Panel::Missing(missing.clone());
        }
    };
    facts.map(|facts| vitals::of(load, &hour.buckets, hour.usual.as_ref(), &facts))
}
