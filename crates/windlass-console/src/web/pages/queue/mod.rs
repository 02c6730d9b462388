//! One queue: whether its jobs start in time, why not, and what is next.

pub(crate) mod now;

use crate::read::sql::totals::{self, ClassCount};
use crate::web::http::{PageError, Response};
use crate::web::pages::overview::Charts;
use crate::web::pages::overview::vitals::Vital;
use crate::web::pages::queue::now::{LineJob, QueueDetails, ServingWorker, Why};
use crate::web::pages::words::{self, RangeTab};
use crate::web::reads::PLACES;
use crate::web::request::panels::Panel;
use crate::web::request::route::Cx;
use crate::web::request::shell::Shell;
use crate::web::show::chart::histogram::run_times;
use crate::web::show::chart::latency::latency_chart;
use crate::web::show::chart::throughput::throughput;
use crate::web::show::{Markup, bounded, count, duration, filters, short, verdict};
use crate::web::site::Section;
use askama::Template;
use std::collections::BTreeMap;
use std::time::Duration;
use windlass::history::{Bucket, HistoryFilter, SeriesTally, TimeRange, by_class, series};
use windlass::internal::db::query::ready::CappedCount;
use windlass::internal::error::ErrorContext as _;
use windlass::{Conn, Result, Result as WindlassResult};

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

