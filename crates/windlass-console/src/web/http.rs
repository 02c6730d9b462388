//! HTTP: one thread that reads requests and writes responses, and runs neither SQL nor templates.

use axum::body::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;
use windlass::Error;
use windlass::errors::SchemaError;
use windlass::internal::db::Refusal;
use windlass::internal::db::conn::reading::ReadFailure;

// --- A request as the SQL threads get it: plain owned data ---

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
    /// True if a proxy that is not trusted passed the request on.
    pub(crate) is_forwarded: bool,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Credentials([hidden])")
    }
}

/// The parts of a request that only a program sends.
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
    /// True if the browser uses HTTPS, to this server or to a proxy before it.
    pub(crate) is_https: bool,
    /// True if a link on another site led here.
    pub(crate) comes_from_elsewhere: bool,
    pub(crate) theme: Theme,
    /// The message of the last change, to be shown once.
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

// --- A response as the SQL threads make it ---

/// A complete response. The headers that all responses have are added when it is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: Vec<u8>,
    /// The job for whose end the request may wait. The response is then made once more.
    pub(crate) polls_for: Option<i64>,
}

/// A body of fewer bytes fits into one packet anyway.
const WORTH_COMPRESSING: usize = 1_000;

impl Response {
    pub(crate) fn html(body: String) -> Self {
        Self::of_type("text/html; charset=utf-8", body.into_bytes())
    }

    pub(crate) fn text(body: impl Into<String>) -> Self {
        Self::of_type("text/plain; charset=utf-8", body.into().into_bytes())
    }

    pub(crate) fn of_type(content_type: &'static str, body: Vec<u8>) -> Self {
        Response {
            status: 200,
            headers: vec![("content-type", content_type.to_owned())],
            body,
            polls_for: None,
        }
    }

    /// Returns `303 See Other`, after a change. `to` is a complete link; see `Cx::link`.
    pub(crate) fn see_other(to: String) -> Self {
        Response {
            status: 303,
            headers: vec![("location", to)],
            body: Vec::new(),
            polls_for: None,
        }
    }

    /// A value is always serialised: its maps have texts as keys.
    pub(crate) fn json(value: &impl serde::Serialize) -> Self {
        let body = serde_json::to_vec(value).unwrap_or_default();
        Self::of_type("application/json", body)
    }

    pub(crate) fn with_status(mut self, status: u16) -> Self {
        self.status = status;
        self
    }

    pub(crate) fn with_header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    /// Compresses the body, if that is worth it.
    pub(crate) fn compressed(mut self) -> Self {
        if self.body.len() < WORTH_COMPRESSING {
            return self;
        }
        let mut encoder = GzEncoder::new(Vec::new(), Compression::new(5));
        let encoded = encoder
            .write_all(&self.body)
            .and_then(|()| encoder.finish());
        if let Ok(body) = encoded {
            self.body = body;
            self.headers.push(("content-encoding", "gzip".to_owned()));
        }
        self
    }
}

// --- The names and values of a query or a form, in their order ---

/// Names and values, decoded.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Pairs(Vec<(String, String)>);

impl Pairs {
    /// Reads `a=1&b=2`. Bytes that are not UTF-8 are replaced.
    pub(crate) fn parse(text: &[u8]) -> Self {
        let pairs = form_urlencoded::parse(text);
        Pairs(pairs.into_owned().collect())
    }

    /// Returns whether a value contains NUL, which Postgres refuses.
    pub(crate) fn has_nul(&self) -> bool {
        self.0.iter().any(|(_, value)| value.contains('\0'))
    }

    /// Returns the first value of this name; `None` if there is none, or it is empty.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let named = self
            .0
            .iter()
            .find(|(other, value)| other == name && !value.is_empty());
        named.map(|(_, value)| value.as_str())
    }

    /// Returns all values of this name.
    pub(crate) fn all<'p>(&'p self, name: &'p str) -> impl Iterator<Item = &'p str> {
        let named = self.0.iter().filter(move |(other, _)| other == name);
        named.map(|(_, value)| value.as_str())
    }

    /// Returns whether the name is there, with or without a value.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(other, _)| other == name)
    }

    /// Returns the value as a number, if it is one.
    pub(crate) fn number(&self, name: &str) -> Option<i64> {
        self.get(name)?.trim().parse().ok()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Returns the same pairs with this one instead of those of its name.
    pub(crate) fn with(&self, name: &str, value: &str) -> Self {
        let mut pairs = self.without(name);
        pairs.0.push((name.to_owned(), value.to_owned()));
        pairs
    }

    /// Returns the same pairs without those of this name.
    pub(crate) fn without(&self, name: &str) -> Self {
        let others = self.0.iter().filter(|(other, _)| other != name);
        Pairs(others.cloned().collect())
    }

    /// Returns `?a=1&b=2`, encoded; nothing if there are no pairs.
    pub(crate) fn to_query(&self) -> String {
        if self.0.is_empty() {
            return String::new();
        }
        let mut text = form_urlencoded::Serializer::for_suffix("?".to_owned(), 1);
        text.extend_pairs(&self.0);
        text.finish()
    }
}

