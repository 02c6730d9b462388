//! The pages of errors. They contain no SQL, no path and no address.

use crate::web::access::viewer::Viewer;
use crate::web::http::request::Request;
use crate::web::http::response::Response;
use crate::web::pages::section::Section;
use crate::web::pages::shell::Shell;
use crate::web::site::Site;
use crate::web::sql::page_error::PageError;
use askama::Template;

#[derive(Template)]
#[template(path = "error.html")]
struct ErrorPage {
    shell: Shell,
    heading: &'static str,
    text: String,
    advice: &'static str,
    request: String,
}

/// Returns the page of an error.
pub(crate) fn page(
    site: &Site,
    request: &Request,
    viewer: Option<&Viewer>,
    error: PageError,
) -> Response {
    if let PageError::Internal(reason) = &error {
        log::error!("web: request {}: {reason}", request.id);
    }
    let (status, heading, text, advice) = explained(error);
    let shell = Shell::new(site, request, viewer).titled(heading, Section::Other);
    let page = ErrorPage {
        shell,
        heading,
        text,
        advice,
        request: request.id.clone(),
    };
    let response = match page.render() {
        Ok(html) => Response::html(html),
        Err(error) => {
            log::error!("web: request {}: {error}", request.id);
            Response::text(heading)
        }
    };
    let response = response.with_status(status);
    match status {
        503 | 429 => response.with_header("retry-after", "2"),
        _ => response,
    }
}

fn explained(error: PageError) -> (u16, &'static str, String, &'static str) {
    let none = String::new();
    match error {
        PageError::NotFound(text) => (404, "Not found", text, ""),
        PageError::Invalid(text) => (400, "Not possible", text, ""),
        PageError::Conflict(text) => (409, "Not possible now", text, ""),
        PageError::Forbidden => (
            403,
            "Not allowed",
            "Only an operator may do this.".to_owned(),
            "Sign in with a token of the role operator.",
        ),
        PageError::SignIn => (401, "Sign in", "This page needs a token.".to_owned(), ""),
        PageError::TooMany(wait) => (
            429,
            "Too many attempts",
            format!("Try again in {} s.", wait.as_secs().max(1)),
            "",
        ),
        PageError::Away => (
            503,
            "Database away",
            "The database does not answer.".to_owned(),
            "No job is lost: workers continue what they run, keep what they have to report, and try again. \
             Nothing can be changed from here until the database answers.",
        ),
        PageError::Late => (
            503,
            "Too slow",
            "The database took too long to answer.".to_owned(),
            "Try again, or narrow the filter.",
        ),
        PageError::Tables(text) => (
            503,
            "Tables missing",
            text.to_owned(),
            "Run `windlass migrate --database URL`.",
        ),
        PageError::Internal(_) => (
            500,
            "Internal error",
            none,
            "The log of this server has the reason, at the request below.",
        ),
    }
}
