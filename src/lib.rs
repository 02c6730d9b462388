#![doc = include_str!("../README.md")]

#[cfg(panic = "abort")]
compile_error!(
    "windlass catches the panics of jobs: with `panic = \"abort\"` one bad job would end them all; \
     leave `panic` at \"unwind\" in the profile"
);

mod clock;
mod db;
mod enqueue;
mod error;
mod event;
mod explain;
mod job;
mod live;
mod mutant;
mod operate;
mod outcome;
mod perform;
mod policy;
mod process;
mod queue;
mod registry;
mod retention;

#[cfg(feature = "cli")]
pub mod cli;

pub use db::attempts::{Attempt, AttemptOutcome};
pub use db::jobs::EnqueueOutcome;
pub use db::migrations::{MigrationDialect, copy as copy_migrations, run as migrate};
pub use db::notes::Progress;
pub use db::select::{JobCount, JobState, JobSummary};
pub use db::status::{ProcessStatus, QueueStatus, RunStatus};
pub use db::unique::{OnConflict, UniqueScope};
pub use db::{AsConn, Conn, Connection, Database};
pub use diesel;
pub use enqueue::{Enqueued, NewJob, enqueue_all};
pub use error::{Error, Result, SchemaError};
pub use event::{Event, Subscriber};
pub use explain::{Explanation, Obstacle, Reason, explain};
pub use job::{Context, Job, JobId};
pub use operate::{Cancelled, Change, Changed, Jobs, cancel};
pub use outcome::{Interrupted, JobError, JobResult};
pub use policy::{Backoff, Delivery, JobFailed, Policy};
pub use process::{Child, Dispatcher, Handle, Stopped, Supervisor, Worker};
pub use queue::QueueSelector;
pub use registry::Registry;
pub use retention::Retention;
pub use status::{processes, queues};
pub use task_info::{JobKey, TaskInfo, TaskStatus, attempts, task_info, wait_for};

mod status;
mod task_info;
