//! `GET /v1/openapi.json`: the description of `/v1/`.

use crate::web::http::page_error::PageError;
use crate::web::http::response::Response;
use crate::web::request::cx::Cx;
use serde_json::{Value, json};

/// `OpenAPI` 3.1, but for what depends on the server.
const TEXT: &str = include_str!("openapi.json");

/// Shows the description, with the version and the address of this server.
pub(crate) fn show(cx: &mut Cx<'_>) -> Result<Response, PageError> {
    let broken = |error: serde_json::Error| PageError::Internal(format!("openapi.json: {error}"));
    let mut described: Value = serde_json::from_str(TEXT).map_err(broken)?;
    described["info"]["version"] = json!(env!("CARGO_PKG_VERSION"));
    let here = cx.link("");
    let here = if here.is_empty() { "/" } else { here.as_str() };
    described["servers"] = json!([{ "url": here }]);
    Ok(Response::json(&described))
}
