//! A request as the SQL threads get it: plain owned data.

use crate::web::http::pairs::Pairs;
use axum::body::Bytes;
use std::net::{IpAddr, Ipv4Addr};

/// The method of a request; others are refused before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    /// `GET`, or `HEAD`, which gets the same answer without its body.
    Get,
    Post,
}

/// The colours that a viewer has chosen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Theme {
    /// As the system has them.
    #[default]
    Auto,
    Light,
    Dark,
}

impl Theme {
    /// Returns the theme of this name, `Auto` for any other text.
    pub(crate) fn named(name: &str) -> Self {
        match name {
            "light" => Theme::Light,
            "dark" => Theme::Dark,
            _ => Theme::Auto,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Theme::Auto => "auto",
            Theme::Light => "light",
            Theme::Dark => "dark",
        }
    }
}

/// By what a request says it is from: unproven.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Credentials {
    /// The token of `Authorization: Bearer`.
    pub(crate) bearer: Option<String>,
    /// The secret in the session's cookie.
    pub(crate) session: Option<String>,
    /// The user whom a trusted proxy names; proven by the proxy's address.
    pub(crate) proxied: Option<String>,
    /// Whether a proxy passed the request on.
    pub(crate) is_forwarded: bool,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Credentials([hidden])")
    }
}

/// What only a program sends.
#[derive(Clone, Default)]
pub(crate) struct ApiRequest {
    /// JSON, if it was sent as such.
    pub(crate) body: Bytes,
    /// The header `Idempotency-Key`.
    pub(crate) idempotency_key: Option<String>,
    /// The header `traceparent`.
    pub(crate) traceparent: Option<String>,
}

impl std::fmt::Debug for ApiRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ApiRequest({} bytes)", self.body.len())
    }
}

/// A request, read and checked as far as that needs no database.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) verb: Verb,
    /// The path without base path and database, such as `/queues/mail`. Its segments are still
    /// percent-encoded: read parameters with `cx.param`.
    pub(crate) path: String,
    pub(crate) query: Pairs,
    pub(crate) form: Pairs,
    /// The body of a request for `/v1/`, and headers that mean something there only.
    pub(crate) api: ApiRequest,
    /// The place of the database in the list of the site.
    pub(crate) database: usize,
    /// The client's address; behind a trusted proxy the one that the proxy names.
    pub(crate) client: IpAddr,
    pub(crate) credentials: Credentials,
    /// Whether the browser speaks HTTPS, to this server or to a proxy before it.
    pub(crate) is_https: bool,
    /// Whether a link on a site elsewhere led here.
    pub(crate) comes_from_elsewhere: bool,
    pub(crate) theme: Theme,
    /// What the last change reported, to be shown once.
    pub(crate) flash: Option<String>,
    /// The header `Accept`.
    pub(crate) accept: String,
    pub(crate) accepts_gzip: bool,
    /// Names the request in the log and on the page of an internal error.
    pub(crate) id: String,
}

impl Request {
    /// Returns a `GET` of a path with a query, such as `/jobs?state=failed`.
    pub(crate) fn get(address: &str) -> Self {
        let (path, query) = address.split_once('?').unwrap_or((address, ""));
        Request {
            verb: Verb::Get,
            path: path.to_owned(),
            query: Pairs::parse(query.as_bytes()),
            form: Pairs::default(),
            api: ApiRequest::default(),
            database: 0,
            client: IpAddr::V4(Ipv4Addr::LOCALHOST),
            credentials: Credentials::default(),
            is_https: false,
            comes_from_elsewhere: false,
            theme: Theme::Auto,
            flash: None,
            accept: String::new(),
            accepts_gzip: false,
            id: new_id(),
        }
    }

    /// Returns the path with its query.
    pub(crate) fn address(&self) -> String {
        format!("{}{}", self.path, self.query.to_query())
    }
}

/// Returns a name for a request.
pub(crate) fn new_id() -> String {
    format!("{:010x}", fastrand::u64(..) >> 24)
}
