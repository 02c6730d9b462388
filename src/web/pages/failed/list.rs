//! The page of the failed jobs.

use crate::admin::groups::{FailedGroup, FailedGroups};
use crate::web::http::page_error::PageError;
use crate::web::http::pairs::Pairs;
use crate::web::http::response::Response;
use crate::web::pages::failed::groups::{GROWS, GroupView};
use crate::web::pages::jobs::when::{self, When};
use crate::web::reads::looks::GROUPS;
use crate::web::request::cx::Cx;
use crate::web::request::panel::Panel;
use crate::web::request::shell::Shell;
use crate::web::show::numbers::count;
use crate::web::site::section::Section;
use askama::Template;

/// What the page shows of the groups.
struct FailedView {
    rows: Vec<GroupView>,
    /// How many jobs have failed, in how many groups.
    lead: String,
    /// How many of the groups still grow, in words; empty for none.
    growing: String,
    /// Whether these are all groups.
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
    let found = cx.shared_panel("the groups of failed jobs", &GROUPS);
    cx.render(&FailedPage {
        view: found.map(|(found, _)| view(&found, &pairs, &when, &shell)),
        since: when::SINCE,
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
