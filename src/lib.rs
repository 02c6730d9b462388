#![doc = include_str!("guide/links.md")]
#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

pub use crate::admin::batches::{BatchDetails, BatchFollower, FailedOfBatch, FollowerState};
pub use crate::process::worker::settings::Recycle;
pub use admin::audited_changes::{Cancelled, cancel};
pub use admin::batches::{BatchFilter, BatchState, BatchSummary, batches};
pub use admin::change::Change;
pub use admin::classes::{pause_class, paused_classes, resume_class, strict_classes};
pub use admin::details::{JobDetails, Moment, StepDone, job_details, job_logs};
pub use admin::edit::edit_arguments;
pub use admin::explain::obstacles::Obstacle;
pub use admin::explain::{Explanation, NotRetried, Reason, explain};
pub use admin::flows::{FlowEdge, FlowGraph, FlowId, FlowNode};
pub use admin::groups::{FailedGroup, FailedGroups, failed_groups};
pub use admin::job_info::{JobKey, TaskInfo, TaskStatus, attempts, task_info, wait_for};
pub use admin::jobs::{BoundedCount, Changed, Jobs};
pub use admin::queues::{
    clear_limit, clear_queue, limits, pause_queue, processes, queue_latency, queue_size, queues,
    resume_queue, set_limit, set_rails_option,
};
pub use admin::rate::RetryRate;
pub use admin::secrets::{PublicTask, task_info_by_token};
pub use audit::{AuditEntry, AuditLog};
pub use db::conn::connection::{AsConn, Conn};
pub use db::conn::database::Database;
pub use db::conn::dialect::Dialect;
pub use db::conn::owned::DbConnection;
pub use db::conn::pooling::pooler::Pooling;
#[cfg(feature = "postgres")]
pub use db::conn::typed::TypedPostgres;
#[cfg(feature = "sqlite")]
pub use db::conn::typed::TypedSqlite;
pub use db::conn::typed::{Backend as DbBackend, Typed, transaction};
pub use db::model::audit::{Actor, Via};
pub use db::model::decision::JobState;
pub use db::model::extras::On;
pub use db::model::new_row::{EnqueueOutcome, OnConflict, UniqueScope};
pub use db::model::outcome::AttemptOutcome;
pub use db::model::recurring::Overlap;
pub use db::query::jobs::{JobCount, JobSummary};
pub use db::query::status::{ProcessStatus, QueueStatus, RunStatus};
pub use db::schema::beside_rails::RailsOption;
pub use db::schema::compare::Migrated;
pub use db::schema::migrate::migrate;
pub use db::schema::migrations::copy as copy_migrations;
pub use db::table::attempts::Attempt;
pub use db::table::claimed::Progress;
pub use db::table::job_logs::{JobLog, LogLine};
pub use db::table::run_time::PausedClass;
pub use db::table::run_time::limits::RunTimeLimit;
pub use db::table::semaphores::SemaphoreStatus;
pub use diesel;
pub use error::{EditRefusal, Error, Problem, Result, SchemaError};
pub use event::logging::Subscriber;
pub use event::{Event, Hooks, ProcessInfo};
pub use flow::batch::{Batch, BatchStatus, EnqueuedBatch, ToNewJob};
pub use flow::graph::{EnqueuedFlow, Flow};
pub use flow::inputs::{Input, Inputs, Joined};
pub use flow::undo::Undo;
pub use flow::waits::emit;
pub use job::around::{JobEnd, JobRan, Next};
pub use job::class::Job;
pub use job::concurrency::{Concurrency, LimitConflict, check_semaphores, semaphores};
pub use job::context::Context;
pub use job::error::{Interrupted, JobError, JobResult};
pub use job::function::Function;
pub use job::new_job::parents::{After, ToParent};
pub use job::new_job::{NewJob, enqueue_all};
pub use job::policy::backoff::Backoff;
pub use job::policy::quota::{Quota, QuotaStatus, quotas};
pub use job::policy::{Delivery, JobFailed, Policy, PropagationStyle};
pub use job::registry::Registry;
pub use job::running::OnTimeout;
pub use job::{BatchId, Enqueued, JobId, PublicToken, ruby};
pub use operation::chunk::OperationCounts;
pub use operation::start::{
    NewOperation, Operation, OperationState, Preview, operation, operations, stop_operation,
};
pub use operation::{OperationsRun, run_operations};
pub use process::base::handle::{Handle, Stopped};
pub use process::base::health::{Health, HealthCheck};
pub use process::dispatcher::Dispatcher;
pub use process::scheduler::Scheduler;
pub use process::supervisor::Supervisor;
pub use process::supervisor::children::Child;
pub use process::worker::builder::Worker;
pub use queue::QueueSelector;
pub use recurring::schedule::Schedule;
pub use recurring::settings::RecurringSettings;
pub use recurring::task::RecurringTask;
pub use recurring::tasks::RecurringStatus;
pub use recurring::timing::{MissedTicks, Timing};
pub use retention::Retention;

#[cfg(panic = "abort")]
compile_error!(
    "windlass catches the panics of jobs: with `panic = \"abort\"` one panicking job would stop all \
     jobs; leave `panic` at \"unwind\" in the profile"
);

mod admin;
mod audit;
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

#[cfg(any(doc, doctest))]
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
