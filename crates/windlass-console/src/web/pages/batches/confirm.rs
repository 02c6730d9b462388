//! Shows what a change of a batch affects, and asks.

use crate::web::http::{PageError, Response};
use crate::web::pages::batches::{BatchAction, one};
use crate::web::pages::operations::new_request;
use crate::web::pages::operations::preview::{jobs, number};
use crate::web::request::route::Cx;
use crate::web::request::shell::Shell;
use crate::web::site::Section;
use askama::Template;
use windlass::BatchId;
use windlass::operations::Preview;

#[derive(Template)]
#[template(path = "batches/confirm.html")]
struct ConfirmBatchPage {
    shell: Shell,
    action: BatchAction,
    question: String,
    /// `1 job` or `10,000+ jobs`
    jobs: String,
    preview: Preview,
    stored: String,
    request: String,
    path: String,
    back: String,
}

/// Asks before a batch is cancelled.
pub(crate) fn cancel(cx: &mut Cx<'_>) -> Result<Response, PageError> {
    ask(cx, BatchAction::Cancel)
}

/// Asks before the failed jobs of a batch are retried.
pub(crate) fn retry(cx: &mut Cx<'_>) -> Result<Response, PageError> {
    ask(cx, BatchAction::Retry)
}

fn ask(cx: &mut Cx<'_>, action: BatchAction) -> Result<Response, PageError> {
    let row = one::find(cx)?;
    if !row.is_ours {
        return Err(PageError::Invalid(
            "A batch of Ruby is not changed as a whole: select its jobs.".to_owned(),
        ));
    }
    let preview = cx.read(|conn| action.jobs(BatchId(row.id)).preview(conn))?;
    let name = one::name(row.id, &row.name);
    let question = match action {
        BatchAction::Cancel => format!("Cancel {name}?"),
        BatchAction::Retry => format!("Retry the failed jobs of {name}?"),
    };
    let shell = cx.shell(&question, Section::Batches)?;
    let id = row.id.to_string();
    cx.render(&ConfirmBatchPage {
        question,
        jobs: jobs(&number(&preview)),
        stored: serde_json::to_string(&preview).unwrap_or_default(),
        request: new_request(),
        path: shell.to(["batches", &id, action.name()]),
        back: shell.to(["batches", &id]),
        action,
        preview,
        shell,
    })
}
