//! Performs one job directly, without a database.

use crate::db::Database;
use crate::db::model::claim::{Fence, FinishedRow};
use crate::job::arguments::decode;
use crate::job::around::performing;
use crate::job::class::Job;
use crate::job::context::{Context, Run, RunTrace};
use crate::job::error::JobError;
use crate::job::new_job::NewJob;
use crate::job::policy::Policy;
use crate::job::redact::Cover;
use crate::job::registry::Registry;
use crate::job::running::{Lease, Live, Signals, Steps};
use crate::retention::Retention;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;

/// Returns the signals of a process that never stops and is never lost.
pub(crate) fn signals() -> Signals {
    const FOR_EVER: Duration = Duration::from_secs(365 * 86_400);
    Signals {
        stopping: Arc::default(),
        lease: Arc::new(Lease::new(FOR_EVER)),
        live: Arc::<Live>::default(),
    }
}

/// Performs one job of a registry directly, without a database and with the
/// [functions around it](Registry::around), and returns its result as JSON.
///
/// ```
/// use windlass::{Function, Registry, testing};
///
/// const DOUBLE: Function<u32> = Function::new("double");
/// let registry = Registry::new().function(DOUBLE, |number, _| Ok(2 * number));
/// let result = testing::perform_by(&registry, &DOUBLE.job(&21)?);
/// assert_eq!(result.unwrap(), 42);
/// # Ok::<(), windlass::Error>(())
/// ```
///
/// # Errors
/// The error of the job, of kind `panic` if it panicked. Also if its class is not registered, or its
/// arguments do not match.
pub fn perform_by(registry: &Registry, job: &NewJob) -> Result<Value, JobError> {
    let row = &job.row;
    let run = Run {
        unique_id: row.unique_id.clone(),
        queue_name: row.queue_name.clone(),
        ..alone(&row.class_name, job.policy.clone())
    };
    let Some(output) = performing(|| registry.perform(&row.arguments, &run)) else {
        let class = &row.class_name;
        return Err(format!("no type of the name `{class}` is registered").into());
    };
    let text = output?.text;
    Ok(serde_json::from_str(text.as_deref().unwrap_or("null"))?)
}

/// Performs one job directly, without a database, to test its effects and its return value.
///
/// The arguments are converted to JSON and back, as for a worker. A panic of the job is a panic of
/// the test. The job sees its first attempt, enqueued at the start of 1970.
///
/// ```
/// # use serde::{Deserialize, Serialize};
/// # use windlass::{Context, Job, JobResult};
/// use windlass::testing;
///
/// #[derive(Serialize, Deserialize)]
/// struct Add { numbers: Vec<i64> }
///
/// impl Job for Add {
///     const NAME: &'static str = "add";
///     type State = ();
///     type Output = i64;
///     fn perform(self, _: &Context<'_, ()>) -> JobResult<i64> {
///         Ok(self.numbers.iter().sum())
///     }
/// }
///
/// assert_eq!(testing::perform(Add { numbers: vec![1, 2] }, &()).unwrap(), 3);
/// ```
///
/// # Errors
/// The error of the job, or the reason why its arguments cannot be read back from JSON.
pub fn perform<J: Job>(job: J, state: &J::State) -> Result<J::Output, JobError> {
    let text = serde_json::to_string(&job)?;
    let job: J = decode(&text)?;
    let run = Run {
        queue_name: J::QUEUE.to_owned(),
        ..alone(J::NAME, J::policy())
    };
    let cover = Cover::new(&text, J::REDACT);
    let done = job.perform(&Context::new(state, &run).covered(cover));
    done.map_err(|error| Cover::new(&text, J::REDACT).hide_in(error))
}

/// Returns a run without a database.
fn alone(class_name: &str, policy: Policy) -> Run {
    Run {
        policy,
        job_id: 1,
        fence: Fence {
            process_id: 1,
            claim_id: 1,
        },
        unique_id: None,
        batch_id: None,
        class_name: class_name.to_owned(),
        queue_name: "default".to_owned(),
        attempt: 1,
        enqueued_at: chrono::NaiveDateTime::default(),
        scheduled_at: None,
        trace: RunTrace::default(),
        signals: signals(),
        database: Database::none(),
        finished: FinishedRow::Keep,
        steps: Steps::default(),
        longest_wait: Retention::EVENTS,
    }
}
