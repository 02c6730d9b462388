//! Who changed what.

use crate::web::http::{PageError, Pairs, Response};
use crate::web::pages::jobs::filters::{self, When};
use crate::web::pages::words::conditions;
use crate::web::request::panels::Panel;
use crate::web::request::route::Cx;
use crate::web::request::shell::Shell;
use crate::web::show::{Markup, count, cut, escaped};
use crate::web::site::Section;
use askama::Template;
use chrono::NaiveDateTime;
use serde_json::Value;
use windlass::audit::{AuditEntry, AuditLog};
use windlass::internal::db::model::audit::AuditAction;
use windlass::internal::db::table::audit::AuditFilter;
use windlass::{Conn, Result};

// --- The page of the audit ---

/// The most rows on a page.
const ROWS: usize = 50;

/// The texts by which the audit can be narrowed.
const TEXTS: [&str; 3] = ["actor", "action", "target"];

#[derive(Template)]
#[template(path = "audit.html")]
struct AuditPage {
    shell: Shell,
    pairs: Pairs,
    actions: [&'static str; AuditAction::ALL.len()],
    since: [(&'static str, &'static str); 6],
    when: When,
    rows: Panel<Vec<AuditView>>,
    /// The address of the page with older rows; empty if there are none.
    older: String,
    /// The address of the page with the newest rows; empty on that page.
    newest: String,
    operation: String,
}

/// Shows the changes, the newest first.
pub(crate) fn show(cx: &mut Cx<'_>) -> Result<Response, PageError> {
    let pairs = cx.query().clone();
    let when = When::of(&pairs)?;
    let shell = cx.shell("Audit", Section::Audit)?;
    let found = cx.panel("the changes by operators", |conn| {
        read(conn, &pairs, &when, shell.now)
    });
    let has_older = found.ready().is_some_and(|found| found.len() > ROWS);
    let rows = found.map(|found| {
        let rows = found.iter().take(ROWS);
        rows.map(|entry| AuditView::of(entry, &shell))
            .collect::<Vec<_>>()
    });
    let page = |pairs: &Pairs| shell.link(&format!("/audit{}", pairs.to_query()));
    let last = rows.ready().and_then(|rows| rows.last());
    let older = last
        .filter(|_| has_older)
        .map(|last| page(&pairs.with("before", &last.id.to_string())));
    let newest = pairs
        .number("before")
        .map(|_| page(&pairs.without("before")));
    cx.render(&AuditPage {
        actions: AuditAction::ALL.map(AuditAction::column),
        since: filters::SINCE,
        older: older.unwrap_or_default(),
        newest: newest.unwrap_or_default(),
        operation: pairs.get("operation").unwrap_or_default().to_owned(),
        rows,
        when,
        pairs,
        shell,
    })
}

fn read(
    conn: &mut Conn<'_>,
    pairs: &Pairs,
    when: &When,
    now: NaiveDateTime,
) -> Result<Vec<AuditEntry>> {
    let text = |name: &str| pairs.get(name).map(|text| text.trim().to_owned());
    let [actor, action, target] = TEXTS.map(text);
    let (since, until) = when.bounds(now);
    let filter = AuditFilter {
        actor,
        action,
        target,
        operation: pairs.number("operation"),
        since,
        until,
        before: pairs.number("before"),
        ..AuditFilter::default()
    };
    AuditLog::of(filter).limit(ROWS as u32 + 1).list(conn)
}

impl AuditPage {
    fn value(&self, name: &str) -> &str {
        self.pairs.get(name).unwrap_or_default()
    }

    fn is_filtered(&self) -> bool {
        let named = TEXTS.iter().any(|name| self.pairs.get(name).is_some());
        named || !self.when.is_any() || !self.operation.is_empty()
    }

    fn from(&self) -> String {
        filters::field(self.when.from)
    }

