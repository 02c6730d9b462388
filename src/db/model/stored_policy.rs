//! The part of a job's policy that the end of its run needs.

use serde::{Deserialize, Deserializer, Serialize, de::DeserializeOwned};
use serde_json::Value;

/// The job to enqueue when another has failed permanently.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FollowUpJob {
    pub(crate) class: String,
    pub(crate) queue: String,
    pub(crate) priority: i32,
}

/// The part of a job's stored policy that its end needs.
#[derive(Debug, Deserialize)]
pub(crate) struct StoredPolicy {
    #[serde(default, deserialize_with = "readable")]
    pub(crate) on_failure: Option<FollowUpJob>,
    /// In milliseconds.
    #[serde(default, deserialize_with = "readable")]
    pub(crate) keep_result: Option<u64>,
    /// Set if it refines the delivery in the job's column.
    #[serde(default, deserialize_with = "readable")]
    delivery: Option<String>,
}

impl StoredPolicy {
    /// Whether the job is at most once only as long as the outcome of its run is unknown.
    pub(crate) fn is_after_known_outcome(&self) -> bool {
        self.delivery.as_deref() == Some("after_known_outcome")
    }
}

/// Reads one part of a policy. A part of an unknown form counts as missing, so that the other parts stay in force.
pub(crate) fn readable<'de, D: Deserializer<'de>, T: DeserializeOwned>(
    part: D,
) -> Result<Option<T>, D::Error> {
    Value::deserialize(part).map(|part| serde_json::from_value(part).ok())
}
