//! Whether a change was requested by a page of this server.
//!
//! Browsers send cookies also with what pages elsewhere request. They say where the request is from:
//! in `Sec-Fetch-Site`, and older ones in `Origin`.

use crate::web::access::addresses;

/// What a request says about where it is from. `None` for a header that is absent.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct OriginClaims<'h> {
    pub(crate) host: &'h str,
    pub(crate) fetch_site: Option<&'h str>,
    pub(crate) origin: Option<&'h str>,
}

/// Returns whether a page of this server requested the change.
pub(crate) fn is_ours(claims: &OriginClaims<'_>, public_origin: Option<&str>) -> bool {
    match (claims.fetch_site, claims.origin) {
        (Some(site), _) => site == "same-origin",
        (None, Some(origin)) => {
            public_origin.is_some_and(|public| public.eq_ignore_ascii_case(origin))
                || host_of(origin).is_some_and(|named| named.eq_ignore_ascii_case(claims.host))
        }
        (None, None) => false,
    }
}

/// Returns whether the page, if it is named, is called by one of our names. If it is not, the server
/// is behind a proxy that it does not know, and that hides how it is called.
pub(crate) fn is_named(
    claims: &OriginClaims<'_>,
    public_origin: Option<&str>,
    names: &[String],
) -> bool {
    claims.origin.is_none_or(|origin| {
        public_origin.is_some_and(|public| public.eq_ignore_ascii_case(origin))
            || host_of(origin).is_some_and(|named| addresses::is_ours(named, names))
    })
}

/// Returns `host:port` of an origin.
fn host_of(origin: &str) -> Option<&str> {
    let (scheme, host) = origin.split_once("://")?;
    let is_plain = !host.is_empty() && !host.contains(['/', '@', '?', '#']);
    (["http", "https"].contains(&scheme) && is_plain).then_some(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claims<'h>(fetch_site: &'h str, origin: &'h str) -> OriginClaims<'h> {
        let some = |text: &'h str| Some(text).filter(|text| !text.is_empty());
        OriginClaims {
            host: "127.0.0.1:4040",
            fetch_site: some(fetch_site),
            origin: some(origin),
        }
    }

    #[test]
    fn only_pages_of_this_server_change_anything() {
        for (fetch_site, origin) in [
            ("same-origin", ""),
            ("same-origin", "http://127.0.0.1:4040"),
            ("", "http://127.0.0.1:4040"),
            ("", "https://jobs.example.com"),
        ] {
            assert!(
                is_ours(
                    &claims(fetch_site, origin),
                    Some("https://jobs.example.com")
                ),
                "{fetch_site} {origin}"
            );
        }
        for (fetch_site, origin) in [
            ("", ""),
            ("cross-site", "http://127.0.0.1:4040"),
            ("same-site", ""),
            ("none", ""),
            ("Same-Origin", ""),
            ("", "null"),
            ("", "http://127.0.0.1:4041"),
            ("", "http://127.0.0.1"),
            ("", "http://evil.example"),
            ("", "http://127.0.0.1:4040.evil.example"),
            ("", "http://127.0.0.1:4040@evil.example"),
            ("", "http://evil.example/http://127.0.0.1:4040"),
            ("", "file://127.0.0.1:4040"),
            ("", "127.0.0.1:4040"),
            ("", "https://jobs.example.com.evil.example"),
        ] {
            assert!(
                !is_ours(
                    &claims(fetch_site, origin),
                    Some("https://jobs.example.com")
                ),
                "{fetch_site} {origin}"
            );
        }
        let names = ["a.example".to_owned()];
        let is_named = |origin| {
            is_named(
                &claims("same-origin", origin),
                Some("https://jobs.example.com"),
                &names,
            )
        };
        for origin in [
            "",
            "http://localhost:4040",
            "https://a.example",
            "https://jobs.example.com",
        ] {
            assert!(is_named(origin), "{origin}");
        }
        for origin in ["null", "https://b.example", "https://evil.example/"] {
            assert!(!is_named(origin), "{origin}");
        }
    }
}
