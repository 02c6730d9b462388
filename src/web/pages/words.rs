//! Sentences about jobs, with links.

use crate::admin::explain::words::Word;
use crate::admin::timeline::Mark;
use crate::db::model::state::JobState;
use crate::web::request::shell::Shell;
use crate::web::show::json::cut;
use crate::web::show::markup::{Markup, escaped};
use crate::web::show::numbers::count;
use crate::web::show::times;
use chrono::NaiveDateTime;

/// The longest name or message in a sentence, in characters.
const LONGEST: usize = 1_000;

/// Returns a class of the style sheet, and a word.
pub(crate) fn of_state(state: Option<JobState>) -> (&'static str, &'static str) {
    match state {
        Some(JobState::Ready) => ("ready", "ready"),
        Some(JobState::Scheduled) => ("sched", "scheduled"),
        Some(JobState::Blocked) => ("block", "blocked"),
        Some(JobState::Claimed) => ("run", "running"),
        Some(JobState::Failed) => ("fail", "failed"),
        Some(JobState::Finished) => ("done", "finished"),
        Some(JobState::Cancelled) => ("disc", "cancelled"),
        Some(JobState::Discarded) => ("disc", "discarded"),
        None => ("fail", "inconsistent"),
    }
}

/// Returns the class of the style sheet.
pub(crate) fn of_mark(mark: Mark) -> &'static str {
    match mark {
        Mark::Ready => "ready",
        Mark::Scheduled => "sched",
        Mark::Running => "run",
        Mark::Blocked => "block",
        Mark::Failed => "fail",
        Mark::Finished => "done",
        Mark::Discarded => "disc",
    }
}

/// Returns a link to a job, with its id as text.
pub(crate) fn job_link(shell: &Shell, job: i64) -> Markup {
    let href = shell.to(["jobs", &job.to_string()]);
    Markup::trusted(format!("<a href=\"{}\">{}</a>", escaped(&href), count(job)))
}

/// Returns a sentence. The words that name the state have its mark, `class`.
pub(crate) fn sentence(words: &[Word], class: &str, shell: &Shell, now: NaiveDateTime) -> Markup {
    let html: Vec<String> = words
        .iter()
        .map(|word| html(word, class, shell, now))
        .collect();
    Markup::trusted(html.concat())
}

fn html(word: &Word, class: &str, shell: &Shell, now: NaiveDateTime) -> String {
    let link =
        |path: String, text: &str| format!("<a href=\"{}\">{}</a>", escaped(&path), escaped(text));
    match word {
        Word::State(state) => Markup::element("span", &format!("s {class} ink"), state).to_string(),
        Word::Text(text) => escaped(text),
        Word::Job(job) => job_link(shell, job.0).to_string(),
        Word::Key(key) => link(shell.find("/limits", [("key", key)]), key),
        Word::Process(name) => link(shell.find("/processes", [("name", name)]), name),
        Word::Name(name) => escaped(&cut(name, LONGEST)),
        Word::Time(at) => times::time_of(at.naive_utc(), now).to_string(),
        Word::Command(command) => format!("<code>{}</code>", escaped(command)),
    }
}
