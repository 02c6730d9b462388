//! Batches: how far they are, what follows them, and changes of all their jobs.

pub(crate) mod confirm;
pub(crate) mod one;

use crate::web::http::{self, PageError, Response};
use crate::web::pages::batches::one::BatchView;
use crate::web::pages::operations::{self, confirmed};
use crate::web::pages::words;
use crate::web::request::panels::Panel;
use crate::web::request::route::Cx;
use crate::web::request::shell::Shell;
use crate::web::site::Section;
use askama::Template;
use windlass::batches::BatchFilter;
use windlass::jobs::{Change, Jobs};
use windlass::{BatchId, batches};

// --- Changes of all jobs of a batch, as operations ---

/// A change of all jobs of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BatchAction {
    Cancel,
    Retry,
}

impl BatchAction {
    /// Returns its name in addresses.
    pub(crate) fn name(self) -> &'static str {
        match self {
            BatchAction::Cancel => "cancel",
            BatchAction::Retry => "retry",
        }
    }

    /// Returns the jobs that it changes.
    pub(crate) fn jobs(self, batch: BatchId) -> Jobs {
        match self {
            BatchAction::Cancel => batch.open_jobs(),
            BatchAction::Retry => batch.failed_jobs(),
        }
    }
}

/// Cancels a batch.
pub(crate) fn cancel(cx: &mut Cx<'_>) -> Result<Response, PageError> {
    start(cx, BatchAction::Cancel, Change::Cancel)
}

/// Retries the failed jobs of a batch.
pub(crate) fn retry(cx: &mut Cx<'_>) -> Result<Response, PageError> {
    let even_at_most_once = cx.form().has("even_at_most_once");
    start(cx, BatchAction::Retry, Change::Retry { even_at_most_once })
}

/// Starts an operation.
fn start(cx: &mut Cx<'_>, action: BatchAction, change: Change) -> Result<Response, PageError> {
    let row = one::find(cx)?;
    let form = cx.form().clone();
    let Some((preview, request)) = confirmed(&form) else {
        let path = http::path(&["batches", &row.id.to_string(), action.name()]);
        return Ok(Response::see_other(cx.link(&path)));
    };
    let jobs = action.jobs(BatchId(row.id));
    let jobs = jobs.by_actor(words::page_actor(cx, form.get("reason")));
    let operation = jobs
        .in_background(change)
        .preview(preview)
        .request_id(request);
    operations::start(cx, operation)
}

// --- The list of batches ---

/// The most batches on a page.
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
    /// The addresses of the pages with the newest and the older ones; empty if there are none.
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
        batches::list(conn, filter, before.map(BatchId), ROWS + 1)
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
