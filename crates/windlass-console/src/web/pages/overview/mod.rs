//! The first page: what needs attention, then how the jobs run.

pub(crate) mod running;
pub(crate) mod vitals;

use crate::read::doctor::scope::{Finding, Verdict};
use crate::read::now::LoadNow;
use crate::web::http::{PageError, Response};
use crate::web::pages::overview::running::{LongRun, QueueRow};
use crate::web::pages::overview::vitals::{Vital, VitalFacts, recent};
use crate::web::pages::words::{self, RangeTab};
use crate::web::read::LoadAndConcerns;
use crate::web::read::concerns::{Concern, ConcernAction, LastHour};
use crate::web::reads::{BUSIEST, FINDINGS, LAST_HOUR};
use crate::web::request::panels::Panel;
use crate::web::request::route::Cx;
use crate::web::request::shell::Shell;
use crate::web::show::chart::latency::latency_chart;
use crate::web::show::chart::throughput::throughput;
use crate::web::show::{Markup, ago, escaped, filters, in_words, verdict};
use crate::web::site::Section;
use askama::Template;
use std::time::Duration;
use windlass::history::{Bucket, HistoryFilter, SeriesTally, TimeRange, series};

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
    let found = cx.load_panel("what needs attention");
    let hour = cx.cached_panel("the rates of the last hour", &LAST_HOUR);
    let hour = hour.map(|(hour, _)| hour);
    let facts = cx.panel("how many jobs there are", vitals::read);
    let range = words::chosen(cx.request);
    let charts = read(cx, range, hour.ready().map(|hour| hour.buckets.as_slice()));
    let watch = cx.watch();
    let running = cx.panel("the jobs that run for longest", |conn| {
        running::read(conn, &watch.usual_runs)
    });
    let classes = cx.cached_panel("the busiest classes of the last hour", &BUSIEST);
    let doctor = cx.cached_panel("the checks of doctor", &FINDINGS);
    let has_concerns = found
        .ready()
        .is_some_and(|(_, concerns)| !concerns.is_empty());
    let page = OverviewPage {
        lead: attention_sentence(&found, hour.ready().map(|hour| hour.buckets.as_slice())),
        has_rails: found
            .ready()
            .is_some_and(|(load, _)| load.fleet.has_rails()),
        vitals: vitals_of(&found, &hour, facts),
        ranges: words::tabs(cx.request),
        charts: charts?,
        queues: found.clone().map(|(load, _)| {
            let curves = hour.ready().map(|hour| &hour.curves);
            running::queue_rows(&load, curves)
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
    found: &Panel<LoadAndConcerns>,
    hour: &Panel<LastHour>,
    facts: Panel<VitalFacts>,
) -> Panel<Vec<Vital>> {
    let (load, hour) = match (found, hour) {
        (Panel::Ready((load, _)), Panel::Ready(hour)) => (load, hour),
        (Panel::Missing(missing), _) | (_, Panel::Missing(missing)) => {
            return Panel::Missing(missing.clone());
        }
    };
    facts.map(|facts| vitals::overview_vitals(load, &hour.buckets, hour.usual.as_ref(), &facts))
}

// --- The charts of throughput and wait, of everything or of one queue ---

/// The two charts.
#[derive(Debug, Clone)]
pub(crate) struct Charts {
    pub(crate) throughput: Markup,
    pub(crate) waits: Markup,
}

/// Draws the charts of everything. The buckets of the last hour have been read already.
pub(crate) fn read(
    cx: &mut Cx<'_>,
    range: TimeRange,
    hour: Option<&[Bucket]>,
) -> Result<Panel<Charts>, PageError> {
    let buckets = match (range, hour) {
        (TimeRange::Hour, Some(buckets)) => Panel::Ready(buckets.to_vec()),
        _ => cx.panel("throughput and waits", |conn| {
            series(conn, &HistoryFilter::all(), range)
        }),
    };
    Ok(match buckets {
        Panel::Missing(missing) => Panel::Missing(missing),
        Panel::Ready(buckets) => Panel::Ready(Charts {
            throughput: throughput(&buckets, range)?,
            waits: latency_chart(&buckets, range, None, "late")?,
        }),
    })
}

// --- The findings of `doctor`, as pages show them ---

/// A finding.
#[derive(Debug, Clone)]
pub(crate) struct DoctorRow {
    pub(crate) check: &'static str,
    pub(crate) verdict: Markup,
    pub(crate) says: String,
    /// The ids of the first few jobs affected.
    pub(crate) jobs: Vec<i64>,
}

impl DoctorRow {
    pub(crate) fn of(finding: &Finding) -> Self {
        DoctorRow {
            check: finding.check,
            verdict: match finding.verdict {
                Verdict::Fine => verdict("ok", "fine"),
                Verdict::Warning => verdict("warn", "warning"),
                Verdict::Problem => verdict("bad", "problem"),
            },
            says: finding.says.clone(),
            jobs: finding.jobs.clone(),
        }
    }
}

/// Returns when the checks ran, not so exactly that an open page changes by it.
pub(crate) fn checked(age: Duration) -> String {
    match age.as_secs() {
        0..60 => "within the last minute".to_owned(),
        _ => ago(age.as_secs_f64()),
    }
}

/// The findings, with all that are fine in one row.
#[derive(Debug, Clone)]
pub(crate) struct DoctorRows {
    /// Those that are not fine, the worst first.
    pub(crate) findings: Vec<DoctorRow>,
    /// The names of the checks that are fine.
    pub(crate) fine: String,
    /// The verdict on these, and what it says.
    pub(crate) verdict: Markup,
    pub(crate) says: &'static str,
    /// The time since the checks ran, in words.
    pub(crate) checked: String,
}

impl DoctorRows {
    /// Beside concerns that are not `doctor`'s, its checks are not called fine: they have found nothing.
    pub(crate) fn of(findings: &[Finding], age: Duration, has_concerns: bool) -> Self {
        let fine = |finding: &&Finding| finding.verdict == Verdict::Fine;
        let mut bad: Vec<&Finding> = findings.iter().filter(|one| !fine(one)).collect();
        bad.sort_by_key(|finding| std::cmp::Reverse(finding.verdict));
        let names: Vec<&str> = findings.iter().filter(fine).map(|one| one.check).collect();
        DoctorRows {
            findings: bad.into_iter().map(DoctorRow::of).collect(),
            fine: names.join(", "),
            verdict: match has_concerns {
                true => Markup::element("span", "q", "no finding"),
                false => verdict("ok", "fine"),
            },
            says: match has_concerns {
                true => "See “Needs attention”.",
                false => "Nothing to do.",
            },
            checked: checked(age),
        }
    }
}

// --- The sentence on top of the overview ---

/// Returns whether all is well, and if not, how much is not.
pub(crate) fn attention_sentence(
    found: &Panel<(LoadNow, Vec<Concern>)>,
    hour: Option<&[Bucket]>,
) -> Markup {
    let Some((load, concerns)) = found.ready() else {
        return Markup::trusted(escaped("What needs attention is not known at the moment."));
    };
    let jobs = jobs(load, hour);
    let things = match concerns.len() {
        0 => "Nothing needs attention.".to_owned(),
        number => {
            let is_bad = concerns.iter().any(|concern| concern.kind.is_bad());
            let class = if is_bad { "bad" } else { "warn" };
            let (noun, verb) = if number == 1 {
                ("thing", "needs")
            } else {
                ("things", "need")
            };
            format!(
                "<b class=\"{class}\">{} {noun} {verb} attention.</b>",
                in_words(number)
            )
        }
    };
    Markup::trusted(format!("{jobs} {things}"))
}

fn jobs(load: &LoadNow, hour: Option<&[Bucket]>) -> &'static str {
    let is_ready = load.queues.values().any(|queue| !queue.ready.is_zero());
    let (_, busy) = load.fleet.threads();
    let ended = hour.map_or(0, |buckets| recent(buckets).ended());
    match (load.fleet.alive_workers().next(), is_ready) {
        (None, true) => "Jobs are ready, and <b class=\"bad\">no worker runs</b>.",
        (None, false) => "No worker runs, and no job is ready.",
        (Some(_), _) if busy > 0 || ended > 0 => "Jobs run.",
        (Some(_), true) => "Jobs are ready, and none runs.",
        (Some(_), false) => "No job is ready, and none runs.",
    }
}
