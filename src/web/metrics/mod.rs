//! `/metrics`: what Prometheus scrapes. The counters come from the history, so one address has the whole
//! fleet, and none goes back when a process ends.

mod collect;
mod families;
mod page;
mod text;

use crate::web::access::viewer::Need;
use crate::web::http::page_error::PageError;
use crate::web::http::response::Response;
use crate::web::metrics::text::TextFormat;
use crate::web::request::cx::Cx;

/// Answers a scrape.
pub(crate) fn show(cx: &mut Cx<'_>) -> Result<Response, PageError> {
    cx.without_alone();
    let (site, processes) = (cx.site, &cx.site.processes);
    let format = TextFormat::accepted(Some(&cx.request.accept));
    let is_allowed = site.settings.metrics_open || Need::Viewer.is_met_by(cx.viewer.role);
    // Without the database, no token can be looked up, and the page has nothing of it either.
    if !is_allowed && collect::is_readable(cx) {
        let says = "The metrics need a token, as `Authorization: Bearer TOKEN`.\n";
        let response = Response::text(says).with_status(401);
        return Ok(response.with_header("www-authenticate", "Bearer"));
    }
    let text = if cx.query().get("only") == Some("process") {
        page::own_page(format, processes)
    } else {
        let source = site.sources.get(cx.request.database);
        let source = source.filter(|_| is_allowed);
        let figures = source.and_then(|source| source.metrics.figures(|| collect::collect(cx)));
        page::page(format, processes, figures.as_deref())
    };
    let response = Response::of_type(format.content_type(), text.into_bytes());
    Ok(response.with_header("vary", "accept, accept-encoding"))
}