/// The history of a queue.
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
    let range = words::chosen(cx.request);
    let history = cx.panel("the history of this queue", |conn| {
        read_history(conn, &name, range)
    });
    let next = cx.panel("the next jobs of this queue", |conn| now::next(conn, &name));
    let counts = cx.panel("the jobs of each class", |conn| read(conn, &name));
    let hour = history.ready().map(|history| history.hour.as_slice());
    let page = QueuePage {
        has_rails: details.ready().is_some_and(|one| one.fleet.has_rails()),
        is_paused: details.ready().is_some_and(|one| one.queue.pause.is_some()),
        why: details.clone().map(|details| now::why_late(&details)),
        measures: details.clone().map(|details| queue_vitals(&details, hour)),
        ranges: words::tabs(cx.request),
        range_words: words::in_words(range),
        charts: charts(&history, range, promise)?,
        classes: counts.map(|counts| {
            let ended = history.ready().map(|history| history.classes.as_slice());
            lines(&counts, details.ready(), ended, range)
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
    match cx.cached_panel(WHAT, &PLACES) {
        Panel::Missing(missing) => Panel::Missing(missing),
        Panel::Ready((counts, _)) => cx.panel(WHAT, |conn| {
            QueueDetails::read(conn, name, promises, &counts)
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
    let mut runs = windlass::history::Histogram::default();
    for bucket in &history.buckets {
        runs.merge(&bucket.tally.run);
    }
    let run_times = match runs.is_empty() {
        true => None,
        false => Some(run_times(&runs, words::in_words(range))?),
    };
    Ok(Panel::Ready(QueueCharts {
        of_time: Charts {
            throughput: throughput(&history.buckets, range)?,
            waits: latency_chart(&history.buckets, range, promise, "late")?,
        },
        run_times,
    }))
}

// --- The classes of a queue ---

/// The ready jobs of each class.
#[derive(Debug)]
pub(crate) struct ReadyClasses {
    counts: Vec<ClassCount>,
    /// True if only the next jobs were counted.
    is_more: bool,
}

/// A class of the queue.
#[derive(Debug, Clone, Default)]
pub(crate) struct ClassLine {
    pub(crate) name: String,
    pub(crate) ready: CappedCount,
    pub(crate) running: u64,
    pub(crate) failed: CappedCount,
    /// Ended jobs per second.
    pub(crate) rate: String,
    pub(crate) p50: Option<Duration>,
    pub(crate) p99: Option<Duration>,
}

/// The most classes that are shown.
const MOST: usize = 50;

/// Counts the ready jobs of a queue by class.
pub(crate) fn read(conn: &mut Conn<'_>, queue: &str) -> Result<ReadyClasses> {
    let counted = totals::ready_classes(conn, queue).during("count the jobs of each class");
    let (counts, is_more) = counted?;
    Ok(ReadyClasses { counts, is_more })
}

/// Returns the classes with most failed and ready jobs first.
pub(crate) fn lines(
    ready: &ReadyClasses,
    details: Option<&QueueDetails>,
    ended: Option<&[SeriesTally]>,
    range: TimeRange,
) -> Vec<ClassLine> {
    let failed = details.map(|details| &details.failed_classes);
    let empty = |name: &str| ClassLine {
        name: name.to_owned(),
        ready: CappedCount::part(0, ready.is_more),
        failed: CappedCount::part(0, failed.is_none_or(|failed| failed.is_more)),
        rate: "–".to_owned(),
        ..ClassLine::default()
    };
    let mut classes: BTreeMap<String, ClassLine> = BTreeMap::new();
    let mut line = |name: &str, change: &dyn Fn(&mut ClassLine)| {
        let entry = classes.entry(name.to_owned());
        change(entry.or_insert_with(|| empty(name)));
    };
    for class in &ready.counts {
        let jobs = CappedCount::part(class.jobs, ready.is_more);
        line(&class.class_name, &|line| line.ready = jobs);
    }
    for (class, jobs) in failed.map_or(&[][..], |failed| &failed.counts) {
        line(class, &|line| line.failed = *jobs);
    }
    let held = details.map(|details| details.held.as_slice());
    for job in held.unwrap_or_default().iter().filter(|job| !job.is_ahead) {
        line(&job.class_name, &|line| line.running += 1);
    }
    let seconds = range.bucket().as_secs_f64() * range.buckets() as f64;
    for class in ended.unwrap_or_default() {
        line(&class.class, &|line| {
            line.rate = short(class.tally.ended() as f64 / seconds);
            line.p50 = class.tally.run.quantile(0.5);
            line.p99 = class.tally.run.quantile(0.99);
        });
    }
    let mut lines: Vec<ClassLine> = classes.into_values().collect();
    lines.sort_by_key(|line| std::cmp::Reverse((line.failed.count, line.ready.count)));
    lines.truncate(MOST);
    lines
}

// --- The measures of a queue: a number, a curve, a verdict ---

/// The number of minutes over which the growth is measured.
const MINUTES: usize = 10;

/// Returns the measures of a queue.
pub(crate) fn queue_vitals(details: &QueueDetails, hour: Option<&[Bucket]>) -> Vec<Vital> {
    let hour = hour.unwrap_or_default();
    let ready: Vec<Option<f64>> = hour
        .iter()
        .map(|bucket| bucket.queue.map(|gauge| f64::from(gauge.ready)))
        .collect();
    let is_late = details.queue.is_late();
    let failed: Vec<Option<f64>> = hour
        .iter()
        .map(|bucket| Some(bucket.tally.failed as f64))
        .collect();
    vec![
        Vital::new("Ready", bounded(details.queue.ready), "")
            .marked("ready")
            .spark(&ready, is_late, "ready jobs, last hour")
            .verdict(growth(&ready, is_late)),
        Vital::new("Running", count(details.running()), "")
            .marked("run")
            .verdict(threads(details)),
        Vital::new("Scheduled", bounded(details.scheduled.count), "")
            .marked("sched")
            .verdict(next(details)),
        Vital::new("Blocked", bounded(details.blocked), "")
            .marked("block")
            .verdict(match details.blocked.is_zero() {
                true => Markup::default(),
                false => verdict(
                    "ok",
                    "they wait for a slot of their concurrency key, or for another job",
                ),
            }),
        Vital::new("Failed", bounded(details.failed), "")
            .marked("fail")
            .spark(&failed, false, "jobs that failed per minute, last hour")
            .verdict(failures(hour)),
    ]
}

/// Returns how many threads are free.
fn threads(details: &QueueDetails) -> Markup {
    let (threads, busy) = details.threads();
    let is_full = busy >= threads && !details.queue.ready.is_zero();
    match (threads, is_full) {
        (0, _) => Markup::default(),
        (threads, true) => verdict("warn", &format!("all {} threads are busy", count(threads))),
        (threads, false) => {
            let free = count(threads.saturating_sub(busy));
            verdict(
                "ok",
                &format!("{free} of {} threads are free", count(threads)),
            )
        }
    }
}

/// Returns by how much the number of ready jobs changes.
fn growth(ready: &[Option<f64>], is_late: bool) -> Markup {
    let known: Vec<(usize, f64)> = ready
        .iter()
        .enumerate()
        .rev()
        .take(MINUTES + 1)
        .filter_map(|(minute, ready)| Some((minute, (*ready)?)))
        .collect();
    let (Some((last, now)), Some((first, before))) = (known.first(), known.last()) else {
        return Markup::default();
    };
    if first == last {
        return Markup::default();
    }
    let change = (now - before) / (last - first) as f64;
    let text = format!("{} a minute", short(change.abs()));
    if change >= 0.5 {
        verdict(
            if is_late { "bad" } else { "ok" },
            &format!("grows by {text}"),
        )
    } else if change <= -0.5 {
        verdict("ok", &format!("shrinks by {text}"))
    } else {
        verdict("ok", "about the same for some minutes")
    }
}

fn next(details: &QueueDetails) -> Markup {
    match details.scheduled.next_seconds {
        None => Markup::default(),
        Some(seconds) if seconds < -60.0 => verdict(
            "warn",
            &format!(
                "one has been due for {}: no dispatcher makes it ready",
                duration(-seconds)
            ),
        ),
        Some(seconds) if seconds < 0.0 => verdict("ok", "one is due"),
        Some(seconds) => verdict("ok", &format!("next in {}", duration(seconds))),
    }
}

fn failures(hour: &[Bucket]) -> Markup {
    match hour.iter().map(|bucket| bucket.tally.failed).sum::<u64>() {
        0 => verdict("ok", "none in the last hour"),
        1 => verdict("warn", "1 in the last hour"),
        jobs => verdict("warn", &format!("{} in the last hour", count(jobs))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_is_taken_of_the_last_minutes() {
        let growing: Vec<Option<f64>> =
            (0..60).map(|minute| Some(f64::from(minute * 54))).collect();
        let shown = growth(&growing, true).to_string();
        assert_eq!(shown, "<span class=\"v bad\">grows by 54 a minute</span>");
        let falling = [Some(10.0), None, Some(4.0)];
        assert!(
            growth(&falling, false)
                .to_string()
                .contains("shrinks by 3 a minute")
        );
        for unknown in [&[][..], &[None, None], &[Some(3.0)]] {
            assert!(growth(unknown, false).is_empty());
        }
        assert!(
            growth(&[Some(3.0), Some(3.0)], false)
                .to_string()
                .contains("about the same")
        );
    }
}
