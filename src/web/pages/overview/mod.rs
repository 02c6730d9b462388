//! The first page: what needs attention, then how the jobs run.

pub(crate) mod charts;
pub(crate) mod doctor_rows;
pub(crate) mod lead;
pub(crate) mod queue_rows;
pub(crate) mod running;
pub(crate) mod vitals;

use crate::history::SeriesTally;
use crate::web::http::page_error::PageError;
use crate::web::http::response::Response;
use crate::web::pages::overview::charts::Charts;
use crate::web::pages::overview::doctor_rows::DoctorRows;
use crate::web::pages::overview::queue_rows::QueueRow;
use crate::web::pages::overview::running::LongRun;
use crate::web::pages::overview::vitals::{Vital, VitalFacts};
use crate::web::pages::ranges::{self, RangeTab};
use crate::web::read::concern::{Concern, ConcernAction};
use crate::web::read::last_hour::LastHour;
use crate::web::read::watch::Found;
use crate::web::reads::looks::{BUSIEST, FINDINGS, LAST_HOUR};
use crate::web::request::cx::Cx;
use crate::web::request::panel::Panel;
use crate::web::request::shell::Shell;
use crate::web::show::filters;
use crate::web::show::markup::Markup;
use crate::web::site::section::Section;
use askama::Template;

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

/// Shows the overview.
pub(crate) fn show(cx: &mut Cx<'_>) -> Result<Response, PageError> {
    let found = cx.look_panel("what needs attention");
    let hour = cx.shared_panel("the rates of the last hour", &LAST_HOUR);
    let hour = hour.map(|(hour, _)| hour);
    let facts = cx.panel("how many jobs there are", vitals::read);
    let range = ranges::chosen(cx.request);
    let charts = charts::read(cx, range, hour.ready().map(|hour| hour.buckets.as_slice()));
    let watch = cx.watch();
    let running = cx.panel("the jobs that run for longest", |conn| {
        running::read(conn, &watch.usual_runs)
    });
    let classes = cx.shared_panel("the busiest classes of the last hour", &BUSIEST);
    let doctor = cx.shared_panel("the checks of doctor", &FINDINGS);
    let has_concerns = found
        .ready()
        .is_some_and(|(_, concerns)| !concerns.is_empty());
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
        doctor: doctor.map(|(findings, age)| DoctorRows::of(&findings, age, has_concerns)),
        classes: classes.map(|(classes, _)| classes),
        shell: cx.shell("Overview", Section::Overview)?,
    };
    cx.render(&page)
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