    fn to(&self) -> String {
        filters::field(self.when.to)
    }
}

// --- The rows of the audit ---

/// The longest text of a cell, in characters.
const LONGEST: usize = 300;

/// A row of the audit.
#[derive(Debug)]
pub(crate) struct AuditView {
    pub(crate) id: i64,
    pub(crate) at: Markup,
    pub(crate) actor: String,
    /// The way it came, and from where.
    pub(crate) via: String,
    /// The name of the action, as `jobs.retry`.
    pub(crate) action: String,
    /// The target of the change.
    pub(crate) target: Markup,
    /// The values that were set.
    pub(crate) parameters: String,
    /// The number of jobs; empty for none.
    pub(crate) jobs: String,
    pub(crate) reason: String,
    /// A link to its operation; empty for none.
    pub(crate) operation: String,
}

impl AuditView {
    pub(crate) fn of(entry: &AuditEntry, shell: &Shell) -> Self {
        let via = match &entry.origin {
            Some(origin) => format!("{} from {origin}", entry.via),
            None => entry.via.clone(),
        };
        let operation = entry
            .operation_id
            .map(|id| shell.to(["operations", &id.to_string()]));
        AuditView {
            id: entry.id,
            at: shell.time(&entry.at.naive_utc()),
            actor: cut(&entry.actor, LONGEST),
            via: cut(&via, LONGEST),
            action: entry.action.clone(),
            target: target(entry, shell),
            parameters: entry.parameters.as_ref().map(set).unwrap_or_default(),
            jobs: entry.total.or(entry.jobs).map(count).unwrap_or_default(),
            reason: cut(entry.reason.as_deref().unwrap_or_default(), LONGEST),
            operation: operation.unwrap_or_default(),
        }
    }
}

fn target(entry: &AuditEntry, shell: &Shell) -> Markup {
    let Some(target) = &entry.target else {
        let filter = entry.filter.as_ref().map(selection);
        return Markup::trusted(escaped(&filter.unwrap_or_default()));
    };
    let (kind, _) = entry.action.split_once('.').unwrap_or((&entry.action, ""));
    let text = cut(target, LONGEST);
    let link = |href: String, text: &str| {
        Markup::trusted(format!(
            "<a href=\"{}\">{}</a>",
            escaped(&href),
            escaped(text)
        ))
    };
    match kind {
        "jobs" if target.bytes().all(|byte| byte.is_ascii_digit()) => {
            link(shell.to(["jobs", target]), &format!("job {text}"))
        }
        "queues" => link(shell.to(["queues", target]), &text),
        "operations" => link(
            shell.to(["operations", target]),
            &format!("operation {text}"),
        ),
        "classes" => link(shell.find("/jobs", [("class", target)]), &text),
        "limits" => link(shell.find("/limits", [("key", target)]), &text),
        "recurring" => link(shell.find("/recurring", [("key", target)]), &text),
        _ => Markup::trusted(escaped(&text)),
    }
}

/// Returns a selection of jobs in words.
fn selection(filter: &Value) -> String {
    let Some(conditions) = conditions(filter) else {
        return in_words(filter);
    };
    let parts = conditions
        .iter()
        .map(|(name, value)| format!("{name}: {value}"));
    cut(&parts.collect::<Vec<_>>().join("; "), LONGEST)
}

/// Returns what was set, in words. That of an operation is in its change.
fn set(parameters: &Value) -> String {
    match parameters {
        Value::Object(fields) if fields.contains_key("change") => {
            let parts = ["change", "rate"]
                .iter()
                .filter_map(|name| fields.get(*name));
            parts.map(in_words).collect::<Vec<_>>().join("; ")
        }
        other => in_words(other),
    }
}

/// Returns JSON as `name: value, name: value`, without its brackets.
fn in_words(value: &Value) -> String {
    cut(&flat(value), LONGEST)
}

fn flat(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(flat).collect();
            items.join(", ")
        }
        Value::Object(fields) => {
            let part = |(name, value): (&String, &Value)| {
                let (name, value) = (name.replace('_', " "), flat(value));
                match value.is_empty() {
                    true => name,
                    false => format!("{name}: {value}"),
                }
            };
            let parts: Vec<String> = fields.iter().map(part).collect();
            parts.join("; ")
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn json_is_shown_without_its_brackets() {
        let filter = json!({"states": ["failed"], "filter": {"class": "mail", "ids": [1, 2]}});
        assert_eq!(
            in_words(&filter),
            "filter: class: mail; ids: 1, 2; states: failed"
        );
        assert_eq!(in_words(&json!({"discard": {}})), "discard");
        assert_eq!(
            in_words(&json!("x".repeat(400))).chars().count(),
            LONGEST + 1
        );
    }
}