impl<N: Into<String>, V: Into<String>> FromIterator<(N, V)> for Pairs {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(pairs: I) -> Self {
        let owned = |(name, value): (N, V)| (name.into(), value.into());
        Pairs(pairs.into_iter().map(owned).collect())
    }
}

// --- Paths and links ---

/// Returns a path of these segments, each encoded: `path(&["queues", "a/b"])` is `/queues/a%2Fb`.
pub(crate) fn path(segments: &[&str]) -> String {
    let mut path = String::new();
    for segment in segments {
        path.push('/');
        path.push_str(&encoded(segment));
    }
    path
}

/// Returns a path with a query: `with_query("/jobs", &[("queue", "mail")])` is `/jobs?queue=mail`.
pub(crate) fn with_query(path: &str, pairs: &[(&str, &str)]) -> String {
    let pairs: Pairs = pairs.iter().copied().collect();
    format!("{path}{}", pairs.to_query())
}

/// Encodes one segment of a path.
pub(crate) fn encoded(segment: &str) -> String {
    let mut text = String::with_capacity(segment.len());
    for byte in segment.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'~' | b':' | b'@' | b',' => {
                text.push(char::from(byte));
            }
            // A segment of dots only would be taken as a step.
            b'.' if segment.bytes().any(|other| other != b'.') => text.push('.'),
            _ => text.push_str(&format!("%{byte:02X}")),
        }
    }
    text
}

