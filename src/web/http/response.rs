//! A response as the SQL threads make it.

use flate2::Compression;
use flate2::write::GzEncoder;
use std::io::Write as _;

/// A complete response. The headers that all responses have are added when it is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: Vec<u8>,
    /// The job for whose end the request may wait. The response is then made once more.
    pub(crate) waits_for: Option<i64>,
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
            waits_for: None,
        }
    }

    /// Returns `303 See Other`, after a change. `to` is a complete link; see `Cx::link`.
    pub(crate) fn see_other(to: String) -> Self {
        Response {
            status: 303,
            headers: vec![("location", to)],
            body: Vec::new(),
            waits_for: None,
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
