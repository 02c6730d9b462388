//! The laboratory: how fast Windlass is, beside plain SQL on the same database; and the parts of a
//! worker, for `benches/per_job.rs`.
//!
//! It is a module of the crate itself, which the package of the internal tests compiles: it needs the
//! inside. No application sees it.

pub(crate) mod allocations;
pub(crate) mod ceilings;
pub(crate) mod command;
pub(crate) mod comparison;
pub(crate) mod counters;
pub(crate) mod drains;
pub(crate) mod figures;
pub(crate) mod filled;
pub(crate) mod jobs;
pub(crate) mod kept;
pub(crate) mod kind;
pub(crate) mod kinds;
pub mod per_job;
pub(crate) mod plain;
pub(crate) mod program;
pub(crate) mod results;
pub(crate) mod role;
pub(crate) mod run;
pub(crate) mod scale;
pub(crate) mod sql;
pub(crate) mod web;
pub(crate) mod worker;

pub use command::main;
