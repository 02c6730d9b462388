//! The pooler before a database, and the hosts of its address.

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// For how long a pooler such as `PgBouncer` gives a session of the server to a connection.
///
/// It is a parameter of the address, `postgres://user@host/name?pooling=transaction`, or set by
/// [`Database::pooling`](crate::Database::pooling). SQLite has no poolers and ignores it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Pooling {
    /// It is found out with the first connection. If other clients keep the pooler busy just then, it may not be
    /// found.
    #[default]
    Auto,
    /// As long as the connection lasts, or there is no pooler.
    Session,
    /// For one transaction. The session keeps nothing then: no settings, no prepared statements, no LISTEN.
    Transaction,
}

impl Pooling {
    /// The values of the setting.
    pub(crate) const ALL: [Pooling; 3] = [Pooling::Auto, Pooling::Session, Pooling::Transaction];

    /// Returns the value as it is written in an address.
    pub fn as_str(self) -> &'static str {
        match self {
            Pooling::Auto => "auto",
            Pooling::Session => "session",
            Pooling::Transaction => "transaction",
        }
    }

    #[doc(hidden)]
    pub fn parse(text: &str) -> Option<Self> {
        let mut all = Self::ALL.into_iter();
        all.find(|pooling| pooling.as_str() == text)
    }
}

impl fmt::Display for Pooling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// The pooler before a database, if there is one, and which of several hosts answers.
#[derive(Debug, Default)]
pub struct Pooler {
    /// The pooling that the address or the settings state.
    pub(crate) stated: Pooling,
    /// The address to listen on, which leads to the server itself.
    pub(crate) listen_url: Option<String>,
    recognised: OnceLock<Pooling>,
    is_told: AtomicBool,
    first_host: AtomicUsize,
}

impl Pooler {
    pub(crate) fn new(stated: Pooling, listen_url: Option<String>) -> Self {
        Pooler {
            stated,
            listen_url,
            ..Pooler::default()
        }
    }

    /// Returns what the settings say, or what was recognised, if it is known.
    pub fn known(&self) -> Option<Pooling> {
        match self.stated {
            Pooling::Auto => self.recognised.get().copied(),
            stated => Some(stated),
        }
    }

    /// Notes what was recognised.
    pub(crate) fn recognise(&self, pooling: Pooling) {
        let _ = self.recognised.set(pooling);
    }

    /// Returns whether sessions are given out by transaction, as far as is known.
    pub(crate) fn is_by_transaction(&self) -> bool {
        self.known() == Some(Pooling::Transaction)
    }

    /// Returns whether it was recognised that sessions are given out by transaction.
    pub(crate) fn is_recognised(&self) -> bool {
        self.stated == Pooling::Auto && self.is_by_transaction()
    }

    /// Returns whether notifications can be received.
    pub(crate) fn can_listen(&self) -> bool {
        self.listen_url.is_some() || !self.is_by_transaction()
    }

    /// Returns with which of several hosts a new connection starts.
    pub(crate) fn first_host(&self) -> usize {
        self.first_host.load(Ordering::Relaxed)
    }

    /// Notes that this host does not answer. Where several connections find out at once, it counts once.
    pub(crate) fn pass_over(&self, host: usize) {
        let (first, next) = (&self.first_host, host.wrapping_add(1));
        let _ = first.compare_exchange(host, next, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Returns `true` once: the first caller tells the user.
    pub(crate) fn is_to_be_told(&self) -> bool {
        self.is_by_transaction() && !self.is_told.swap(true, Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stated_mode_outweighs_a_recognised_one() {
        let pooler = Pooler::new(Pooling::Session, None);
        pooler.recognise(Pooling::Transaction);
        assert_eq!(pooler.known(), Some(Pooling::Session));
        assert!(pooler.can_listen() && !pooler.is_to_be_told());

        let pooler = Pooler::default();
        assert_eq!(pooler.known(), None);
        assert!(pooler.can_listen());
        pooler.recognise(Pooling::Transaction);
        assert!(!pooler.can_listen() && pooler.is_recognised());
        assert!(pooler.is_to_be_told() && !pooler.is_to_be_told());
    }

    #[test]
    fn a_silent_host_is_passed_over_once() {
        let pooler = Pooler::default();
        pooler.pass_over(0);
        pooler.pass_over(0);
        assert_eq!(pooler.first_host(), 1);
    }

    #[test]
    fn with_a_direct_address_it_listens() {
        let direct = Some("postgres://db/app".to_owned());
        let pooler = Pooler::new(Pooling::Transaction, direct);
        assert!(pooler.can_listen() && !pooler.is_recognised());
    }
}
