//! The bounds of what a job carries.

use crate::error::{Error, Result};
use crate::job::arguments::{MAX_DEPTH, has_escaped_nul, is_too_deep, readable};
use crate::job::new_job::NewJob;

impl NewJob {
    /// Rejects arguments, tags and metadata that a database would reject or a worker could not read.
    pub(crate) fn check_arguments(&self) -> Result<()> {
        let refused = |reason: String| {
            Err(Error::InvalidJob {
                class: self.row.class_name.clone(),
                reason,
            })
        };
        let extras = self.policy.extras.as_ref();
        if let Some(problem) = extras.and_then(|extras| extras.problem()) {
            return refused(problem);
        }
        let extras = self.extras_text();
        let size = self.row.arguments.len() + extras.len();
        if size > self.max_arguments {
            let what = if extras.is_empty() {
                "arguments"
            } else {
                "arguments, tags and metadata"
            };
            return refused(format!(
                "its {what} take {size} bytes, more than the {} allowed; store the data elsewhere and \
                 pass a reference, or raise `MAX_ARGUMENTS`",
                self.max_arguments
            ));
        }
        // In JSON a NUL is always escaped; text with a raw one is not JSON.
        if self.row.arguments.contains('\0') || has_escaped_nul(&self.row.arguments) {
            return refused(
                "its arguments contain a NUL character, which Postgres cannot keep; encode binary data"
                    .to_owned(),
            );
        }
        if has_escaped_nul(&extras) {
            return refused("its metadata contains a NUL character".to_owned());
        }
        if is_too_deep(&self.row.arguments) || is_too_deep(&extras) {
            return refused(format!(
                "its arguments or metadata are nested deeper than {MAX_DEPTH} arrays and objects, and could not be \
                 decoded again; store the data elsewhere and pass a reference"
            ));
        }
        if self.is_text
            && let Some(problem) = readable::problem_of(&self.row.arguments)
        {
            return refused(problem);
        }
        Ok(())
    }

    /// Returns the tags and metadata as they are stored, or an empty text.
    fn extras_text(&self) -> String {
        let extras = self.policy.extras.as_ref();
        let extras = extras.filter(|extras| !extras.tags.is_empty() || !extras.meta.is_empty());
        let text = extras.and_then(|extras| serde_json::to_string(extras).ok());
        text.unwrap_or_default()
    }
}
