//! The page of the audit.

use crate::audit::log::{AuditEntry, AuditLog};
use crate::db::Conn;
use crate::db::model::audit::AuditAction;
use crate::error::Result;
use crate::web::http::page_error::PageError;
use crate::web::http::pairs::Pairs;
use crate::web::http::response::Response;
use crate::web::pages::audit::rows::AuditView;
use crate::web::pages::jobs::when::{self, When};
use crate::web::request::cx::Cx;
use crate::web::request::panel::Panel;
use crate::web::request::shell::Shell;
use crate::web::site::section::Section;
use askama::Template;
use chrono::NaiveDateTime;

/// How many rows a page has.
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
    /// Where older rows are; empty if there are none.
    older: String,
    /// Where the newest rows are; empty on that page.
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
        since: when::SINCE,
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
    let mut log = AuditLog::new().limit(ROWS as u32 + 1);
    let [actor, action, target] = TEXTS.map(|name| pairs.get(name).map(str::trim));
    if let Some(actor) = actor {
        log = log.actor(actor);
    }
    if let Some(action) = action {
        log = log.action(action);
    }
    if let Some(target) = target {
        log = log.target(target);
    }
    if let Some(operation) = pairs.number("operation") {
        log = log.operation(operation);
    }
    let (from, to) = when.bounds(now);
    if let Some(from) = from {
        log = log.since(from.and_utc());
    }
    if let Some(to) = to {
        log = log.until(to.and_utc());
    }
    if let Some(before) = pairs.number("before") {
        log = log.before(before);
    }
    log.list(conn)
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
        when::field(self.when.from)
    }

    fn to(&self) -> String {
        when::field(self.when.to)
    }
}
