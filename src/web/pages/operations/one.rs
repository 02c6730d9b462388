//! One operation: its progress, and stopping it.

use crate::operation::start::{Operation, operation};
use crate::web::http::link;
use crate::web::http::page_error::PageError;
use crate::web::http::response::Response;
use crate::web::pages::actor;
use crate::web::pages::operations::view::{self, CountRow, OperationView};
use crate::web::request::cx::Cx;
use crate::web::request::shell::Shell;
use crate::web::show::filters;
use crate::web::site::section::Section;
use askama::Template;

/// After this time without a batch, no process seems to run it.
const STILL: f64 = 15.0;

#[derive(Template)]
#[template(path = "operations/one.html")]
struct OperationPage {
    shell: Shell,
    view: OperationView,
    operation: Operation,
    selected: Vec<(String, String)>,
    counts: Vec<CountRow>,
    is_still: bool,
}

fn find(cx: &mut Cx<'_>) -> Result<Operation, PageError> {
    let source = cx.site.sources.get(cx.request.database);
    let late = match source.is_some_and(|source| source.replica.is_some()) {
        true => {
            " If it was started just now, reload: pages are read from a replica, which is a little late."
        }
        false => "",
    };
    let missing = |id: &str| {
        PageError::NotFound(format!(
            "There is no operation {id}: it never existed, or its row was deleted some time after its end.{late}"
        ))
    };
    let text = cx.param("id").to_owned();
    let id: i64 = text.parse().map_err(|_| missing(&text))?;
    cx.read(|conn| operation(conn, id))?
        .ok_or_else(|| missing(&text))
}

/// Shows an operation.
pub(crate) fn show(cx: &mut Cx<'_>) -> Result<Response, PageError> {
    let operation = find(cx)?;
    let shell = cx.shell(&format!("Operation {}", operation.id), Section::Operations)?;
    cx.render(&OperationPage {
        view: OperationView::of(&operation, &shell),
        selected: view::selected(&operation),
        counts: view::counts(&operation),
        is_still: !operation.state.has_ended() && operation.still_seconds > STILL,
        operation,
        shell,
    })
}

/// Stops an operation.
pub(crate) fn stop(cx: &mut Cx<'_>) -> Result<Response, PageError> {
    let id = find(cx)?.id;
    let actor = actor::of(cx, cx.form().get("reason"));
    let stopped = cx.write(|conn| actor.stop_operation(conn, id))?;
    let message = match stopped {
        true => "Stopped. The jobs that were changed stay as they are now.",
        false => "Nothing was stopped: the operation had ended.",
    };
    Ok(cx.done(&link::path(&["operations", &id.to_string()]), message))
}

impl OperationPage {
    fn stop_path(&self) -> String {
        let id = self.operation.id.to_string();
        self.shell.to(["operations", &id, "stop"])
    }

    fn audit_path(&self) -> String {
        let id = self.operation.id.to_string();
        self.shell.find("/audit", [("operation", &id)])
    }
}
