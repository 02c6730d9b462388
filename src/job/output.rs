//! What is kept of the value that a job returned.

use crate::job::arguments::{MAX_DEPTH, is_too_deep};
use crate::job::error::{JobError, JobOutput};
use serde::Serialize;

/// The maximum size of what a function returns, in bytes of JSON.
pub(crate) const MAX_OUTPUT: usize = 64 * 1024;

/// Returns what is kept of the value that a job returned.
pub(crate) fn as_output(
    name: &str,
    most: usize,
    output: &impl Serialize,
) -> Result<JobOutput, JobError> {
    let text = serde_json::to_string(output)
        .map_err(|error| JobError::new("unserialisable_output", error.to_string()))?;
    Ok(keepable(name, most, text))
}

/// Returns what can be kept of a job's return value.
///
/// A job that returned too much has done its work, and running it again would only repeat that. It
/// succeeds, and its result explains why the value is missing.
fn keepable(name: &str, most: usize, text: String) -> JobOutput {
    if text == "null" {
        return JobOutput::default();
    }
    let problem = if text.len() > most {
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
    log::warn!(class = name; "the result of a job of class {} is not kept: {problem}", name);
    JobOutput {
        text: None,
        problem: Some(problem),
    }
}
