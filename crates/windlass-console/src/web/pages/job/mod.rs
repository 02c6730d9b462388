//! One job, and what can be done to it.

pub(crate) mod change;
pub(crate) mod confirm;
pub(crate) mod facts;

use crate::read::timeline::{BarKind, BarPart, EntryKind, Timeline, TimelineEntry};
use crate::web::http::{PageError, Response};
use crate::web::pages::job::facts::{Fact, LogView, StepsView};
use crate::web::pages::jobs::passed;
use crate::web::pages::words::{of_mark, sentence};
use crate::web::request::route::Cx;
use crate::web::request::shell::Shell;
use crate::web::show::{self, CutText, Markup, count, cut, escaped, filters, lines, state};
use crate::web::site::Section;
use askama::Template;
use chrono::NaiveDateTime;
use serde_json::Value;
use windlass::internal::admin::details;
use windlass::internal::db::query::job_view::JobView;
use windlass::jobs::{JobDetails, Reason, TaskStatus};
use windlass::{Conn, Delivery, JobId, Result};

// --- The page of a job ---

/// The longest arguments that are shown, in characters.
const ARGUMENTS: usize = 64 * 1024;

/// A job with all that its page shows.
pub(crate) struct JobRead {
    pub(crate) details: JobDetails,
    /// The row of the job; `None` if only its result is left.
    pub(crate) view: Option<JobView>,
}

#[derive(Template)]
#[template(path = "job/show.html")]
struct JobPage {
    shell: Shell,
    id: i64,
    class: String,
    /// The color of the explanation: that of the state, or of a warning.
    tone: &'static str,
    lead: Markup,
    more: Vec<Markup>,
    actions: JobActions,
    queue: String,
    priority: i32,
    timeline: Option<TimelineView>,
    arguments: Option<CutText>,
    /// True if all arguments are hidden, because the class is unknown.
    is_unknown_class: bool,
    /// The number of values in the arguments that are hidden.
    hidden: usize,
    facts: Vec<Fact>,
    steps: StepsView,
    result: Option<CutText>,
    logs: Vec<LogView>,
}

/// Reads a job.
pub(crate) fn read(cx: &mut Cx<'_>) -> Result<JobRead, PageError> {
    let id = number(cx.param("id"))?;
    let found = cx.read(|conn| read_job(conn, id))?;
    found.ok_or_else(|| no_such_job(id))
}

/// Reads the id of a job in an address.
pub(crate) fn number(text: &str) -> Result<i64, PageError> {
    let wrong = || PageError::NotFound("The id of a job is a number.".to_owned());
    text.parse().map_err(|_| wrong())
}

pub(crate) fn no_such_job(id: i64) -> PageError {
    PageError::NotFound(format!(
        "Nothing is stored about job {}: it never existed, or its row and its result were deleted.",
        count(id)
    ))
}

fn read_job(conn: &mut Conn<'_>, id: i64) -> Result<Option<JobRead>> {
    let found = details::read(conn, JobId(id).into(), false)?;
    Ok(found.map(|(details, view)| JobRead { details, view }))
}

/// Shows a job.
pub(crate) fn show(cx: &mut Cx<'_>) -> Result<Response, PageError> {
    let job = read(cx)?;
    let task = &job.details.explanation.task;
    let title = format!("{} {}", task.class_name, count(task.job_id.0));
    let shell = cx.shell(&title, Section::Jobs)?;
    cx.render(&JobPage::of(&job, shell))
}

/// Returns the class of the style sheet of a job's state, and that of its explanation.
pub(crate) fn mark(details: &JobDetails) -> (&'static str, &'static str) {
    let is_on_its_way = details.explanation.is_on_its_way();
    let warned = |mark| (mark, if is_on_its_way { mark } else { "warn" });
    match (&details.explanation.reason, details.explanation.task.status) {
        (Reason::Ready { .. }, _) => warned("ready"),
        (Reason::Scheduled { .. }, _) => warned("sched"),
        (
            Reason::Blocked { .. }
            | Reason::Batch { .. }
            | Reason::Jobs { .. }
            | Reason::Event { .. }
            | Reason::Limited { .. }
            | Reason::Rate { .. }
            | Reason::Share { .. }
            | Reason::InLine { .. },
            _,
        ) => ("block", "block"),
        (Reason::Claimed { process_name, .. }, _) => match process_name {
            Some(_) => ("run", "run"),
            None => ("run", "warn"),
        },
        (Reason::Ended, TaskStatus::Failed) => ("fail", "bad"),
        (Reason::Ended, TaskStatus::Succeeded) => ("done", "done"),
        (Reason::Ended, _) => ("disc", "disc"),
        (Reason::Adrift, _) => ("fail", "bad"),
    }
}

