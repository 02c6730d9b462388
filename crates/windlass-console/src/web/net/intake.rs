//! The parts of a request that are checked and read before it reaches the SQL threads.

use crate::web::access::{addresses, settings};
use crate::web::http::{ApiRequest, Credentials, Pairs, Request, Response, Theme, Verb, new_id};
use crate::web::request::{route, shell};
use crate::web::site::Site;
use crate::web::{api, readiness as probes};
use axum::body::Bytes;
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, header};
use std::net::IpAddr;
use windlass::internal::db::model::extras::Traceparent;

/// The most bytes of a path with its query.
const LONGEST: usize = 8 * 1024;

/// Headers that only proxies add.
const OF_PROXIES: [&str; 6] = [
    "forwarded",
    "via",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-proto",
    "x-real-ip",
];

fn refuse<T>(status: u16, text: &str) -> Result<T, Response> {
    Err(Response::text(text).with_status(status))
}

/// Reads the head of a request, and refuses what needs no database to be refused.
pub(crate) fn screen(site: &Site, parts: &Parts, peer: IpAddr) -> Result<Request, Response> {
    let headers = &parts.headers;
    let verb = match parts.method {
        Method::GET | Method::HEAD => Verb::Get,
        Method::POST => Verb::Post,
        _ => return refuse(405, "Only GET, HEAD and POST are possible here.\n"),
    };
    let host = match called_by_our_name(site, parts) {
        Err(_) if has_any_name(site, parts) => "",
        host => host?,
    };
    let (path, query) = (parts.uri.path(), parts.uri.query().unwrap_or_default());
    if path.len() + query.len() > LONGEST {
        return refuse(414, "The address is too long.\n");
    }
    let Some((database, path)) = database(site, below_base(site, path)) else {
        return refuse(404, "There is no database of this name.\n");
    };
    let query = Pairs::parse(query.as_bytes());
    if query.has_nul() {
        return refuse(400, "An address cannot contain NUL.\n");
    }
    let credentials = credentials(site, headers, host, peer)?;
    if verb == Verb::Post {
        requested_by_us(site, headers, host, &credentials, api::is_api(path))?;
    }
    let api = of_a_program(headers, path)?;
    let cookie = |name: &str| cookie(headers, name);
    Ok(Request {
        verb,
        path: path.to_owned(),
        query,
        form: Pairs::default(),
        api,
        database,
        client: client(site, headers, peer),
        credentials,
        is_https: is_https(site, headers, peer),
        comes_from_elsewhere: text(headers, "sec-fetch-site") == Some("cross-site"),
        theme: cookie(route::COOKIE).map_or(Theme::Auto, Theme::named),
        flash: cookie(shell::COOKIE).and_then(shell::read),
        accept: text(headers, "accept").unwrap_or_default().to_owned(),
        accepts_gzip: accepts_gzip(headers),
        id: new_id(),
    })
}

/// Reads the body: a form, or JSON for a program's request.
pub(crate) fn fill(request: &mut Request, body: Bytes) {
    if api::is_api(&request.path) {
        request.api.body = body;
    } else if request.verb == Verb::Post {
        request.form = Pairs::parse(&body);
    }
}

/// Reads the headers that mean something below `/v1/` only.
fn of_a_program(headers: &HeaderMap, path: &str) -> Result<ApiRequest, Response> {
    if !api::is_api(path) {
        return Ok(ApiRequest::default());
    }
    // In the draft of the header, its value is a quoted text.
    let key = only(headers, "idempotency-key")?.map(|key| {
        let quoted = key.strip_prefix('"').and_then(|key| key.strip_suffix('"'));
        quoted.unwrap_or(key).to_owned()
    });
    // A header that is not a valid trace context is ignored, as its standard says.
    let traceparent =
        text(headers, "traceparent").filter(|text| Traceparent::parse(text).is_some());
    Ok(ApiRequest {
        body: Bytes::new(),
        idempotency_key: key,
        traceparent: traceparent.map(str::to_owned),
    })
}

/// Returns the path without the base path, which a proxy may have removed.
fn below_base<'p>(site: &Site, path: &'p str) -> &'p str {
    let below = path.strip_prefix(site.settings.base_path.as_str());
    below.filter(|path| path.starts_with('/')).unwrap_or(path)
}

fn has_any_name(site: &Site, parts: &Parts) -> bool {
    let path = database(site, parts.uri.path()).map(|(_, path)| path);
    path.is_some_and(|path| probes::may_have_any_name(site, parts, path))
}

/// Returns the `Host`, which must be a name of this server.
fn called_by_our_name<'p>(site: &Site, parts: &'p Parts) -> Result<&'p str, Response> {
    let names = &site.access.settings.hosts;
    let Some(host) = only(&parts.headers, "host")? else {
        return refuse(400, "The request has no header `Host`.\n");
    };
    // With a full address in the first line, that one counts.
    let target = parts.uri.authority();
    let is_ours = addresses::is_ours(host, names)
        && target.is_none_or(|target| addresses::is_ours(target.as_str(), names));
    if !is_ours {
        return refuse(
            421,
            "This server does not answer to this name. If it is one of its own, add it to `hosts` \
             in `[web]`, or start it with `--host NAME`.\n",
        );
    }
    Ok(host)
}

