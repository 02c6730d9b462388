//! Enqueueing over HTTP, emitting events, and asking what became of a job: `/v1/`.
//!
//! Described by `openapi.json`, which is served at `/v1/openapi.json`.

pub(crate) mod batches;
pub(crate) mod emit;
pub(crate) mod enqueue;
pub(crate) mod job_request;

use crate::web::http::{PageError, Response};
use crate::web::request::route::Cx;
use serde::Serialize;
use serde_json::{Value, json};

/// Returns whether this path is for programs, which get JSON also as an error.
pub(crate) fn is_api(path: &str) -> bool {
    path.starts_with("/v1/")
}

/// Returns whether this path takes a list of jobs.
pub(crate) fn takes_a_list(path: &str) -> bool {
    path == enqueue::LIST || path == batches::PATH
}

// --- `GET /v1/openapi.json`: the description of `/v1/` ---

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

// --- Errors as `application/problem+json` ---

#[derive(Serialize)]
struct ProblemDetails<'a> {
    title: &'a str,
    status: u16,
    detail: String,
}

/// Returns an error with what is wrong and what to do.
pub(crate) fn explained(status: u16, title: &str, text: &str, advice: &str) -> Response {
    // A program cannot sign in.
    let (title, advice) = match status {
        401 => (
            "Unauthorized",
            "Send a token in the header `Authorization: Bearer ..`.",
        ),
        _ => (title, advice),
    };
    let parts = [text, advice].into_iter().filter(|part| !part.is_empty());
    let problem = ProblemDetails {
        title,
        status,
        detail: parts.collect::<Vec<_>>().join(" "),
    };
    let body = serde_json::to_vec(&problem).unwrap_or_default();
    Response::of_type("application/problem+json", body).with_status(status)
}

/// Returns a refusal in plain text as a problem; any other response as it is.
pub(crate) fn of_text(response: Response) -> Response {
    let is_text =
        |(name, value): &(&str, String)| *name == "content-type" && value.starts_with("text/plain");
    if response.status < 400 || !response.headers.iter().any(is_text) {
        return response;
    }
    let text = String::from_utf8_lossy(&response.body);
    let mut problem = explained(response.status, title(response.status), text.trim(), "");
    let others = response.headers.into_iter();
    problem
        .headers
        .extend(others.filter(|(name, _)| *name != "content-type"));
    problem
}

fn title(status: u16) -> &'static str {
    match status {
        403 => "Not allowed",
        404 => "Not found",
        405 => "Method not possible",
        408 => "Request timeout",
        413 => "Too large",
        415 => "Not JSON",
        503 => "Busy",
        _ => "Not possible",
    }
}
