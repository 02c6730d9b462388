//! All queues, and the paused classes.

use crate::read::curves::{QueueCurves, queue_curves};
use crate::read::now::{LoadNow, Promises, QueueView};
use crate::read::sql::named as known;
use crate::read::sql::totals::StateTotals;
use crate::web::http::{PageError, Response};
use crate::web::read::concerns::who_and_why;
use crate::web::read::{LoadAndConcerns, QueueStateCounts, QueueVerdict};
use crate::web::reads::PLACES;
use crate::web::request::panels::Panel;
use crate::web::request::route::Cx;
use crate::web::request::shell::Shell;
use crate::web::show::chart::{SparkLocation, spark};
use crate::web::show::{Markup, ago, count, escaped, filters, short};
use crate::web::site::Section;
use askama::Template;
use std::time::Duration;
use windlass::classes::PausedClass;
use windlass::history::TimeRange;
use windlass::internal::db::model::audit::{Actor, Via};
use windlass::internal::db::query::ready::CappedCount;
use windlass::internal::db::table::run_time;
use windlass::internal::error::ErrorContext as _;

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
    sums: StateTotals,
    is_more: bool,
}

/// Shows all queues.
pub(crate) fn show(cx: &mut Cx<'_>) -> Result<Response, PageError> {
    let promises = &cx.site.settings.promises;
    let found = cx.load_panel("the jobs of each queue");
    let counts = cx.cached_panel("the jobs of each queue", &PLACES);
    let curves = cx.panel("the rates of the queues", |conn| {
        queue_curves(conn, TimeRange::Hour)
    });
    let classes = cx.panel("the paused classes", |conn| {
        run_time::list_paused_classes(conn).during("look at the paused classes")
    });
    let sort = cx.query().get("sort").unwrap_or_default().to_owned();
    let load = together(found, counts, curves.ready(), promises);
    let has_rails = load.ready().is_some_and(|(load, _)| load.fleet.has_rails());
    let lead = lead(load.ready().map(|(load, _)| load));
    let queues = load.map(|(load, counts)| QueueTable {
        lines: queue_lines(&load, &counts, curves.ready(), &sort),
        sums: sums(&load, &counts),
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
    found: Panel<LoadAndConcerns>,
    counts: Panel<(QueueStateCounts, Duration)>,
    curves: Option<&QueueCurves>,
    promises: &Promises,
) -> Panel<(LoadNow, QueueStateCounts)> {
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

// --- Pauses and resumes queues and classes ---

/// Returns the viewer as the actor of a change, with the reason of the form.
pub(crate) fn actor(cx: &Cx<'_>) -> Actor {
    let reason = cx.form().get("reason").unwrap_or_default().trim();
    Actor::named(cx.viewer.name.as_str())
        .via(Via::Page)
        .origin(cx.viewer.client.to_string())
        .reason(reason)
}

/// Returns to the page that a form names, which then shows the message.
pub(crate) fn back(cx: &Cx<'_>, message: &str) -> Response {
    cx.done(cx.form().get("back").unwrap_or("/"), message)
}

/// Returns a name as a message shows it.
pub(crate) fn named(name: &str) -> String {
    const LONGEST: usize = 80;
    match name.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &name[..end]),
        None => name.to_owned(),
    }
}

/// Pauses a queue.
pub(crate) fn pause(cx: &mut Cx<'_>) -> Result<Response, PageError> {
    let (queue, actor) = (cx.param("name").to_owned(), actor(cx));
    let paused = cx.write(|conn| actor.pause_queue(conn, &queue))?;
    let name = named(&queue);
    let message = match paused {
        true => format!("Paused {name}. Workers take no more of its jobs; those that run go on."),
        false => format!("{name} was paused already."),
    };
    Ok(back(cx, &message))
}

/// Resumes a queue.
pub(crate) fn resume(cx: &mut Cx<'_>) -> Result<Response, PageError> {
    let (queue, actor) = (cx.param("name").to_owned(), actor(cx));
    let resumed = cx.write(|conn| actor.resume_queue(conn, &queue))?;
    let name = named(&queue);
    let message = match resumed {
        true => format!("Resumed {name}."),
        false => format!("{name} was not paused."),
    };
    Ok(back(cx, &message))
}

/// Pauses the class that a form names.
pub(crate) fn pause_class(cx: &mut Cx<'_>) -> Result<Response, PageError> {
    let class = cx.form().get("class").unwrap_or_default().trim().to_owned();
    if class.is_empty() || class.contains('\0') {
        let message = "Name the class to pause, as it is registered: `send_invoice`.";
        return Err(PageError::Invalid(message.to_owned()));
    }
    let found = cx.read(|conn| known::named(conn, &class).during("look for the class"))?;
    if !found.is_class {
        return Err(PageError::Invalid(format!(
            "No worker has registered a class {}, and none of the newest 10,000 jobs has it. \
             `windlass classes pause` pauses a class before its first job.",
            named(&class)
        )));
    }
    let actor = actor(cx);
    let paused = cx.write(|conn| actor.pause_class(conn, &class))?;
    let name = named(&class);
    let message = match paused {
        true => {
            format!("Paused the class {name}. Within a second, workers start none of its jobs.")
        }
        false => format!("The class {name} was paused already."),
    };
    Ok(back(cx, &message))
}

/// Resumes a class.
pub(crate) fn resume_class(cx: &mut Cx<'_>) -> Result<Response, PageError> {
    let (class, actor) = (cx.param("name").to_owned(), actor(cx));
    let resumed = cx.write(|conn| actor.resume_class(conn, &class))?;
    let name = named(&class);
    let message = match resumed {
        true => format!("Resumed the class {name}."),
        false => format!("The class {name} was not paused."),
    };
    Ok(back(cx, &message))
}

// --- The rows of the table of queues ---

/// A queue in the table.
#[derive(Debug, Clone)]
pub(crate) struct QueueLine {
    pub(crate) queue: QueueView,
    pub(crate) counts: StateTotals,
    /// Ended jobs per second.
    pub(crate) rate: String,
    pub(crate) spark: Markup,
}

/// Returns the rows: the worst first, or sorted as `sort` says.
pub(crate) fn queue_lines(
    load: &LoadNow,
    counts: &QueueStateCounts,
    curves: Option<&QueueCurves>,
    sort: &str,
) -> Vec<QueueLine> {
    let mut queues = load.worst_first();
    match sort {
        "oldest" => queues.sort_by(|one, other| {
            let age = |queue: &QueueView| queue.oldest_seconds.unwrap_or(-1.0);
            age(other).total_cmp(&age(one))
        }),
        "ready" => queues.sort_by_key(|queue| std::cmp::Reverse(queue.ready.count)),
        "name" => queues.sort_by(|one, other| one.name.cmp(&other.name)),
        _ => {}
    }
    queues
        .into_iter()
        .map(|queue| line(queue, counts, curves))
        .collect()
}

/// The number of minutes over which the rate is measured.
const MINUTES: usize = 5;

fn line(queue: &QueueView, counts: &QueueStateCounts, curves: Option<&QueueCurves>) -> QueueLine {
    let name = queue.name.as_str();
    let curve = curves.and_then(|curves| curves.of(name));
    let ended: Vec<Option<f64>> = curve.map_or_else(Vec::new, |curve| {
        let complete = curve.ended.len().saturating_sub(1);
        let ended = curve.ended[..complete].iter();
        ended.map(|jobs| Some(*jobs as f64 / 60.0)).collect()
    });
    let recent: f64 = ended.iter().rev().take(MINUTES).flatten().sum();
    let label = format!("{name}, ended jobs per second, last hour");
    QueueLine {
        queue: queue.clone(),
        counts: counts.with_ready(queue),
        rate: match ended.is_empty() {
            true => "–".to_owned(),
            false => short(recent / MINUTES as f64),
        },
        spark: spark(SparkLocation::Cell, &ended, false, &label),
    }
}

impl QueueLine {
    /// Returns since when, by whom and why it is paused.
    fn pause(&self) -> Option<String> {
        let pause = self.queue.pause.as_ref()?;
        let who = who_and_why(pause.paused_by.as_deref(), pause.pause_reason.as_deref());
        let since = ago(pause.paused_seconds);
        Some(format!("{since}{who}"))
    }
}

/// Returns the sums of the columns.
fn sums(load: &LoadNow, counts: &QueueStateCounts) -> StateTotals {
    let part = CappedCount::part(0, load.is_more);
    let none = StateTotals {
        ready: part,
        scheduled: part,
        claimed: part,
        blocked: part,
        failed: part,
    };
    let queues = load.queues.values();
    queues.fold(none, |sums, queue| sums.plus(counts.with_ready(queue)))
}

/// The most queues that the sentence names.
const NAMED: usize = 3;

/// Returns the sentence on top: which queues need attention.
pub(crate) fn lead(load: Option<&LoadNow>) -> Markup {
    let Some(load) = load else {
        return Markup::default();
    };
    let bad: Vec<&QueueView> = load
        .worst_first()
        .into_iter()
        .filter(|queue| queue.verdict.is_bad())
        .collect();
    let all = format!(
        "{}{}",
        count(load.queues.len()),
        if load.is_more { "+" } else { "" }
    );
    if load.queues.is_empty() {
        return Markup::trusted("No job is on any queue.".to_owned());
    }
    if bad.is_empty() {
        let text = match load.queues.len() {
            1 => "The queue does not need attention.".to_owned(),
            _ => format!("None of the {all} queues needs attention."),
        };
        return Markup::trusted(text);
    }
    let named = bad.iter().take(NAMED).map(|queue| clause(queue));
    let mut parts: Vec<String> = named.collect();
    if bad.len() > NAMED {
        let more = bad.len() - NAMED;
        let (verb, plural) = if more == 1 {
            ("needs", "")
        } else {
            ("need", "s")
        };
        parts.push(format!("{} other{plural} {verb} attention", count(more)));
    }
    let last = parts.pop().unwrap_or_default();
    let text = match parts.as_slice() {
        [] => last,
        parts => format!("{} and {last}", parts.join(", ")),
    };
    Markup::trusted(format!("Of {all} queues, {text}."))
}

fn clause(queue: &QueueView) -> String {
    let (class, text) = match queue.verdict {
        QueueVerdict::Late { .. } => ("bad", "is late"),
        QueueVerdict::Unserved => ("warn", "has no worker"),
        QueueVerdict::Silent => ("bad", "has only dead workers"),
        QueueVerdict::Quiet => ("warn", "has only quiet or stopping workers"),
        _ => ("warn", "is paused"),
    };
    format!("<b class=\"{class}\">{} {text}</b>", escaped(&queue.name))
}
