//! The settings of a connection that has no session of its own.

use std::time::Duration;

/// Settings that are made anew in each transaction, because they end with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LocalSettings {
    pub(crate) statement_timeout: Duration,
    pub(crate) lock_timeout: Duration,
    /// Whether the planner is kept from full scans and sorts; see
    /// [`prefer_indexes`](crate::db::conn::settings::prefer_indexes).
    pub(crate) prefers_indexes: bool,
}

/// How long a client may hold a transaction open without a statement: a frozen one must not hold rows.
pub(crate) const IDLE_IN_TRANSACTION: Duration = Duration::from_secs(15);

/// What keeps the planner from full scans and sorts, and its value.
pub(crate) const PREFER_INDEXES: [(&str, &str); 7] = [
    ("enable_seqscan", "off"),
    ("enable_sort", "off"),
    ("enable_bitmapscan", "off"),
    ("enable_hashjoin", "off"),
    ("enable_mergejoin", "off"),
    ("jit", "off"),
    ("plan_cache_mode", "force_generic_plan"),
];

impl Default for LocalSettings {
    fn default() -> Self {
        LocalSettings {
            statement_timeout: Duration::from_secs(30),
            lock_timeout: Duration::from_secs(5),
            prefers_indexes: false,
        }
    }
}

impl LocalSettings {
    /// Returns the statements that start a transaction with these settings, sent as one message.
    pub(crate) fn begin(&self) -> String {
        format!(
            "BEGIN ISOLATION LEVEL READ COMMITTED; {}; {}",
            set_local("statement_timeout", self.statement_timeout),
            self.after_begin()
        )
    }

    /// Returns the same settings for a transaction that sets its own isolation and time for a statement.
    pub(crate) fn after_begin(&self) -> String {
        let mut text = set_local("lock_timeout", self.lock_timeout);
        let idle = set_local("idle_in_transaction_session_timeout", IDLE_IN_TRANSACTION);
        text.push_str("; ");
        text.push_str(&idle);
        if self.prefers_indexes {
            for (name, value) in PREFER_INDEXES {
                text.push_str(&format!("; SET LOCAL {name} = {value}"));
            }
        }
        text
    }
}

fn set_local(name: &str, value: Duration) -> String {
    format!("SET LOCAL {name} = {}", value.as_millis())
}
