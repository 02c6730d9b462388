//! Starts a bulk action that was confirmed, as an operation.

use crate::operation::start::Preview;
use crate::web::http::link;
use crate::web::http::page_error::PageError;
use crate::web::http::response::Response;
use crate::web::pages::actor;
use crate::web::pages::bulk::action::BulkAction;
use crate::web::pages::bulk::preview::{self, TYPED};
use crate::web::pages::bulk::selection::BulkSelection;
use crate::web::pages::bulk::spread;
use crate::web::request::cx::Cx;

/// Starts an operation with the jobs of a preview. The same form sent again leads to the same
/// operation.
pub(crate) fn start(cx: &mut Cx<'_>) -> Result<Response, PageError> {
    let form = cx.form().clone();
    let selection = BulkSelection::of(&form, cx.frame()?.now)?;
    let stored = form.get("preview").unwrap_or_default();
    let (Ok(preview), Some(request)) =
        (serde_json::from_str::<Preview>(stored), form.get("request"))
    else {
        return Ok(Response::see_other(cx.link(&selection.path())));
    };
    if selection.action == BulkAction::Discard && preview.count > TYPED {
        let typed = form.get("typed").unwrap_or_default();
        if !is_number(typed, &preview) {
            let message =
                "Nothing was discarded: the number that was typed is not the number of jobs.";
            return Ok(cx.done(&selection.path(), message));
        }
    }
    let change = selection.action.change(&form)?;
    let rate = match selection.action {
        BulkAction::Retry => spread::rate(form.get("spread").unwrap_or_default(), &preview)?,
        _ => None,
    };
    let jobs = selection.jobs().by_actor(actor::of(cx, form.get("reason")));
    let mut operation = jobs
        .in_background(change)
        .preview(preview)
        .request_id(request);
    if let Some(rate) = rate {
        operation = operation.rate(rate);
    }
    let started = cx.write(|conn| operation.start(conn))?;
    let _ = cx.site.operations.try_send(());
    let path = link::path(&["operations", &started.id.to_string()]);
    Ok(Response::see_other(cx.link(&path)))
}

/// Whether a text is the number of jobs, as it is shown or as it is written by hand.
fn is_number(typed: &str, preview: &Preview) -> bool {
    let digits = |text: &str| -> String {
        let kept = text
            .chars()
            .filter(|c| !matches!(c, ',' | ' ' | '+' | '.' | '_'));
        kept.collect()
    };
    let typed = digits(typed);
    !typed.is_empty() && typed == digits(&preview::number(preview))
}
