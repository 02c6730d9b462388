//! Enqueueing over HTTP, and asking what became of a job: `/v1/`.
//!
//! Described by `openapi.json`, which is served at `/v1/openapi.json`.

pub(crate) mod enqueue;
pub(crate) mod job_request;
pub(crate) mod openapi;
pub(crate) mod outcome;
pub(crate) mod problem;
pub(crate) mod same_json;
pub(crate) mod token;
pub(crate) mod watch_ends;

/// Returns whether this path is for programs, which get JSON also as an error.
pub(crate) fn is_api(path: &str) -> bool {
    path.starts_with("/v1/")
}

/// Returns whether this path takes a list of jobs.
pub(crate) fn takes_a_list(path: &str) -> bool {
    path == enqueue::LIST
}