/// Decodes one segment of a path. A wrong code stays as it is; bytes that are not UTF-8 are
/// replaced.
pub(crate) fn decoded(segment: &str) -> String {
    let bytes = segment.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let code = bytes
            .get(at + 1..at + 3)
            .filter(|_| *byte == b'%')
            .filter(|code| code.iter().all(u8::is_ascii_hexdigit))
            .and_then(|code| u8::from_str_radix(std::str::from_utf8(code).ok()?, 16).ok());
        match code {
            Some(code) => {
                out.push(code);
                at += 3;
            }
            None => {
                out.push(*byte);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Returns the path if it is one of this site, and `/` otherwise: a form may name any text as the
/// page to return to.
pub(crate) fn local(path: &str) -> &str {
    let is_local = path.starts_with('/')
        && !path.starts_with("//")
        && path
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && byte != b'\\');
    if is_local { path } else { "/" }
}

// --- The errors of a page ---

/// Becomes a page with a status and an explanation. Its texts reach the viewer.
#[derive(Debug)]
pub(crate) enum PageError {
    /// 404: what the address names does not exist (any more).
    NotFound(String),
    /// 400: the request cannot mean anything; says what is accepted.
    Invalid(String),
    /// 409: it cannot be done any more, or not now; says why and what to do.
    Conflict(String),
    /// 422: the idempotency key belongs to another request.
    KeyReused(String),
    /// 403: the viewer's role does not allow it.
    Forbidden,
    /// 403: for another reason, which the text names.
    Refused(String),
    /// 401: the viewer must sign in.
    SignIn,
    /// 401: there is no such token, or it may not be used any more.
    WrongToken,
    /// 429: a quota is used up; says when to try again, if that is known.
    OverQuota(String, Option<Duration>),
    /// 429: too many attempts.
    TooMany(Duration),
    /// 503: the database does not answer.
    Away,
    /// 503: it takes too long.
    Late,
    /// 503: another transaction holds what it takes.
    Busy,
    /// 503: the tables are missing or too old.
    Tables(&'static str),
    /// 500: the text is logged and not shown.
    Internal(String),
}

impl PageError {
    /// Returns the error of a page that panicked.
    pub(crate) fn panicked(path: &str) -> Self {
        PageError::Internal(format!("the page {path} panicked"))
    }
}

impl From<Error> for PageError {
    fn from(error: Error) -> Self {
        match error {
            Error::NoSuchJob { .. } | Error::NoSuchBatch { .. } => {
                PageError::NotFound(error.to_string())
            }
            Error::BatchOfRuby { .. } => PageError::Invalid(error.to_string()),
            Error::InvalidJob { .. }
            | Error::InvalidEvent { .. }
            | Error::InternalClass { .. }
            | Error::UnknownClass { .. }
            | Error::InvalidName { .. }
            | Error::Schedule { .. }
            | Error::Settings(_) => PageError::Invalid(error.to_string()),
            Error::UniqueIdTaken { .. }
            | Error::EventTaken { .. }
            | Error::BatchOver { .. }
            | Error::Edit { .. }
            | Error::RecurringTask { .. } => PageError::Conflict(error.to_string()),
            Error::Connect { .. } | Error::GaveUp { .. } => PageError::Away,
            Error::QuotaExceeded { retry_after, .. } => {
                PageError::OverQuota(error.to_string(), retry_after)
            }
            Error::NamesLocked { .. } => PageError::Busy,
            Error::Query { ref source, .. } => match Refusal::of(source) {
                Refusal::Busy => PageError::Busy,
                Refusal::Trouble => PageError::Away,
                Refusal::Content => PageError::Internal(error.to_string()),
            },
            Error::Schema(SchemaError::Missing { .. }) => {
                PageError::Tables("The database has no Windlass tables yet.")
            }
            Error::Schema(SchemaError::Old { .. }) => PageError::Tables(
                "The tables are of an earlier version of Windlass than this program.",
            ),
            Error::Schema(SchemaError::Unreleased { .. }) => PageError::Tables(
                "The tables are of a version of Windlass before the first release, and are not brought up to date: use an empty database.",
            ),
            Error::Schema(SchemaError::Incomplete { .. }) => {
                PageError::Tables("A part of the tables was dropped.")
            }
            other => PageError::Internal(other.to_string()),
        }
    }
}

impl From<ReadFailure> for PageError {
    fn from(failure: ReadFailure) -> Self {
        match failure {
            ReadFailure::Late | ReadFailure::Cut => PageError::Late,
            ReadFailure::Lost(_) => PageError::Away,
            ReadFailure::Failed(error) => error.into(),
        }
    }
}

impl From<askama::Error> for PageError {
    fn from(error: askama::Error) -> Self {
        PageError::Internal(format!("cannot render the page: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_read_and_written() {
        let pairs = Pairs::parse(b"state=failed&q=a+b%26&tag=1&tag=2&empty=");
        assert_eq!(pairs.get("q"), Some("a b&"));
        assert_eq!(pairs.all("tag").collect::<Vec<_>>(), ["1", "2"]);
        assert_eq!(
            (pairs.get("empty"), pairs.has("empty"), pairs.has("x")),
            (None, true, false)
        );
        assert_eq!(Pairs::parse(&pairs.to_query().as_bytes()[1..]), pairs);
        let other = pairs.with("tag", "3").without("q").without("empty");
        assert_eq!(other.to_query(), "?state=failed&tag=3");
        assert_eq!(Pairs::default().to_query(), "");
        assert!(Pairs::parse(b"b=1&a=x%00y").has_nul() && !pairs.has_nul());
    }

    #[test]
    fn segments_survive_the_way_there_and_back() {
        for name in [
            "mail",
            "a/b",
            "50%",
            "..",
            ".",
            "a.b",
            "ä ö+&=?#",
            "%2F",
            "\u{202e}x",
        ] {
            let encoded = encoded(name);
            assert!(!encoded.contains(['/', ' ', '?', '#', '&']), "{encoded}");
            assert_ne!(encoded, "..");
            assert_eq!(decoded(&encoded), name);
        }
        assert_eq!(decoded("%zz%2"), "%zz%2");
        assert_eq!(path(&["queues", "a/b"]), "/queues/a%2Fb");
        assert_eq!(
            with_query("/jobs", &[("queue", "a&b")]),
            "/jobs?queue=a%26b"
        );
    }

    #[test]
    fn a_page_to_return_to_is_one_of_this_site() {
        for path in ["/", "/jobs?state=failed"] {
            assert_eq!(local(path), path);
        }
        for path in [
            "",
            "//evil.example",
            "https://evil.example",
            "/\\evil",
            "/a\r\nb",
        ] {
            assert_eq!(local(path), "/");
        }
    }
}
