//! Failed jobs, grouped by what their failures have in common.

use crate::web::http::{self, PageError, Pairs, Response};
use crate::web::pages::jobs::filters::{self, When};
use crate::web::reads::GROUPS;
use crate::web::request::panels::Panel;
use crate::web::request::route::Cx;
use crate::web::request::shell::Shell;
use crate::web::show::{Markup, count, cut, escaped};
use crate::web::site::Section;
use askama::Template;
use serde_json::json;
use windlass::failed::{FailedGroup, FailedGroups};
use windlass::internal::db::model::outcome::is_unknown;

// --- A group of failures as the page shows it ---

/// The longest message, in characters.
const LONGEST: usize = 300;

/// A group.
#[derive(Debug)]
pub(crate) struct GroupView {
    pub(crate) class: String,
    pub(crate) kind: String,
    /// The message, with its placeholders marked.
    pub(crate) message: Markup,
    pub(crate) place: String,
    /// The message of the newest failure.
    pub(crate) newest: String,
    pub(crate) count: String,
    /// Its share of the listed jobs: `96 %`.
    pub(crate) share: String,
    pub(crate) first: Markup,
    pub(crate) last: Markup,
    /// True if a job failed like this within the last minutes.
    pub(crate) is_growing: bool,
    /// True if it is unknown what the runs have done.
    pub(crate) is_unknown: bool,
    pub(crate) jobs: String,
    pub(crate) job: String,
    pub(crate) retry: String,
    pub(crate) discard: String,
}

/// A group that grew within this time, in seconds, still grows.
pub(crate) const GROWS: f64 = 300.0;

impl GroupView {
    /// `all` is the number of jobs of all groups.
    pub(crate) fn of(group: &FailedGroup, all: u64, shell: &Shell) -> Self {
        let print = &*group.fingerprint;
        let plus = if group.is_exact { "" } else { "+" };
        let preview = |action: &str| {
            let pairs = [
                ("state", "failed"),
                ("group", print),
                ("which", "matching"),
                ("do", action),
            ];
            shell.link(&http::with_query("/preview", &pairs))
        };
        let since = (shell.now - group.last_at.naive_utc()).as_seconds_f64();
        let error = json!({"exception_class": group.kind, "message": ""}).to_string();
        let first_line = |text: &str| cut(text.lines().next().unwrap_or_default(), LONGEST);
        GroupView {
            class: cut(&group.class_name, LONGEST),
            kind: cut(&group.kind, LONGEST),
            message: marked(&first_line(&group.shape)),
            place: cut(group.place.as_deref().unwrap_or_default(), LONGEST),
            newest: cut(&group.message, 4 * LONGEST),
            count: format!("{}{plus}", count(group.count)),
            share: share(group.count, all),
            first: shell.time_ago(&group.first_at.naive_utc()),
            last: shell.time_ago(&group.last_at.naive_utc()),
            is_growing: since < GROWS,
            is_unknown: is_unknown(&error),
            jobs: shell.find("/jobs", [("state", "failed"), ("group", print)]),
            job: shell.to(["jobs", &group.job_id.to_string()]),
            retry: preview("retry"),
            discard: preview("discard"),
        }
    }
}

/// Returns how much of all jobs is in the group, rounded; never 0 %, and 100 % only for all of them.
fn share(jobs: u64, all: u64) -> String {
    match (jobs.saturating_mul(100).checked_div(all), jobs) {
        (None, _) | (_, 0) => "0 %".to_owned(),
        (Some(0), _) => "< 1 %".to_owned(),
        (Some(percent), _) => format!("{} %", percent.min(100)),
    }
}

/// The placeholders of a shape.
const PLACEHOLDERS: [&str; 5] = ["n", "text", "host", "url", "address"];

fn marked(shape: &str) -> Markup {
    let mut html = escaped(shape);
    for word in PLACEHOLDERS {
        html = html.replace(&format!("{{{word}}}"), &format!("<var>{word}</var>"));
    }
    Markup::trusted(html)
}

// --- The page of the failed jobs ---

