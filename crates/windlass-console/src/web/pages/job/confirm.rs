//! Asks before a change of one job that cannot be undone.

use crate::web::http::{PageError, Response};
use crate::web::pages::job::{self, JobActions};
use crate::web::pages::words::sentence;
use crate::web::request::route::Cx;
use crate::web::request::shell::Shell;
use crate::web::show::{Markup, count};
use crate::web::site::Section;
use askama::Template;
use windlass::jobs::Reason;

/// The field by which a job that runs at most once is retried.
pub(crate) const EVEN: &str = "even_at_most_once";

#[derive(Template)]
#[template(path = "job/confirm.html")]
struct ConfirmJobPage {
    shell: Shell,
    question: String,
    /// The effect of the change, with its details in `more`.
    lead: &'static str,
    more: &'static str,
    state: Markup,
    queue: String,
    /// The address of the form, and the address to go back to.
    action: String,
    back: String,
    button: &'static str,
    is_danger: bool,
    /// Sent along; empty for none.
    field: &'static str,
    /// Why it is not possible, if so.
    refusal: Option<&'static str>,
}

/// The words of a question.
struct Question {
    verb: &'static str,
    lead: &'static str,
    more: &'static str,
    button: &'static str,
    is_danger: bool,
    field: &'static str,
}

const CANCEL: Question = Question {
    verb: "Cancel",
    lead: "It will not run.",
    more: "Its row is kept like that of a finished job. A cancelled job cannot be retried.",
    button: "Cancel the job",
    is_danger: false,
    field: "",
};

const CANCEL_RUN: Question = Question {
    lead: "Its process is asked to stop it.",
    more: "The job ends as soon as it checks for a cancellation, or its attempt fails. If it finishes before, it has finished. \
           A cancelled job cannot be retried.",
    button: "Ask it to stop",
    ..CANCEL
};

const DISCARD: Question = Question {
    verb: "Discard",
    lead: "It will not run again, and all that is stored about it is deleted.",
    more: "This cannot be undone. Its unique id becomes free.",
    button: "Discard the job",
    is_danger: true,
    field: "",
};

const RETRY: Question = Question {
    verb: "Retry",
    lead: "It runs at most once, and has started before: it may have done all or part of its work.",
    more: "Retry it only if you are sure that doing it again does no harm.",
    button: "Retry the job",
    is_danger: true,
    field: EVEN,
};

/// Asks before a job is cancelled.
pub(crate) fn cancel(cx: &mut Cx<'_>) -> Result<Response, PageError> {
    ask(cx, "cancel")
}

/// Asks before a job is discarded.
pub(crate) fn discard(cx: &mut Cx<'_>) -> Result<Response, PageError> {
    ask(cx, "discard")
}

/// Asks before a job is retried that runs at most once.
pub(crate) fn retry(cx: &mut Cx<'_>) -> Result<Response, PageError> {
    ask(cx, "retry")
}

fn ask(cx: &mut Cx<'_>, action: &'static str) -> Result<Response, PageError> {
    let job = job::read(cx)?;
    let explanation = &job.details.explanation;
    let possible = JobActions::of(&job.details, cx.viewer.is_operator());
    let runs = matches!(explanation.reason, Reason::Claimed { .. });
    let (question, possible) = match action {
        "cancel" if runs => (CANCEL_RUN, possible.cancel),
        "cancel" => (CANCEL, possible.cancel),
        "retry" => (RETRY, possible.retry),
        _ => (DISCARD, possible.discard),
    };
    let task = &explanation.task;
    let id = task.job_id.0;
    let text = format!("{} {} {}?", question.verb, task.class_name, count(id));
    let shell = cx.shell(&text, Section::Jobs)?;
    let words = explanation.in_words();
    let page = ConfirmJobPage {
        question: text,
        lead: question.lead,
        more: question.more,
        state: sentence(
            words.first().map_or(&[], Vec::as_slice),
            job::mark(&job.details).0,
            &shell,
            shell.now,
        ),
        queue: explanation.queue_name.clone().unwrap_or_default(),
        action: shell.to(["jobs", &id.to_string(), action]),
        back: shell.to(["jobs", &id.to_string()]),
        button: question.button,
        is_danger: question.is_danger,
        field: question.field,
        refusal: possible.err(),
        shell,
    };
    cx.render(&page)
}
