//! Who may come in, as it is configured.

use crate::web::access::addresses::{AddressRange, Limiter};
use crate::web::access::known::KnownViewers;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The settings of access.
#[derive(Debug, Clone)]
pub(crate) struct AccessSettings {
    /// Whether only this host can connect.
    pub(crate) is_loopback: bool,
    /// Whether a proxy shows the pages below a path.
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
    /// Whether all are viewers.
    pub(crate) read_only: bool,
    /// The name of those on this host who need not sign in.
    pub(crate) local_name: String,
    /// How long a session may be unused.
    pub(crate) session_idle: Duration,
    /// How long a session lives.
    pub(crate) session_lifetime: Duration,
}

/// The settings, and what is remembered between requests.
#[derive(Debug)]
pub(crate) struct Access {
    pub(crate) settings: AccessSettings,
    pub(crate) limiter: Limiter,
    pub(crate) known: KnownViewers,
    /// Whether there are tokens, and when that was read.
    tokens: Mutex<Option<(Instant, bool)>>,
    /// When the use of a token could not be noted.
    not_noted_at: Mutex<Option<Instant>>,
}

/// How long no use of a token is noted after one could not be.
const NOT_NOTED: Duration = Duration::from_secs(60);

/// How long it is not read again whether there are tokens.
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
