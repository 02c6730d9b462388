//! Poolers between a program and its server, such as `PgBouncer`.
//!
//! In transaction mode, a pooler gives a session of the server to a client for one transaction only. What
//! a client leaves in the session is found by others, and is not there in its own next transaction: settings,
//! prepared statements, LISTEN, locks of the session. So such a connection keeps nothing in its session:
//!
//! - its statements are not prepared. Each is one message with its text and parameters;
//! - its settings are [local](recognise::LocalSettings) to each transaction, and come with its BEGIN;
//! - it listens on a direct address, or polls.

#[cfg_attr(
    not(feature = "postgres"),
    allow(dead_code, reason = "SQLite has no poolers")
)]
pub mod pooler;
#[cfg(feature = "postgres")]
pub(crate) mod recognise;