impl JobPage {
    fn of(job: &JobRead, shell: Shell) -> Self {
        let details = &job.details;
        let (mark, tone) = mark(details);
        let sentences = details.explanation.in_words();
        let mut sentences = sentences
            .iter()
            .map(|words| sentence(words, mark, &shell, shell.now));
        let of_ruby = job.view.as_ref().is_some_and(JobView::is_of_ruby);
        let arguments = details.arguments.as_ref();
        let shown = arguments.filter(|_| !details.unknown_class);
        let view = job.view.as_ref();
        JobPage {
            id: details.explanation.task.job_id.0,
            class: details.explanation.task.class_name.clone(),
            tone,
            lead: sentences.next().unwrap_or_default(),
            more: sentences.collect(),
            actions: JobActions::of(details, shell.is_operator),
            queue: details.explanation.queue_name.clone().unwrap_or_default(),
            priority: details.explanation.priority.unwrap_or_default(),
            timeline: view
                .map(|view| Timeline::of(details, view, shell.now))
                .map(|timeline| TimelineView::of(&timeline, &shell)),
            arguments: shown.map(|value| lines(passed(value, of_ruby), ARGUMENTS)),
            is_unknown_class: details.unknown_class && arguments.is_some(),
            hidden: shown.map_or(0, hidden),
            facts: view.map_or_else(Vec::new, |view| facts::facts(details, view, &shell)),
            steps: StepsView::of(details, &shell),
            result: details
                .explanation
                .task
                .result
                .as_ref()
                .map(|value| lines(value, ARGUMENTS)),
            logs: details
                .logs
                .iter()
                .map(|log| LogView::of(log, &shell))
                .collect(),
            shell,
        }
    }

    fn path(&self, action: &str) -> String {
        self.shell.to(["jobs", &self.id.to_string(), action])
    }
}

/// Returns how many values of the arguments are hidden.
fn hidden(value: &Value) -> usize {
    match value {
        Value::String(text) => usize::from(text == windlass::internal::job::run_log::HIDDEN),
        Value::Array(items) => items.iter().map(hidden).sum(),
        Value::Object(fields) => fields.values().map(hidden).sum(),
        _ => 0,
    }
}

// --- The timeline of a job as its page shows it ---

/// The longest backtrace that is shown, in characters.
const LONGEST: usize = 20_000;

/// A line of the timeline.
#[derive(Debug)]
pub(crate) struct TimelineRow {
    /// `w` for a wait, `now` for what the job does now.
    pub(crate) class: &'static str,
    pub(crate) at: Markup,
    pub(crate) what: Markup,
    /// Empty if it took no time.
    pub(crate) took: String,
    pub(crate) how: Markup,
    pub(crate) details: Option<String>,
}

/// The timeline of a job.
#[derive(Debug)]
pub(crate) struct TimelineView {
    pub(crate) rows: Vec<TimelineRow>,
    /// The bar, as SVG; empty if it would have no width.
    pub(crate) bar: Markup,
    pub(crate) start: String,
    pub(crate) end: String,
}

impl TimelineView {
    pub(crate) fn of(timeline: &Timeline, shell: &Shell) -> Self {
        let now = shell.now;
        let is_open = timeline
            .entries
            .iter()
            .any(|entry| matches!(entry.kind, EntryKind::Now(_)));
        let text =
            |at: Option<NaiveDateTime>| at.map_or_else(String::new, |at| show::moment(at, now));
        let rows = timeline.entries.iter();
        TimelineView {
            rows: rows.map(|entry| row(entry, shell)).collect(),
            bar: bar(&timeline.bar),
            start: text(timeline.start),
            end: match is_open {
                true => "now".to_owned(),
                false => text(timeline.end),
            },
        }
    }
}

fn row(entry: &TimelineEntry, shell: &Shell) -> TimelineRow {
    let now = shell.now;
    let plain = |what: &str| Markup::trusted(escaped(what));
    let marked =
        |mark| Markup::trusted(state(&format!("{} ink", of_mark(mark)), &entry.what).to_string());
    let (class, what) = match entry.kind {
        EntryKind::Event(mark) => ("", marked(mark)),
        EntryKind::Now(mark) => ("now", marked(mark)),
        EntryKind::Wait => ("w", plain(&entry.what)),
        EntryKind::Next => ("next", plain(&entry.what)),
    };
    let is_event = matches!(entry.kind, EntryKind::Event(_) | EntryKind::Now(_));
    let at = entry.at.filter(|_| is_event);
    TimelineRow {
        class,
        at: match entry.kind {
            EntryKind::Next => plain("next"),
            _ => at.map_or_else(Markup::default, |at| exact(at, now)),
        },
        what,
        took: entry.seconds.map(show::duration).unwrap_or_default(),
        how: sentence(&entry.how, "", shell, now),
        details: entry.details.as_deref().map(|text| cut(text, LONGEST)),
    }
}

/// Returns a time with its milliseconds, and its day if that is not today.
fn exact(at: NaiveDateTime, now: NaiveDateTime) -> Markup {
    let format = match at.date() == now.date() {
        true => "%H:%M:%S%.3f",
        false => "%m-%d %H:%M:%S%.3f",
    };
    show::time(at, &at.format(format).to_string())
}

