//! Proofs about the transitions of `src/db`, which only the crate itself can
//! call: this directory is mounted there, as a module of its tests.

#![allow(
    unreachable_pub,
    missing_docs,
    missing_debug_implementations,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stderr,
    clippy::disallowed_methods
)]

mod ahead;
mod checks;
mod claims_at_gate;
#[cfg(feature = "postgres")]
mod completion;
mod costs;
mod cut_short;
mod db;
mod edges;
mod enqueue_by_sql;
mod flows;
mod gem;
mod health;
mod history;
mod interleavings;
#[cfg(feature = "laboratory")]
mod laboratory;
mod model;
#[cfg(feature = "postgres")]
mod notes;
mod operations;
mod paused_front;
mod promotions;
mod refusals;
mod schema;
mod statements;
#[path = "../template.rs"]
mod template;
mod upkeep;
mod waits;
#[cfg(feature = "sqlite")]
mod wakeup;
mod web;
