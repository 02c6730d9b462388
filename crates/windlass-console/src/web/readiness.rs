//! The answers to probes.

use crate::web::http::{PageError, Response};
use crate::web::request::route::Cx;
use crate::web::site::Site;
use axum::http::Method;
use axum::http::request::Parts;
use windlass::internal::db::ping;
use windlass::internal::error::ErrorContext as _;
use windlass::processes::{Health, HealthCheck};

/// Answers from memory. Without processes there is only this server, which answers, and so is alive
/// and has started.
pub(crate) fn from_memory(processes: &[Health], check: HealthCheck) -> Response {
    let problems = processes.iter().flat_map(|process| process.problems(check));
    let problems: Vec<String> = problems.map(|problem| problem + "\n").collect();
    if problems.is_empty() {
        Response::text(match check {
            HealthCheck::Live => "alive\n",
            HealthCheck::Ready => "ready\n",
            HealthCheck::Started => "started\n",
        })
    } else {
        Response::text(problems.concat()).with_status(503)
    }
}

/// Returns whether a request may be to any name. Kubernetes and Prometheus use names that no setting
/// knows. A page elsewhere that leads its own name here learns only whether the server is ready; it
/// has no token, and open metrics are for everyone.
pub(crate) fn may_have_any_name(site: &Site, parts: &Parts, path: &str) -> bool {
    let authorization = parts.headers.get("authorization");
    let authorization = authorization.and_then(|text| text.to_str().ok());
    // A wrong one makes an outsider of every request.
    let has_token = authorization
        .and_then(|text| text.split_once(' '))
        .is_some_and(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
    parts.method == Method::GET
        && (path == "/readyz" || path == "/metrics" && (has_token || site.settings.metrics_open))
}

/// Answers whether the database can be read and has its tables: for a server without processes.
pub(crate) fn ready(cx: &mut Cx<'_>) -> Result<Response, PageError> {
    if !cx.site.processes.is_empty() {
        return Ok(from_memory(&cx.site.processes, HealthCheck::Ready));
    }
    let says = match cx.read(|conn| ping(conn).during("reach the database")) {
        Ok(()) => return Ok(Response::text("ready\n")),
        Err(PageError::Late) => "web: the database takes too long to answer\n",
        Err(PageError::Tables(_)) => {
            "web: the tables are missing or too old: run `windlass migrate`\n"
        }
        Err(_) => "web: the database does not answer\n",
    };
    Ok(Response::text(says).with_status(503))
}
