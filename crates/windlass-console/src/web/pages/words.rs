//! Sentences about jobs, with links.

use crate::read::timeline::Mark;
use crate::web::http::Request;
use crate::web::request::route::Cx;
use crate::web::request::shell::Shell;
use crate::web::show::{self, Markup, count, cut, escaped};
use chrono::NaiveDateTime;
use serde_json::Value;
use windlass::history::TimeRange;
use windlass::internal::admin::explain::words::Word;
use windlass::internal::db::model::audit::{Actor, Via};
use windlass::jobs::{JobState, Jobs};

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
        Word::Time(at) => show::time_of(at.naive_utc(), now).to_string(),
        Word::Command(command) => format!("<code>{}</code>", escaped(command)),
    }
}

// --- A stored selection of jobs, in words ---

/// Returns each condition with its name; `None` if it is not a selection that this version knows.
pub(crate) fn conditions(filter: &Value) -> Option<Vec<(String, String)>> {
    let jobs: Jobs = serde_json::from_value(filter.clone()).ok()?;
    let mut all: Vec<(String, Vec<String>)> = Vec::new();
    for (name, value) in jobs.to_pairs() {
        match all.iter_mut().find(|(other, _)| *other == name) {
            Some((_, values)) => values.push(value),
            None => all.push((name, vec![value])),
        }
    }
    let words = all.into_iter().map(|(name, values)| match &*name {
        "ids" if values.len() > 5 => ("jobs".to_owned(), format!("{} by their ids", values.len())),
        "ids" => ("jobs".to_owned(), values.join(", ")),
        _ => (name.replace('_', " "), values.join(", ")),
    });
    Some(words.collect())
}

// --- Who changes something by a page, for the audit ---

/// Returns the viewer as the actor of a change, with a reason if one was given.
pub(crate) fn page_actor(cx: &Cx<'_>, reason: Option<&str>) -> Actor {
    Actor::named(&*cx.viewer.name)
        .via(Via::Page)
        .origin(cx.viewer.client.to_string())
        .reason(reason.unwrap_or_default().trim())
}

// --- The time ranges of charts, chosen by the address ---

/// A link to a page with another time range.
#[derive(Debug, Clone)]
pub(crate) struct RangeTab {
    pub(crate) label: &'static str,
    pub(crate) path: String,
    pub(crate) is_current: bool,
}

/// The ranges with their names in addresses, and the words for them.
const RANGES: [(TimeRange, &str, &str); 5] = [
    (TimeRange::Hour, "hour", "Last hour"),
    (TimeRange::Day, "day", "24 hours"),
    (TimeRange::Week, "week", "7 days"),
    (TimeRange::Month, "month", "30 days"),
    (TimeRange::Year, "year", "A year"),
];

/// Returns the range that an address names; the last hour if it names none.
pub(crate) fn chosen(request: &Request) -> TimeRange {
    let name = request.query.get("range").unwrap_or_default();
    let found = RANGES.iter().find(|(_, other, _)| *other == name);
    found.map_or(TimeRange::Hour, |(range, ..)| *range)
}

/// Returns the links to all ranges.
pub(crate) fn tabs(request: &Request) -> Vec<RangeTab> {
    let current = chosen(request);
    let tab = |(range, name, label): &(TimeRange, &str, &'static str)| RangeTab {
        label,
        path: match range {
            TimeRange::Hour => format!(
                "{}{}",
                request.path,
                request.query.without("range").to_query()
            ),
            _ => format!(
                "{}{}",
                request.path,
                request.query.with("range", name).to_query()
            ),
        },
        is_current: *range == current,
    };
    RANGES.iter().map(tab).collect()
}

/// Returns the words for a range within a sentence: `the last hour`.
pub(crate) fn in_words(range: TimeRange) -> &'static str {
    match range {
        TimeRange::Hour => "the last hour",
        TimeRange::Day => "the last 24 hours",
        TimeRange::Week => "the last 7 days",
        TimeRange::Month => "the last 30 days",
        TimeRange::Year => "the last year",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass::JobId;

    #[test]
    fn values_of_one_name_are_together() {
        let jobs = Jobs::waiting().class("mail").ids([JobId(1), JobId(2)]);
        let stored = serde_json::to_value(&jobs).unwrap();
        let words = conditions(&stored).unwrap();
        let word = |name: &str| {
            let found = words.iter().find(|(other, _)| other == name);
            found.map(|(_, value)| value.clone())
        };
        assert_eq!(word("state").unwrap().split(", ").count(), 3);
        assert_eq!(word("class").unwrap(), "mail");
        assert_eq!(word("jobs").unwrap(), "1, 2");
        assert_eq!(conditions(&Value::from("x")), None);
    }
}
