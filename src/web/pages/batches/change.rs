//! Changes of all jobs of a batch, as operations.

use crate::admin::bulk::change::Change;
use crate::admin::jobs::Jobs;
use crate::job::id::BatchId;
use crate::operation::start::Preview;
use crate::web::http::link;
use crate::web::http::page_error::PageError;
use crate::web::http::response::Response;
use crate::web::pages::actor;
use crate::web::pages::batches::one;
use crate::web::request::cx::Cx;

/// What is done to a batch.
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

/// Starts an operation. The same form sent again leads to the same operation.
fn start(cx: &mut Cx<'_>, action: BatchAction, change: Change) -> Result<Response, PageError> {
    let row = one::find(cx)?;
    let form = cx.form().clone();
    let preview = serde_json::from_str::<Preview>(form.get("preview").unwrap_or_default());
    let (Ok(preview), Some(request)) = (preview, form.get("request")) else {
        let path = link::path(&["batches", &row.id.to_string(), action.name()]);
        return Ok(Response::see_other(cx.link(&path)));
    };
    let jobs = action.jobs(BatchId(row.id));
    let jobs = jobs.by_actor(actor::of(cx, form.get("reason")));
    let operation = jobs
        .in_background(change)
        .preview(preview)
        .request_id(request);
    let started = cx.write(|conn| operation.start(conn))?;
    let _ = cx.site.operations.try_send(());
    let path = link::path(&["operations", &started.id.to_string()]);
    Ok(Response::see_other(cx.link(&path)))
}
