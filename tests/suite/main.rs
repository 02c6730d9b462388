//! The behaviour of Windlass, seen from outside, on SQLite and on Postgres.

#![allow(
    unreachable_pub,
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stderr,
    clippy::disallowed_methods
)]

mod support;

mod ahead;
mod architecture;
mod around;
mod audit;
mod batch;
mod batches;
mod browser;
mod claim;
mod claim_refused;
mod cli;
mod coming_from;
mod comments;
mod concurrency;
mod configuration;
mod context;
#[cfg(feature = "postgres")]
mod contrib;
mod crash;
mod deploy;
mod dispatch;
mod documentation;
mod embed;
mod enqueue;
mod enqueue_by_sql;
mod enqueue_many;
mod enqueue_together;
mod explain;
#[cfg(feature = "postgres")]
mod failover;
#[cfg(feature = "postgres")]
mod fleet;
mod flows;
mod functions;
mod gem;
mod health;
mod herd;
mod history;
mod hooks;
mod idempotency;
mod ids;
mod interruptions;
mod job_logs;
mod limits;
mod metrics;
mod migrations;
mod one_code;
mod ordered;
mod outsiders;
mod panics;
mod perform;
mod policies;
#[cfg(feature = "postgres")]
mod poolers;
mod queues;
mod quickstart;
mod quotas;
mod rails;
mod rails_columns;
mod rails_jobs;
mod rails_options;
mod rails_semaphores;
mod rates;
mod recurring;
mod results;
mod rows;
mod run_time;
mod schema;
mod schema_dump;
mod schema_killed;
mod schema_life;
mod schema_locks;
mod schema_orders;
#[cfg(feature = "otel")]
mod secrets;
mod settings;
mod shares;
mod shutdown;
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
#[cfg(feature = "otel")]
mod traces;
mod troubles;
mod typed;
mod unique;
mod unique_many;
mod unreadable;
mod upcast;
mod upkeep;
mod waits;
mod wakeup;
mod web;
