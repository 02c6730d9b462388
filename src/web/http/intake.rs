//! What of a request is checked and read before it reaches the SQL threads.

use crate::web::http::pairs::Pairs;
use crate::web::http::request::{Credentials, Request, Theme, Verb, new_id};
use crate::web::http::response::Response;
use crate::web::pages::{flash, theme};
use crate::web::site::Site;
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, header};
use std::net::IpAddr;

/// The most bytes of a path with its query.
const LONGEST: usize = 8 * 1024;

/// Reads the head of a request, and refuses what needs no database to be refused.
pub(crate) fn screen(site: &Site, parts: &Parts, peer: IpAddr) -> Result<Request, Response> {
    let refuse = |status: u16, text: &str| Err(Response::text(text).with_status(status));
    let verb = match parts.method {
        Method::GET | Method::HEAD => Verb::Get,
        Method::POST => Verb::Post,
        _ => return refuse(405, "Only GET, HEAD and POST are possible here.\n"),
    };
    let headers = &parts.headers;
    let (path, query) = (parts.uri.path(), parts.uri.query().unwrap_or_default());
    if path.len() + query.len() > LONGEST {
        return refuse(414, "The address is too long.\n");
    }
    let Some((database, path)) = database(site, path) else {
        return refuse(404, "There is no database of this name.\n");
    };
    let cookie = |name: &str| cookie(headers, name);
    Ok(Request {
        verb,
        path: path.to_owned(),
        query: Pairs::parse(query.as_bytes()),
        form: Pairs::default(),
        database,
        client: peer,
        credentials: Credentials::default(),
        is_https: false,
        theme: cookie(theme::COOKIE).map_or(Theme::Auto, Theme::named),
        flash: cookie(flash::COOKIE).and_then(flash::read),
        accept: text(headers, header::ACCEPT).unwrap_or_default().to_owned(),
        accepts_gzip: accepts_gzip(headers),
        id: new_id(),
    })
}

/// Reads the body of a form.
pub(crate) fn fill(request: &mut Request, body: &[u8]) {
    if request.verb == Verb::Post {
        request.form = Pairs::parse(body);
    }
}

/// Splits `/db/<name>/rest` into the place of the database and `/rest`.
fn database<'p>(site: &Site, path: &'p str) -> Option<(usize, &'p str)> {
    let Some(rest) = path.strip_prefix("/db/") else {
        return Some((0, path));
    };
    let (name, rest) = rest.find('/').map_or((rest, "/"), |at| rest.split_at(at));
    let place = site.sources.iter().position(|source| source.name == name)?;
    Some((place, rest))
}

fn text(headers: &HeaderMap, name: header::HeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok()
}

/// Returns the value of a cookie.
fn cookie<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    let lines = headers.get_all(header::COOKIE).into_iter();
    let cookies = lines
        .filter_map(|line| line.to_str().ok())
        .flat_map(|line| line.split(';'));
    let mut pairs = cookies.filter_map(|cookie| cookie.trim().split_once('='));
    pairs
        .find(|(other, _)| *other == name)
        .map(|(_, value)| value)
}

/// Returns whether a response may be compressed with gzip.
pub(crate) fn accepts_gzip(headers: &HeaderMap) -> bool {
    let accepted = text(headers, header::ACCEPT_ENCODING).unwrap_or_default();
    accepted.split(',').any(|coding| {
        let (name, weight) = coding.split_once(';').unwrap_or((coding, ""));
        let is_refused = ["q=0", "q=0.0", "q=0.00", "q=0.000"].contains(&weight.trim());
        name.trim() == "gzip" && !is_refused
    })
}
