//! The result that is kept of a job: the value that it returned, or why it is not kept.

use crate::job::arguments::readable::lost_float;
use crate::job::arguments::{MAX_DEPTH, is_too_deep};
use crate::job::context::Run;
use crate::job::error::{JobError, JobOutput};
use serde::Serialize;

/// The maximum size of what a function returns, in bytes of JSON.
pub(crate) const MAX_OUTPUT: usize = 64 * 1024;

/// Returns what is kept of the value that a job returned.
pub(crate) fn as_output(
    run: &Run,
    most: usize,
    output: &impl Serialize,
) -> Result<JobOutput, JobError> {
    let text = serde_json::to_string(output)
        .map_err(|error| JobError::new("unserialisable_output", error.to_string()))?;
    let lost = lost_float(output, &text);
    Ok(keepable(run, most, text, lost))
}

/// Returns what can be kept of a job's return value.
///
/// A job that returned too much, or NaN, has done its work, and running it again would only repeat that. It
/// succeeds, and its result explains why the value is missing.
fn keepable(run: &Run, most: usize, text: String, lost: Option<String>) -> JobOutput {
    let problem = if let Some(lost) = lost {
        format!("result_not_json: {lost}")
    } else if text == "null" {
        return JobOutput::default();
    } else if text.len() > most {
        format!(
            "result_too_large: it takes {} bytes as JSON, more than the {} allowed; store the data elsewhere and \
             return a reference, or raise `MAX_RESULT`",
            text.len(),
            most
        )
    } else if is_too_deep(&text) {
        format!(
            "result_too_deep: it is nested deeper than {MAX_DEPTH} arrays and objects, and could not be read again"
        )
    } else {
        return JobOutput {
            text: Some(text),
            problem: None,
        };
    };
    let (job, class, queue) = (run.job_id, &*run.job.class_name, &*run.job.queue_name);
    let (attempt, claim) = (run.attempt, run.fence.claim_id);
    log::warn!(job, class, queue, attempt, claim; "the result of job {job} ({class}) is not kept: {problem}");
    JobOutput {
        text: None,
        problem: Some(problem),
    }
}
