//! Jobs that were enqueued: questions about one job, and lists and changes of many, as `windlass jobs` has them.
//!
//! There is one way to ask about a job. All functions take its id or its unique id, as a [`JobKey`], and return `None` if
//! nothing is stored about it. Each result contains the one before it:
//!
//! | function | returns | use |
//! |---|---|---|
//! | [`status`](status()) | [`TaskInfo`]: its status, result, error and progress | a caller that waits for the outcome |
//! | [`explain`](explain()) | [`Explanation`]: also its state, and what it waits for | a monitor |
//! | [`find`](find()) | [`JobDetails`]: also its arguments, failed attempts, steps, logs and timeline | a person |
//!
//! ```
//! # use diesel::prelude::*;
//! # let mut conn = SqliteConnection::establish(":memory:").unwrap();
//! # windlass::migrate(&mut conn).unwrap();
//! use windlass::jobs::{self, Change, Jobs, Reason, TaskStatus};
//! use windlass::NewJob;
//!
//! let id = NewJob::of_class("import", "{}").unique_id("import/users").enqueue(&mut conn)?.id;
//! let job = jobs::find(&mut conn, "import/users")?.expect("it is stored");
//! assert_eq!(job.explanation.task.status, TaskStatus::Queued);
//! assert!(matches!(job.explanation.reason, Reason::Ready { ahead: 0, .. }));
//! assert!(job.attempts.is_empty());
//!
//! let imports = Jobs::waiting().class("import").by("ada").reason("the file was wrong");
//! assert_eq!(imports.change(&mut conn, Change::Cancel)?.changed, 1);
//! assert_eq!(jobs::status(&mut conn, id)?.expect("it is stored").status, TaskStatus::Cancelled);
//! # Ok::<(), windlass::Error>(())
//! ```

pub use crate::admin::audited_changes::{Cancelled, cancel};
pub use crate::admin::change::Change;
pub use crate::admin::details::{JobDetails, Moment, StepDone, find, reveal};
pub use crate::admin::edit::edit_arguments;
pub use crate::admin::explain::obstacles::Obstacle;
pub use crate::admin::explain::{Explanation, NotRetried, Reason, explain};
pub use crate::admin::job_info::{JobKey, TaskInfo, TaskStatus, task_info as status, wait_for};
pub use crate::admin::jobs::{BoundedCount, Changed, Jobs};
pub use crate::admin::secrets::{PublicTask, task_info_by_token as status_by_token};
pub use crate::db::model::decision::JobState;
pub use crate::db::model::new_row::EnqueueOutcome;
pub use crate::db::model::outcome::AttemptOutcome;
pub use crate::db::query::jobs::{JobCount, JobSummary};
pub use crate::db::table::attempts::Attempt;
pub use crate::db::table::claimed::Progress;
pub use crate::db::table::job_logs::{JobLog, LogLine};
pub use crate::job::PublicToken;
