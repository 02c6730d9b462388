#![doc = include_str!("../README.md")]

#[cfg(panic = "abort")]
compile_error!(
    "windlass catches the panics of jobs: with `panic = \"abort\"` one bad job would end them all; \
     leave `panic` at \"unwind\" in the profile"
);

mod arguments;
mod clock;
mod concurrency;
#[cfg(feature = "config")]
mod config;
mod db;
#[cfg_attr(not(feature = "postgres"), allow(dead_code))]
mod deadline;
mod details;
mod doctor;
mod enqueue;
mod envelope;
mod error;
mod event;
mod explain;
mod hooks;
mod job;
mod live;
mod mutant;
mod operate;
mod outcome;
mod perform;
mod policy;
mod process;
mod queue;
mod queues;
pub mod recurring;
mod recycle;
mod redact;
mod registry;
mod retention;
mod schedule;
mod status;
mod step;
mod task_info;
pub mod testing;
mod timeout;

#[cfg(feature = "cli")]
pub mod cli;

pub use concurrency::{Concurrency, LimitConflict, check_semaphores, semaphores};
#[cfg(feature = "config")]
pub use config::{Config, ConnectionBudget, Origin, Setting};
#[cfg(feature = "postgres")]
pub use db::TypedPostgres;
#[cfg(feature = "sqlite")]
pub use db::TypedSqlite;
pub use db::attempts::{Attempt, AttemptOutcome};
pub use db::completion::{Migrated, migrate};
pub use db::jobs::EnqueueOutcome;
pub use db::migrations::{MigrationDialect, copy as copy_migrations};
pub use db::notes::Progress;
pub use db::select::{JobCount, JobState, JobSummary};
pub use db::semaphores::SemaphoreStatus;
pub use db::status::{ProcessStatus, QueueStatus, RunStatus};
pub use db::unique::{OnConflict, UniqueScope};
pub use db::{AsConn, Conn, Database, DbBackend, DbConnection, Typed};
pub use details::{JobDetails, Moment, StepDone, job_details};
pub use diesel;
pub use doctor::{Finding, Verdict, doctor};
pub use enqueue::{Enqueued, NewJob, enqueue_all};
pub use error::{Error, Problem, Result, SchemaError};
pub use event::{Event, Subscriber};
pub use explain::{Explanation, Obstacle, Reason, explain};
pub use hooks::{Hooks, ProcessInfo};
pub use job::{Context, Job, JobId};
pub use operate::{Cancelled, Change, Changed, Jobs, cancel};
pub use outcome::{Interrupted, JobError, JobResult};
pub use policy::{Backoff, Delivery, JobFailed, Policy};
#[cfg(feature = "benchmarks")]
#[doc(hidden)]
pub use process::benchmarks;
pub use process::{Child, Dispatcher, Handle, Scheduler, Stopped, Supervisor, Worker};
pub use queue::QueueSelector;
pub use queues::{clear_queue, pause_queue, queue_latency, queue_size, resume_queue};
pub use recurring::{MissedTicks, Overlap, RecurringSettings, RecurringStatus, RecurringTask};
pub use recycle::Recycle;
pub use registry::Registry;
pub use retention::Retention;
pub use schedule::Schedule;
pub use status::{processes, queues};
pub use task_info::{JobKey, TaskInfo, TaskStatus, attempts, task_info, wait_for};
pub use timeout::OnTimeout;

/// Compiles the examples of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../docs/recurring-tasks.md")]
mod recurring_tasks {}
