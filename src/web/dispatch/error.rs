//! The pages of errors. They contain no SQL, no path and no address.

use crate::clock;
use crate::web::access::viewer::Viewer;
use crate::web::api::{self, problem};
use crate::web::http::page_error::PageError;
use crate::web::http::request::{Request, Verb};
use crate::web::http::response::Response;
use crate::web::live::topic::Topic;
use crate::web::pages::login;
use crate::web::request::shell::Shell;
use crate::web::show::filters;
use crate::web::show::markup::Markup;
use crate::web::site::Site;
use crate::web::site::section::Section;
use askama::Template;

#[derive(Template)]
#[template(path = "error.html")]
struct ErrorPage {
    shell: Shell,
    heading: &'static str,
    text: String,
    advice: &'static str,
    request: String,
    seen: Option<Seen>,
    /// Whether the page is asked for again by itself.
    is_away: bool,
}

/// What the page showed before the database was away.
struct Seen {
    content: Markup,
    seconds: f64,
}

/// Returns the page of an error, as plain text for programs.
pub(crate) fn page(site: &Site, request: &Request, viewer: &Viewer, error: PageError) -> Response {
    if let PageError::Internal(reason) = &error {
        let id = &request.id;
        log::error!("web: request {id}: {reason}");
    }
    let seen = match error {
        PageError::Away => seen(site, request, viewer),
        _ => None,
    };
    let asks_to_sign_in = matches!(error, PageError::SignIn);
    let is_attempt = request.path == "/login" || matches!(error, PageError::WrongToken);
    let retry = retry_after(&error);
    let (status, heading, text, advice) = explained(error);
    let made = if api::is_api(&request.path) {
        Ok(for_a_program(request, (status, heading, &text, advice)))
    } else if !request.accept.contains("text/html") {
        let parts = [heading, text.as_str(), advice].into_iter();
        let parts: Vec<&str> = parts.filter(|part| !part.is_empty()).collect();
        Ok(Response::text(format!("{}\n", parts.join("\n"))))
    } else if asks_to_sign_in {
        login::form(site, request, String::new())
    } else if is_attempt && [401, 403, 429].contains(&status) {
        login::form(site, request, text)
    } else {
        let page = ErrorPage {
            shell: Shell::new(site, request, Some(viewer)).titled(heading, Section::Other),
            heading,
            text,
            advice,
            request: request.id.clone(),
            seen,
            is_away: status == 503 && request.verb == Verb::Get,
        };
        page.render().map(Response::html).map_err(Into::into)
    };
    let response = made.unwrap_or_else(|error| {
        let (id, reason) = (&request.id, format!("{error:?}"));
        log::error!("web: request {id}: {reason}");
        Response::text(heading)
    });
    let response = response.with_status(status);
    match status {
        401 if request.credentials.bearer.is_some() || api::is_api(&request.path) => {
            response.with_header("www-authenticate", "Bearer")
        }
        503 | 429 => response.with_header("retry-after", retry),
        _ => response,
    }
}

/// Returns the seconds after which the same request may succeed, as far as they are known.
fn retry_after(error: &PageError) -> String {
    match error {
        PageError::OverQuota(_, Some(time)) => time.as_secs().to_string(),
        _ => "2".to_owned(),
    }
}

/// Returns an error in JSON; it names the request in the log, as the page does.
fn for_a_program(request: &Request, error: (u16, &str, &str, &str)) -> Response {
    let (status, heading, text, advice) = error;
    if status == 500 {
        let advice = format!(
            "The log of this server has the reason, at request {}.",
            request.id
        );
        return problem::explained(status, heading, text, &advice);
    }
    problem::explained(status, heading, text, advice)
}

fn seen(site: &Site, request: &Request, viewer: &Viewer) -> Option<Seen> {
    let topic = Topic {
        database: request.database,
        address: request.address(),
        role: viewer.role,
    };
    let now = clock::instant();
    let page = site
        .seen
        .get(&topic, now)
        .filter(|_| request.verb == Verb::Get)?;
    Some(Seen {
        content: Markup::trusted(page.content.to_string()),
        seconds: now.saturating_duration_since(page.at).as_secs_f64(),
    })
}

fn explained(error: PageError) -> (u16, &'static str, String, &'static str) {
    match error {
        PageError::NotFound(text) => (404, "Not found", text, ""),
        PageError::Invalid(text) => (400, "Not possible", text, ""),
        PageError::Conflict(text) => (409, "Not possible now", text, ""),
        PageError::KeyReused(text) => (422, "Key of another request", text, ""),
        PageError::Refused(text) => (403, "Not allowed", text, ""),
        PageError::Forbidden => (
            403,
            "Not allowed",
            "The role of this token does not allow it.".to_owned(),
            "Sign in with a token of the role operator.",
        ),
        PageError::SignIn => (401, "Sign in", "This needs a token.".to_owned(), ""),
        PageError::WrongToken => (
            401,
            "Sign in",
            "There is no such token, or it has expired or was revoked.".to_owned(),
            "",
        ),
        PageError::OverQuota(text, _) => (429, "Quota used up", text, ""),
        PageError::TooMany(wait) => (
            429,
            "Too many attempts",
            format!(
                "Too many wrong tokens. Try again in {} s.",
                wait.as_secs().max(1)
            ),
            "",
        ),
        other => not_there(other),
    }
}

/// Explains what is no fault of the request.
fn not_there(error: PageError) -> (u16, &'static str, String, &'static str) {
    match error {
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
        PageError::Busy => (
            503,
            "Database busy",
            "Another transaction holds what this takes.".to_owned(),
            "Try again in a moment.",
        ),
        PageError::Tables(text) => (
            503,
            "Tables missing",
            text.to_owned(),
            "Run `windlass migrate --database URL`.",
        ),
        _ => (
            500,
            "Internal error",
            String::new(),
            "The log of this server has the reason, at the request below.",
        ),
    }
}
