//! The list of batches.

use crate::admin::batches::{BatchFilter, batches};
use crate::job::id::BatchId;
use crate::web::http::page_error::PageError;
use crate::web::http::response::Response;
use crate::web::pages::batches::view::BatchView;
use crate::web::request::cx::Cx;
use crate::web::request::panel::Panel;
use crate::web::request::shell::Shell;
use crate::web::site::section::Section;
use askama::Template;

/// How many batches a page has.
const ROWS: u32 = 50;

/// The states by which the list can be narrowed: their names in the address, and in words.
const STATES: [(&str, &str, BatchFilter); 4] = [
    ("", "All", BatchFilter::All),
    ("open", "Open", BatchFilter::Open),
    ("over", "Over", BatchFilter::Over),
    ("failed", "Failed", BatchFilter::Failed),
];

/// A state to choose.
struct BatchTab {
    href: String,
    label: &'static str,
    is_current: bool,
}

#[derive(Template)]
#[template(path = "batches/list.html")]
struct BatchesPage {
    shell: Shell,
    tabs: Vec<BatchTab>,
    rows: Panel<Vec<BatchView>>,
    /// Where the newest and the older ones are; empty if there are none.
    newest: String,
    older: String,
    is_all: bool,
}

/// Shows the batches, the newest first.
pub(crate) fn show(cx: &mut Cx<'_>) -> Result<Response, PageError> {
    let before = cx.query().number("before");
    let state = cx.query().get("state").unwrap_or_default().to_owned();
    let known = STATES.iter().find(|(name, ..)| *name == state);
    let (name, _, filter) = *known.ok_or_else(|| {
        PageError::Invalid("The state of a batch is one of: open, over, failed.".to_owned())
    })?;
    let shell = cx.shell("Batches", Section::Batches)?;
    let found = cx.panel("the batches", |conn| {
        batches(conn, filter, before.map(BatchId), ROWS + 1)
    });
    let has_older = found
        .ready()
        .is_some_and(|found| found.len() > ROWS as usize);
    let rows = found.map(|found| {
        let rows = found.iter().take(ROWS as usize);
        rows.map(|one| BatchView::of(one, &shell))
            .collect::<Vec<_>>()
    });
    let last = rows.ready().and_then(|rows| rows.last());
    let older = last
        .filter(|_| has_older)
        .map(|last| at(&shell, name, Some(last.id)));
    let tab = |(name, label, other): &(&str, &'static str, BatchFilter)| BatchTab {
        href: at(&shell, name, None),
        label,
        is_current: *other == filter,
    };
    cx.render(&BatchesPage {
        tabs: STATES.iter().map(tab).collect(),
        newest: before.map_or_else(String::new, |_| at(&shell, name, None)),
        older: older.unwrap_or_default(),
        is_all: filter == BatchFilter::All,
        rows,
        shell,
    })
}

fn at(shell: &Shell, state: &str, before: Option<i64>) -> String {
    let before = before.map_or_else(String::new, |before| before.to_string());
    let pairs = [("state", state), ("before", &before)];
    let pairs: Vec<(&str, &str)> = pairs
        .into_iter()
        .filter(|(_, value)| !value.is_empty())
        .collect();
    shell.query("/batches", &pairs)
}
