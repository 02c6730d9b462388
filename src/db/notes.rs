//! The note of a claim: what its process tells of a job that runs.

use serde::{Deserialize, Serialize};

/// How far a running job is, by its own word.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Progress {
    /// From 0 to 100.
    pub percent: f64,
    /// In words.
    pub message: String,
}

/// What stands in the column, as JSON.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Note {
    /// The name of the thread that performs the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) thread: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) progress: Option<Progress>,
}

impl Note {
    /// What another version has written and this one cannot read is no note.
    pub(crate) fn of_column(text: Option<&str>) -> Note {
        text.and_then(|text| serde_json::from_str(text).ok())
            .unwrap_or_default()
    }
}
