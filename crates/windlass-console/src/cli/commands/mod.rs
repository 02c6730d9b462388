//! One file for each command: its arguments, its work and its output.

pub(crate) mod audit;
pub(crate) mod batches;
pub(crate) mod check;
pub(crate) mod doctor;
pub(crate) mod enqueue;
pub(crate) mod failed;
pub(crate) mod flows;
pub(crate) mod health;
pub(crate) mod jobs;
pub(crate) mod limits;
pub(crate) mod migrate;
pub(crate) mod operations;
pub(crate) mod queues;
pub(crate) mod recurring;
pub(crate) mod run_time;
pub(crate) mod show;
pub(crate) mod status;
pub(crate) mod supervise;
pub(crate) mod tenants;
pub(crate) mod web;
