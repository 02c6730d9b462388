//! `GET /v1/token`: what a token may do.

use crate::web::access::limits::TokenLimits;
use crate::web::http::page_error::PageError;
use crate::web::http::response::Response;
use crate::web::request::cx::Cx;
use serde::Serialize;

/// Where it is.
pub(crate) const PATH: &str = "/v1/token";

#[derive(Debug, Serialize)]
struct TokenInfo<'a> {
    name: &'a str,
    role: &'static str,
    classes: Option<&'a [String]>,
    queues: Option<&'a [String]>,
    arguments_only: bool,
}

/// Shows the token of the request.
pub(crate) fn show(cx: &mut Cx<'_>) -> Result<Response, PageError> {
    let none = TokenLimits::default();
    let limits = cx.viewer.limits.as_deref().unwrap_or(&none);
    Ok(Response::json(&TokenInfo {
        name: &cx.viewer.name,
        role: cx.viewer.role.name(),
        classes: limits.classes.as_deref(),
        queues: limits.queues.as_deref(),
        arguments_only: limits.arguments_only,
    }))
}
