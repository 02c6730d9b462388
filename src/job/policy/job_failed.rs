//! The arguments of a job that follows a failure.

use crate::job::id::JobId;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The arguments of a job that [`Policy::on_failure`](crate::Policy::on_failure) enqueued: which job failed, and why.
///
/// ```
/// use serde::{Deserialize, Serialize};
/// use windlass::{Context, Job, JobFailed, JobResult, Policy};
///
/// #[derive(Serialize, Deserialize)]
/// struct TellSupport(JobFailed);
///
/// impl Job for TellSupport {
///     const NAME: &'static str = "tell_support";
///     type State = ();
///     type Output = ();
///     fn perform(self, _cx: &Context<'_, ()>) -> JobResult {
///         println!("{} {}: {}", self.0.class_name, self.0.job_id, self.0.message);
///         Ok(())
///     }
/// }
///
/// let policy = Policy::new().max_attempts(3).on_failure::<TellSupport>();
/// # let _ = policy;
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct JobFailed {
    /// The job that failed.
    pub job_id: JobId,
    /// Its class.
    pub class_name: String,
    /// Its queue.
    pub queue_name: String,
    /// Its arguments.
    pub arguments: Value,
    /// The number of attempts made.
    pub attempts: u32,
    /// The kind of its last error.
    pub kind: String,
    /// The message of its last error.
    pub message: String,
}
