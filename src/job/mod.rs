//! What applications write and enqueue: job types, contexts, policies, steps, and performing one
//! job.

pub(crate) mod arguments;
pub(crate) mod around;
pub(crate) mod class;
pub(crate) mod concurrency;
pub(crate) mod context;
pub(crate) mod enqueued;
pub(crate) mod error;
pub(crate) mod extras;
pub(crate) mod function;
pub(crate) mod id;
pub(crate) mod new_job;
pub(crate) mod output;
pub(crate) mod perform;
pub(crate) mod policy;
pub(crate) mod redact;
pub(crate) mod registry;
pub mod ruby;
pub(crate) mod ruby_call;
pub(crate) mod run_log;
pub(crate) mod running;
pub(crate) mod steps;
pub(crate) mod trace;
pub(crate) mod unknown_parents;