/// Refuses a change that was not requested by a page of this server, nor by a program.
fn requested_by_us(
    site: &Site,
    headers: &HeaderMap,
    host: &str,
    credentials: &Credentials,
    is_api: bool,
) -> Result<(), Response> {
    let kind = text(headers, "content-type").unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    let is_json = kind.eq_ignore_ascii_case("application/json");
    let claims = settings::OriginClaims {
        host,
        fetch_site: only(headers, "sec-fetch-site")?,
        origin: only(headers, "origin")?,
    };
    let settings = &site.access.settings;
    let is_ours = settings::is_ours(&claims, settings.public_origin.as_deref())
        && settings::is_named(&claims, settings.public_origin.as_deref(), &settings.hosts);
    // No page elsewhere can send a token that it does not have, and nothing else counts then. Nor can it
    // send JSON without being named.
    let is_program = (credentials.bearer.is_some() || is_api && is_json)
        && claims.fetch_site.is_none()
        && claims.origin.is_none();
    if !is_ours && !is_program {
        return refuse(
            403,
            "This change was not requested by a page of this server, so it was refused. Behind a proxy, \
             set `public_origin` in `[web]` to the address that the browser shows.\n",
        );
    }
    if is_api {
        let is_plain = text(headers, "content-encoding").is_none_or(|coding| coding == "identity");
        return if is_json && is_plain {
            Ok(())
        } else {
            refuse(415, "Send `application/json`, not compressed.\n")
        };
    }
    if !["", "application/x-www-form-urlencoded"].contains(&kind) {
        return refuse(
            415,
            "Only `application/x-www-form-urlencoded` is accepted.\n",
        );
    }
    Ok(())
}

fn credentials(
    site: &Site,
    headers: &HeaderMap,
    host: &str,
    peer: IpAddr,
) -> Result<Credentials, Response> {
    let authorization = only(headers, "authorization")?;
    let bearer = match authorization.map(|text| text.split_once(' ').unwrap_or((text, ""))) {
        None => None,
        Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => {
            Some(token.trim().to_owned())
        }
        // A proxy may pass on what was for itself.
        Some(_) => None,
    };
    let is_trusted = site.access.trusts(peer);
    let proxied = match &site.access.settings.user_header {
        Some(name) if is_trusted => only(headers, name)?,
        _ => None,
    };
    let is_forwarded =
        OF_PROXIES.iter().any(|name| headers.contains_key(*name)) || !addresses::is_loopback(host);
    Ok(Credentials {
        bearer,
        session: cookie(headers, &site.session_cookie).map(str::to_owned),
        proxied: proxied
            .map(|name| name.trim().chars().take(100).collect::<String>())
            .filter(|name| !name.is_empty()),
        is_forwarded: is_forwarded && !is_trusted,
    })
}

fn client(site: &Site, headers: &HeaderMap, peer: IpAddr) -> IpAddr {
    let lines = headers.get_all("x-forwarded-for").into_iter();
    let lines: Vec<&str> = lines.filter_map(|line| line.to_str().ok()).collect();
    addresses::client(&site.access.settings.trusted_proxies, peer, &lines)
}

fn is_https(site: &Site, headers: &HeaderMap, peer: IpAddr) -> bool {
    let public = site.access.settings.public_origin.as_deref();
    public.is_some_and(|origin| origin.starts_with("https://"))
        || site.access.trusts(peer) && text(headers, "x-forwarded-proto") == Some("https")
}

/// Splits `/db/<name>/rest` into the index of the database and `/rest`.
fn database<'p>(site: &Site, path: &'p str) -> Option<(usize, &'p str)> {
    let Some(rest) = path.strip_prefix("/db/") else {
        return Some((0, path));
    };
    let (name, rest) = rest.find('/').map_or((rest, "/"), |at| rest.split_at(at));
    let index = site.sources.iter().position(|source| source.name == name)?;
    Some((index, rest))
}

fn text<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    headers.get(name)?.to_str().ok()
}

/// Returns the value of a header that decides about access. Two of them, or other characters than
/// those of ASCII, are refused: programs on the way may disagree about what they mean.
fn only<'h>(headers: &'h HeaderMap, name: &str) -> Result<Option<&'h str>, Response> {
    let mut values = headers.get_all(name).iter();
    match (values.next().map(|value| value.to_str()), values.next()) {
        (None, _) => Ok(None),
        (Some(Ok(value)), None) => Ok(Some(value)),
        _ => {
            let text = format!(
                "The header `{name}` is there twice, or has characters that are not ASCII.\n"
            );
            refuse(400, &text)
        }
    }
}

/// Returns the value of a cookie.
fn cookie<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    let lines = headers.get_all(header::COOKIE).into_iter();
    let cookies = lines
        .filter_map(|line| line.to_str().ok())
        .flat_map(|line| line.split(';'));
    let mut pairs = cookies.filter_map(|cookie| cookie.trim().split_once('='));
    let found = pairs.find(|(other, _)| *other == name);
    found.map(|(_, value)| value)
}

/// Returns whether a response may be compressed with gzip.
pub(crate) fn accepts_gzip(headers: &HeaderMap) -> bool {
    let accepted = text(headers, "accept-encoding").unwrap_or_default();
    accepted.split(',').any(|coding| {
        let (name, weight) = coding.split_once(';').unwrap_or((coding, ""));
        let is_refused = ["q=0", "q=0.0", "q=0.00", "q=0.000"].contains(&weight.trim());
        name.trim() == "gzip" && !is_refused
    })
}
