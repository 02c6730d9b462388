//! Errors as `application/problem+json`.
//!
//! The form is that of RFC 9457, Problem Details for HTTP APIs.

use crate::web::http::response::Response;
use serde::Serialize;

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
