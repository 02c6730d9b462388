//! Who may come in, as it is configured.

use crate::web::access::addresses::{self, AddressRange, Limiter};
use crate::web::access::known::KnownViewers;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The settings of access.
#[derive(Debug, Clone)]
pub(crate) struct AccessSettings {
    /// True if only this host can connect.
    pub(crate) is_loopback: bool,
    /// True if a proxy shows the pages below a path.
    pub(crate) has_base_path: bool,
    /// Names by which the server is called, in lower case.
    pub(crate) hosts: Vec<String>,
    /// `https://jobs.example.com`
    pub(crate) public_origin: Option<String>,
    pub(crate) trusted_proxies: Vec<AddressRange>,
    /// The header in which a trusted proxy names the user, in lower case.
    pub(crate) user_header: Option<String>,
    /// The users of the proxy who are operators; `*` for all. The others are viewers.
    pub(crate) operators: Vec<String>,
    /// True if no user may do more than a viewer.
    pub(crate) read_only: bool,
    /// The name of those on this host who need not sign in.
    pub(crate) local_name: String,
    /// The time after which an unused session ends.
    pub(crate) session_idle: Duration,
    /// The lifetime of a session, used or not.
    pub(crate) session_lifetime: Duration,
}

/// The settings, and what is remembered between requests.
#[derive(Debug)]
pub(crate) struct Access {
    pub(crate) settings: AccessSettings,
    pub(crate) limiter: Limiter,
    pub(crate) known: KnownViewers,
    /// The time of the last search for tokens, and whether there were any.
    tokens: Mutex<Option<(Instant, bool)>>,
    /// The last time at which the use of a token could not be noted.
    not_noted_at: Mutex<Option<Instant>>,
}

/// The pause after a use of a token could not be noted, in which none is noted.
const NOT_NOTED: Duration = Duration::from_secs(60);

/// The time before the next search for tokens.
const FRESH: Duration = Duration::from_secs(2);

impl Access {
    pub(crate) fn new(settings: AccessSettings) -> Self {
        Access {
            settings,
            limiter: Limiter::default(),
            known: KnownViewers::default(),
            tokens: Mutex::default(),
            not_noted_at: Mutex::default(),
        }
    }

    /// Returns whether those on this host need not sign in, if there are no tokens either: only this
    /// host can connect, and nothing is set up for a proxy.
    pub(crate) fn may_be_local(&self) -> bool {
        let settings = &self.settings;
        settings.is_loopback
            && settings.user_header.is_none()
            && settings.trusted_proxies.is_empty()
            && settings.hosts.is_empty()
            && !settings.has_base_path
    }

    pub(crate) fn trusts(&self, address: IpAddr) -> bool {
        let proxies = self.settings.trusted_proxies.iter();
        proxies.clone().any(|range| range.contains(address))
    }

    /// Returns whether the use of a token may be noted now.
    pub(crate) fn may_note(&self, now: Instant) -> bool {
        let failed = self.not_noted_at.lock();
        let failed = *failed.unwrap_or_else(PoisonError::into_inner);
        failed.is_none_or(|at| now.saturating_duration_since(at) >= NOT_NOTED)
    }

    pub(crate) fn could_not_note(&self, now: Instant) {
        let failed = self.not_noted_at.lock();
        *failed.unwrap_or_else(PoisonError::into_inner) = Some(now);
    }

    /// Returns whether there are tokens, if that was read a moment ago.
    pub(crate) fn fresh_tokens(&self, now: Instant) -> Option<bool> {
        let tokens = self.tokens.lock().unwrap_or_else(PoisonError::into_inner);
        let (at, exist) = (*tokens)?;
        (now.saturating_duration_since(at) < FRESH).then_some(exist)
    }

    /// Returns whether there are tokens, as it was last read.
    pub(crate) fn last_tokens(&self) -> Option<bool> {
        let tokens = self.tokens.lock().unwrap_or_else(PoisonError::into_inner);
        tokens.map(|(_, exist)| exist)
    }

    pub(crate) fn set_tokens(&self, exist: bool, now: Instant) {
        let mut tokens = self.tokens.lock().unwrap_or_else(PoisonError::into_inner);
        *tokens = Some((now, exist));
    }
}

// --- The check that a change came from a page of this server ---

/// The headers in which a request names its origin. `None` for a header that is absent.
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
