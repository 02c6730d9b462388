//! Changes of many jobs: how far they are, and stopping them.

pub(crate) mod one;

use crate::operation::start::operations;
use crate::web::http::{PageError, Response};
use crate::web::pages::operations::one::OperationView;
use crate::web::request::panels::Panel;
use crate::web::request::route::Cx;
use crate::web::request::shell::Shell;
use crate::web::site::Section;
use askama::Template;

// --- The list of operations ---

/// How many operations a page has.
const ROWS: u32 = 50;

#[derive(Template)]
#[template(path = "operations/list.html")]
struct OperationsPage {
    shell: Shell,
    rows: Panel<Vec<OperationView>>,
    /// Where older ones are; empty if there are none.
    older: String,
    is_first: bool,
}

/// Shows the operations, the newest first.
pub(crate) fn show(cx: &mut Cx<'_>) -> Result<Response, PageError> {
    let before = cx.query().number("before");
    let shell = cx.shell("Operations", Section::Operations)?;
    let found = cx.panel("the operations", |conn| operations(conn, before, ROWS + 1));
    let has_older = found
        .ready()
        .is_some_and(|found| found.len() > ROWS as usize);
    let rows = found.map(|found| {
        let rows = found.iter().take(ROWS as usize);
        rows.map(|one| OperationView::of(one, &shell))
            .collect::<Vec<_>>()
    });
    let last = rows.ready().and_then(|rows| rows.last());
    let older = last
        .filter(|_| has_older)
        .map(|last| shell.find("/operations", [("before", &*last.id.to_string())]));
    cx.render(&OperationsPage {
        older: older.unwrap_or_default(),
        is_first: before.is_none(),
        rows,
        shell,
    })
}