/// The groups of failed jobs, as the page shows them.
struct FailedView {
    rows: Vec<GroupView>,
    /// The number of failed jobs and of their groups, in words.
    lead: String,
    /// The number of groups that still grow, in words; empty for none.
    growing: String,
    /// True if these are all groups.
    is_complete: bool,
    without_fingerprint: String,
}

#[derive(Template)]
#[template(path = "failed.html")]
struct FailedPage {
    shell: Shell,
    pairs: Pairs,
    when: When,
    since: [(&'static str, &'static str); 6],
    view: Panel<FailedView>,
}

/// Shows the groups of failed jobs.
pub(crate) fn show(cx: &mut Cx<'_>) -> Result<Response, PageError> {
    let pairs = cx.query().clone();
    let when = When::of(&pairs)?;
    let shell = cx.shell("Failed", Section::Failed)?;
    let found = cx.cached_panel("the groups of failed jobs", &GROUPS);
    cx.render(&FailedPage {
        view: found.map(|(found, _)| view(&found, &pairs, &when, &shell)),
        since: filters::SINCE,
        when,
        pairs,
        shell,
    })
}

fn view(found: &FailedGroups, pairs: &Pairs, when: &When, shell: &Shell) -> FailedView {
    let (from, to) = when.bounds(shell.now);
    let has = |text: &str, name: &str| {
        pairs
            .get(name)
            .is_none_or(|part| text.contains(part.trim()))
    };
    let matches = |group: &&FailedGroup| {
        let last = group.last_at.naive_utc();
        has(&group.class_name, "class")
            && has(&group.kind, "kind")
            && (has(&group.message, "text") || has(&group.shape, "text"))
            && from.is_none_or(|from| last >= from)
            && to.is_none_or(|to| group.first_at.naive_utc() < to)
    };
    let groups: Vec<&FailedGroup> = found.groups.iter().filter(matches).collect();
    let all: u64 = groups.iter().map(|group| group.count).sum();
    let grows =
        |group: &&&FailedGroup| (shell.now - group.last_at.naive_utc()).as_seconds_f64() < GROWS;
    let growing = groups.iter().filter(grows).count();
    let is_exact = found.is_complete && groups.iter().all(|group| group.is_exact);
    let plus = if is_exact { "" } else { "+" };
    FailedView {
        rows: groups
            .iter()
            .map(|group| GroupView::of(group, all, shell))
            .collect(),
        lead: format!(
            "{}{plus} {} failed, in {}.",
            count(all),
            if all == 1 { "job has" } else { "jobs have" },
            plural(groups.len(), "group")
        ),
        growing: match growing {
            0 => String::new(),
            1 => "One group has grown within the last 5 min.".to_owned(),
            many => format!("{many} groups have grown within the last 5 min."),
        },
        is_complete: found.is_complete,
        without_fingerprint: match found.without_fingerprint {
            0 => String::new(),
            1 => "1 failure".to_owned(),
            many => format!("{} failures", count(many)),
        },
    }
}

fn plural(number: usize, word: &str) -> String {
    let s = if number == 1 { "" } else { "s" };
    format!("{} {word}{s}", count(number))
}

impl FailedPage {
    fn value(&self, name: &str) -> &str {
        self.pairs.get(name).unwrap_or_default()
    }

    fn is_filtered(&self) -> bool {
        let names = ["class", "kind", "text"];
        names.iter().any(|name| self.pairs.get(name).is_some()) || !self.when.is_any()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_are_marked_and_the_rest_is_escaped() {
        assert_eq!(
            marked("cannot connect to {host}: <b>{n}</b> {other}").as_str(),
            "cannot connect to <var>host</var>: &#60;b&#62;<var>n</var>&#60;/b&#62; {other}"
        );
    }

    #[test]
    fn shares_are_whole_percents() {
        for (jobs, all, text) in [
            (0, 0, "0 %"),
            (1, 1000, "< 1 %"),
            (1204, 1251, "96 %"),
            (5, 5, "100 %"),
        ] {
            assert_eq!(share(jobs, all), text);
        }
    }
}
