#![doc = include_str!("guide/links.md")]
#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

pub use api::{
    batches, classes, database, errors, events, failed, flows, hooks, jobs, limits, operations,
    policies, processes, queues, quotas, schema, tenants,
};
pub use db::conn::connection::{AsConn, Conn};
pub use db::conn::database::Database;
pub use db::conn::owned::DbConnection;
pub use db::conn::typed::transaction;
pub use db::model::new_row::OnConflict;
pub use db::schema::migrate::migrate;
pub use diesel;
pub use error::{Error, Result};
pub use event::Event;
pub use event::hooks::Hooks;
pub use flow::batch::Batch;
pub use flow::graph::Flow;
pub use job::class::Job;
pub use job::concurrency::Concurrency;
pub use job::context::Context;
pub use job::error::{Interrupted, JobError, JobResult};
pub use job::function::Function;
pub use job::new_job::NewJob;
pub use job::new_job::enqueue::enqueue_all;
pub use job::policy::backoff::Backoff;
pub use job::policy::quota::Quota;
pub use job::policy::{Delivery, Policy};
pub use job::registry::Registry;
pub use job::{BatchId, Enqueued, JobId, ruby};
pub use process::base::handle::{Handle, Stopped};
pub use process::dispatcher::Dispatcher;
pub use process::scheduler::Scheduler;
pub use process::supervisor::Supervisor;
pub use process::supervisor::children::Child;
pub use process::worker::builder::Worker;
pub use recurring::task::RecurringTask;

#[cfg(panic = "abort")]
compile_error!(
    "windlass catches the panics of jobs: with `panic = \"abort\"` one panicking job would stop all \
     jobs; leave `panic` at \"unwind\" in the profile"
);

mod admin;
mod api;
pub mod audit;
mod clock;
mod db;
#[cfg_attr(not(feature = "postgres"), allow(dead_code))]
mod deadline;
mod error;
mod event;
mod flow;
pub mod history;
mod job;
mod mutant;
mod operation;
mod process;
mod queue;
pub mod recurring;
mod retention;
pub mod testing;

// The examples of its pages use `windlass-console` too, which tests them.
#[cfg(all(doc, not(doctest)))]
pub mod guide;
#[doc(hidden)]
pub mod internal;
#[cfg(feature = "laboratory")]
#[path = "../benches/laboratory/mod.rs"]
pub mod laboratory;

// The package of the internal tests compiles the console with the library, so that its tests reach the inside of both.
#[cfg(feature = "console")]
extern crate self as windlass;
#[cfg(feature = "console")]
#[path = "../crates/windlass-console/src/lib.rs"]
pub mod console;
#[cfg(feature = "console")]
use console::{bench, cli, config, read, terminal, web};
