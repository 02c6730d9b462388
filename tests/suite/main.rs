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
mod around;
#[cfg(feature = "cli")]
mod audit;
mod batch;
mod batches;
#[cfg(feature = "web")]
mod browser;
mod claim;
mod claim_refused;
#[cfg(feature = "cli")]
mod cli;
mod comments;
mod concurrency;
#[cfg(feature = "config")]
mod configuration;
mod context;
#[cfg(all(feature = "cli", feature = "postgres", feature = "web"))]
mod contrib;
mod crash;
#[cfg(feature = "cli")]
mod deploy;
mod dispatch;
mod documentation;
mod embed;
mod enqueue;
mod enqueue_by_sql;
mod enqueue_many;
mod explain;
#[cfg(all(feature = "cli", feature = "postgres"))]
mod failover;
#[cfg(all(feature = "cli", feature = "postgres"))]
mod fleet;
mod flows;
mod functions;
mod gem;
mod health;
mod herd;
#[cfg(feature = "cli")]
mod history;
mod hooks;
mod idempotency;
mod ids;
mod interruptions;
#[cfg(feature = "cli")]
mod job_logs;
mod limits;
#[cfg(all(feature = "cli", feature = "web"))]
mod metrics;
mod migrations;
mod one_code;
mod ordered;
mod outsiders;
mod panics;
mod perform;
mod policies;
#[cfg(all(feature = "cli", feature = "postgres"))]
mod poolers;
mod queues;
mod quickstart;
mod quotas;
mod rails;
mod rails_columns;
mod rails_jobs;
mod rails_options;
mod rails_semaphores;
mod recurring;
mod results;
#[cfg(feature = "cli")]
mod rows;
#[cfg(feature = "cli")]
mod run_time;
mod schema;
mod schema_dump;
mod schema_killed;
mod schema_life;
mod schema_locks;
mod schema_orders;
#[cfg(all(feature = "cli", feature = "web", feature = "otel"))]
mod secrets;
mod settings;
mod shutdown;
#[cfg(feature = "cli")]
mod signals;
mod slot_passing;
mod smoke;
mod standstill;
mod strays;
mod tags;
mod testing;
mod testing_faults;
mod testing_flows;
mod testing_options;
#[cfg(all(feature = "cli", feature = "otel"))]
mod traces;
#[cfg(feature = "cli")]
mod troubles;
mod typed;
mod unique;
mod unreadable;
mod upcast;
mod upkeep;
mod waits;
mod wakeup;
#[cfg(feature = "web")]
mod web;