fn bar(parts: &[BarPart]) -> Markup {
    if parts.is_empty() {
        return Markup::default();
    }
    let rects: Vec<String> = parts
        .iter()
        .map(|part| {
            let (class, y, height) = match part.kind {
                BarKind::Ran => ("f-run", 0, 12),
                BarKind::Failed => ("f-fail", 0, 12),
                BarKind::Waited => ("f-sched", 4, 4),
                BarKind::Blocked => ("f-block", 4, 4),
            };
            let width = part.width.max(0.5);
            format!(
                "<rect class=\"{class}\" x=\"{:.1}\" y=\"{y}\" width=\"{width:.1}\" height=\"{height}\"/>",
                part.from
            )
        })
        .collect();
    Markup::trusted(format!(
        "<svg class=\"life-line\" viewBox=\"0 0 1000 12\" preserveAspectRatio=\"none\" role=\"img\" \
         aria-label=\"The timeline as a bar; the table below has the same\">{}</svg>",
        rects.concat()
    ))
}

// --- The actions of a job, and the reason against each ---

/// The actions on a job. `Ok` if it is possible; otherwise why not.
#[derive(Debug, Clone)]
pub(crate) struct JobActions {
    pub(crate) cancel: Result<(), &'static str>,
    pub(crate) discard: Result<(), &'static str>,
    pub(crate) retry: Result<(), &'static str>,
    pub(crate) run: Result<(), &'static str>,
    pub(crate) change: Result<(), &'static str>,
    /// True if a retry asks first: the job runs at most once, and may have done its work.
    pub(crate) asks_to_retry: bool,
}

const NOT_OPERATOR: &str = "Only an operator may change jobs.";

const HAS_ENDED: &str = "It has ended.";

const RUNS: &str = "A process runs it.";

const FAILED: &str = "It has failed.";

impl JobActions {
    pub(crate) fn of(details: &JobDetails, is_operator: bool) -> Self {
        let explanation = &details.explanation;
        let asks_to_retry = matches!(
            explanation.delivery,
            Some(Delivery::AtMostOnce | Delivery::AfterKnownOutcome)
        );
        if !is_operator {
            return Self::all(Err(NOT_OPERATOR), asks_to_retry);
        }
        let has_failed = explanation.task.status == TaskStatus::Failed;
        let actions = |cancel, discard, retry, run, change| JobActions {
            cancel,
            discard,
            retry,
            run,
            change,
            asks_to_retry,
        };
        let (waits, not_failed) = (Err("It waits for no time."), Err("It has not failed."));
        match &explanation.reason {
            Reason::Scheduled { .. } => actions(Ok(()), Ok(()), not_failed, Ok(()), Ok(())),
            Reason::Ready { .. }
            | Reason::Blocked { .. }
            | Reason::Batch { .. }
            | Reason::Jobs { .. }
            | Reason::Event { .. }
            | Reason::Limited { .. }
            | Reason::Rate { .. }
            | Reason::Share { .. }
            | Reason::InLine { .. } => actions(Ok(()), Ok(()), not_failed, waits, Ok(())),
            Reason::Claimed {
                cancel_requested_at,
                ..
            } => {
                let cancel = match cancel_requested_at {
                    Some(_) => Err("Its cancellation was requested already."),
                    None => Ok(()),
                };
                actions(cancel, Err(RUNS), not_failed, Err(RUNS), Err(RUNS))
            }
            // A job of which only the result is left has no row to change.
            Reason::Ended if has_failed && explanation.queue_name.is_some() => {
                actions(Err(FAILED), Ok(()), Ok(()), Err(FAILED), Err(FAILED))
            }
            Reason::Ended => Self::all(Err(HAS_ENDED), asks_to_retry),
            Reason::Adrift => Self::all(Err("It has no execution."), asks_to_retry),
        }
    }

    fn all(possible: Result<(), &'static str>, asks_to_retry: bool) -> Self {
        JobActions {
            cancel: possible,
            discard: possible,
            retry: possible,
            run: possible,
            change: possible,
            asks_to_retry,
        }
    }

    /// Returns why some of them are not possible, each reason with the actions: `Retry: it has not
    /// failed.`
    pub(crate) fn reasons(&self) -> Vec<String> {
        let named = [
            ("Cancel", self.cancel),
            ("Discard", self.discard),
            ("Change", self.change),
            ("Run now", self.run),
            ("Retry", self.retry),
        ];
        let refused: Vec<(&str, &str)> = named
            .into_iter()
            .filter_map(|(name, possible)| Some((name, possible.err()?)))
            .collect();
        if refused.len() == named.len() && refused.iter().all(|(_, why)| *why == refused[0].1) {
            return vec![refused[0].1.to_owned()];
        }
        let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
        for (name, why) in refused {
            match reasons.iter_mut().find(|(other, _)| *other == why) {
                Some((_, names)) => names.push(name),
                None => reasons.push((why, vec![name])),
            }
        }
        let sentence = |(why, names): (&str, Vec<&str>)| {
            let (first, rest) = why.split_at(1);
            format!("{}: {}{rest}", names.join(", "), first.to_lowercase())
        };
        reasons.into_iter().map(sentence).collect()
    }
}
