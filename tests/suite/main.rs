//! The behaviour of Windlass, seen from outside, on SQLite and on Postgres.

#![allow(
    unreachable_pub,
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stderr,
    clippy::disallowed_methods
)]

#[cfg(feature = "cli")]
mod support;

mod ahead;
mod architecture;
mod batch;
mod claim;
mod claim_refused;
#[cfg(feature = "cli")]
mod cli;
mod concurrency;
#[cfg(feature = "config")]
mod configuration;
mod context;
mod crash;
#[cfg(feature = "cli")]
mod deploy;
mod dispatch;
mod documentation;
mod embed;
mod enqueue;
mod enqueue_many;
mod explain;
mod herd;
mod hooks;
mod idempotency;
mod ids;
mod interruptions;
mod limits;
mod migrations;
mod panics;
mod perform;
mod policies;
mod queues;
mod quickstart;
mod quotas;
mod rails;
mod recurring;
mod results;
#[cfg(feature = "cli")]
mod rows;
mod schema;
mod schema_killed;
mod schema_life;
mod schema_locks;
mod settings;
mod shutdown;
mod slot_passing;
mod smoke;
mod strays;
mod testing;
#[cfg(feature = "cli")]
mod troubles;
mod typed;
mod unique;
mod wakeup;
