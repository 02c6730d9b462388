//! Shows what an operation would change, and asks.

use crate::read::job_list::ListedJob;
use crate::web::http::{PageError, Response};
use crate::web::pages::jobs::JobListRow;
use crate::web::pages::operations::selection::{OperationAction, OperationSelection};
use crate::web::pages::operations::{self, confirmed, new_request};
use crate::web::pages::words;
use crate::web::request::route::Cx;
use crate::web::request::shell::Shell;
use crate::web::show::count;
use crate::web::site::Section;
use askama::Template;
use std::time::Duration;
use windlass::failed::RetryRate;
use windlass::internal::error::ErrorContext as _;
use windlass::operations::Preview;
use windlass::{Conn, Result};

/// More jobs than these are discarded only if their number is typed.
pub(crate) const TYPED: u64 = 10;

#[derive(Template)]
#[template(path = "operations/preview.html")]
struct PreviewPage {
    shell: Shell,
    action: OperationAction,
    question: String,
    /// `1,204` or `10,000+`
    number: String,
    /// The text that has to be typed; empty for nothing.
    typed: String,
    preview: Preview,
    stored: String,
    request: String,
    words: Vec<(&'static str, String)>,
    hidden: Vec<(String, String)>,
    spreads: Vec<SpreadChoice>,
    sample: Vec<JobListRow>,
    back: String,
    /// True if the jobs are those of a group of failures.
    is_group: bool,
}

/// Returns the number of jobs as pages show it.
pub(crate) fn number(preview: &Preview) -> String {
    let plus = if preview.is_exact { "" } else { "+" };
    format!("{}{plus}", count(preview.count))
}

/// Returns `1 job` or `1,204 jobs`.
pub(crate) fn jobs(number: &str) -> String {
    match number {
        "1" => "1 job".to_owned(),
        number => format!("{number} jobs"),
    }
}

fn read_preview(
    conn: &mut Conn<'_>,
    selection: &OperationSelection,
) -> Result<(Preview, Vec<ListedJob>)> {
    let preview = selection.jobs().preview(conn)?;
    let sample = selection.sample(conn).during("list some of the jobs")?;
    Ok((preview, sample))
}

/// Shows the preview of an action. It changes nothing.
pub(crate) fn show(cx: &mut Cx<'_>) -> Result<Response, PageError> {
    let now = cx.frame()?.now;
    let selection = OperationSelection::of(cx.query(), now)?;
    let (preview, sample) = cx.read(|conn| read_preview(conn, &selection))?;
    let number = number(&preview);
    let question = format!("{} {}?", selection.action.verb(), jobs(&number));
    let shell = cx.shell(&question, Section::Jobs)?;
    let is_typed = selection.action == OperationAction::Discard && preview.count > TYPED;
    cx.render(&PreviewPage {
        action: selection.action,
        question,
        typed: if is_typed {
            number.clone()
        } else {
            String::new()
        },
        number,
        stored: serde_json::to_string(&preview).unwrap_or_default(),
        request: new_request(),
        words: selection.in_words(),
        hidden: selection.pairs(),
        spreads: choices(&preview),
        sample: sample
            .iter()
            .map(|job| JobListRow::of(job, &shell))
            .collect(),
        back: shell.link(&selection.back()),
        is_group: cx.query().get("group").is_some(),
        preview,
        shell,
    })
}

impl PreviewPage {
    fn button(&self) -> String {
        let jobs = jobs(&self.number);
        match self.action {
            OperationAction::Run => format!("Run {jobs} now"),
            OperationAction::Priority => format!("Change {jobs}"),
            action => format!("{} {jobs}", action.verb()),
        }
    }
}

// --- Starts an operation that was confirmed ---

/// Starts an operation with the jobs of a preview.
pub(crate) fn start(cx: &mut Cx<'_>) -> Result<Response, PageError> {
    let form = cx.form().clone();
    let selection = OperationSelection::of(&form, cx.frame()?.now)?;
    let Some((preview, request)) = confirmed(&form) else {
        return Ok(Response::see_other(cx.link(&selection.path())));
    };
    if selection.action == OperationAction::Discard && preview.count > TYPED {
        let typed = form.get("typed").unwrap_or_default();
        if !is_number(typed, &preview) {
            let message =
                "Nothing was discarded: the number that was typed is not the number of jobs.";
            return Ok(cx.done(&selection.path(), message));
        }
    }
    let change = selection.action.change(&form)?;
    let rate = match selection.action {
        OperationAction::Retry => rate(form.get("spread").unwrap_or_default(), &preview)?,
        _ => None,
    };
    let jobs = selection
        .jobs()
        .by_actor(words::page_actor(cx, form.get("reason")));
    let mut operation = jobs
        .in_background(change)
        .preview(preview)
        .request_id(request);
    if let Some(rate) = rate {
        operation = operation.rate(rate);
    }
    operations::start(cx, operation)
}

/// Returns whether a text is the number of jobs, as it is shown or as it is written by hand.
fn is_number(typed: &str, preview: &Preview) -> bool {
    let digits = |text: &str| -> String {
        let kept = text
            .chars()
            .filter(|c| !matches!(c, ',' | ' ' | '+' | '.' | '_'));
        kept.collect()
    };
    let typed = digits(typed);
    !typed.is_empty() && typed == digits(&number(preview))
}

// --- Over what time retried jobs become due ---

/// A choice: its value in the form, and in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SpreadChoice {
    pub(crate) value: String,
    pub(crate) label: String,
}

/// The times over which a known number of jobs can be spread, in seconds.
const OVER: [(u64, &str); 4] = [
    (60, "1 minute"),
    (600, "10 minutes"),
    (3_600, "1 hour"),
    (28_800, "8 hours"),
];

/// The rates at which an unknown number of jobs can be spread.
const RATES: [&str; 4] = ["100/s", "10/s", "100/min", "1000/h"];

/// Returns the choices for the jobs of a preview.
pub(crate) fn choices(preview: &Preview) -> Vec<SpreadChoice> {
    let at_once = SpreadChoice {
        value: String::new(),
        label: "at once".to_owned(),
    };
    let over = OVER.iter().map(|(seconds, label)| SpreadChoice {
        value: format!("over {seconds}"),
        label: format!("over {label}"),
    });
    let rates = RATES.iter().map(|rate| SpreadChoice {
        value: (*rate).to_owned(),
        label: rate.replace("1000", "1,000"),
    });
    let can_know = preview.is_exact && preview.count > 0;
    std::iter::once(at_once)
        .chain(over.filter(|_| can_know))
        .chain(rates)
        .collect()
}

/// Reads a choice: nothing, a rate such as `100/min`, or `over 600` in seconds.
///
/// # Errors
/// If it is none of them.
pub(crate) fn rate(text: &str, preview: &Preview) -> Result<Option<RetryRate>, PageError> {
    let text = text.trim();
    if text.is_empty() {
        return Ok(None);
    }
    let Some(seconds) = text.strip_prefix("over ") else {
        return Ok(Some(text.parse()?));
    };
    let known = OVER.iter().find(|(over, _)| seconds.parse() == Ok(*over));
    let jobs = u32::try_from(preview.count).ok().filter(|jobs| *jobs > 0);
    let (Some((seconds, _)), Some(jobs)) = (known, jobs.filter(|_| preview.is_exact)) else {
        return Err(PageError::Invalid(
            "This number of jobs cannot be spread over that time.".to_owned(),
        ));
    };
    Ok(Some(RetryRate::new(jobs, Duration::from_secs(*seconds))?))
}
