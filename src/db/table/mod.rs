//! One file per table, with its statements. No file calls the transition of another table.

pub(crate) mod attempts;
pub(crate) mod blocked;
pub(crate) mod claimed;
pub(crate) mod classes;
pub(crate) mod executions;
pub(crate) mod expiries;
pub(crate) mod failed;
pub(crate) mod flows;
pub(crate) mod history;
pub(crate) mod job_logs;
pub(crate) mod jobs;
pub(crate) mod operators;
pub(crate) mod pauses;
pub(crate) mod processes;
pub(crate) mod public_tokens;
pub(crate) mod quotas;
pub(crate) mod ready;
pub(crate) mod recurring_executions;
pub(crate) mod recurring_tasks;
pub(crate) mod results;
pub(crate) mod run_time;
pub(crate) mod scheduled;
pub(crate) mod semaphores;
pub(crate) mod steps;
pub(crate) mod wanted_keys;
pub(crate) mod web;
