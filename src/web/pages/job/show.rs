//! The page of a job.

use crate::admin::details::{self, JobDetails};
use crate::admin::explain::Reason;
use crate::admin::job_info::TaskStatus;
use crate::admin::timeline::Timeline;
use crate::db::Conn;
use crate::db::query::pages::job_lines::{self, JobFacts};
use crate::error::{Doing as _, Result};
use crate::job::id::JobId;
use crate::web::http::page_error::PageError;
use crate::web::http::response::Response;
use crate::web::pages::job::actions::JobActions;
use crate::web::pages::job::facts::{self, Fact};
use crate::web::pages::job::steps::{LogView, StepsView};
use crate::web::pages::job::timeline::TimelineView;
use crate::web::pages::jobs::rows::passed;
use crate::web::pages::words::sentence;
use crate::web::request::cx::Cx;
use crate::web::request::shell::Shell;
use crate::web::show::filters;
use crate::web::show::json::{CutText, lines};
use crate::web::show::markup::Markup;
use crate::web::show::numbers::count;
use crate::web::site::section::Section;
use askama::Template;
use serde_json::Value;

/// The longest arguments that are shown, in characters.
const ARGUMENTS: usize = 64 * 1024;

/// A job with all that its page shows.
pub(crate) struct JobRead {
    pub(crate) details: JobDetails,
    /// `None` if only its result is left.
    pub(crate) facts: Option<JobFacts>,
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
    /// Whether all arguments are hidden.
    is_unknown_class: bool,
    /// How many fields are hidden.
    hidden: usize,
    facts: Vec<Fact>,
    steps: StepsView,
    result: Option<CutText>,
    logs: Vec<LogView>,
}

/// Reads a job.
pub(crate) fn read(cx: &mut Cx<'_>) -> Result<JobRead, PageError> {
    let id = number(cx.param("id"))?;
    let found = cx.read(|conn| look(conn, id))?;
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

fn look(conn: &mut Conn<'_>, id: i64) -> Result<Option<JobRead>> {
    let doing = "look the job up";
    let Some(details) = details::job_details(conn, JobId(id), false)? else {
        return Ok(None);
    };
    Ok(Some(JobRead {
        facts: job_lines::facts(conn, id).doing(doing)?,
        details,
    }))
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
        let of_ruby = job.facts.as_ref().is_some_and(|facts| facts.is_of_ruby());
        let arguments = details.arguments.as_ref();
        let shown = arguments.filter(|_| !details.unknown_class);
        let facts = job.facts.as_ref();
        JobPage {
            id: details.explanation.task.job_id.0,
            class: details.explanation.task.class_name.clone(),
            tone,
            lead: sentences.next().unwrap_or_default(),
            more: sentences.collect(),
            actions: JobActions::of(details, shell.is_operator),
            queue: details.explanation.queue_name.clone().unwrap_or_default(),
            priority: details.explanation.priority.unwrap_or_default(),
            timeline: facts
                .map(|facts| Timeline::of(details, facts, shell.now))
                .map(|timeline| TimelineView::of(&timeline, &shell)),
            arguments: shown.map(|value| lines(passed(value, of_ruby), ARGUMENTS)),
            is_unknown_class: details.unknown_class && arguments.is_some(),
            hidden: shown.map_or(0, hidden),
            facts: facts.map_or_else(Vec::new, |facts| facts::facts(details, facts, &shell)),
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
        Value::String(text) => usize::from(text == crate::job::redact::HIDDEN),
        Value::Array(items) => items.iter().map(hidden).sum(),
        Value::Object(fields) => fields.values().map(hidden).sum(),
        _ => 0,
    }
}
