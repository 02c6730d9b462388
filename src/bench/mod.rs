//! `windlass bench`: how fast a database is, beside plain SQL on the same one.

#[cfg(feature = "cli")]
pub(crate) mod ceilings;
#[cfg(feature = "cli")]
pub(crate) mod command;
#[cfg(feature = "cli")]
pub(crate) mod counters;
#[cfg(feature = "cli")]
pub(crate) mod enqueues;
#[cfg(feature = "cli")]
pub(crate) mod figures;
#[cfg(feature = "cli")]
pub(crate) mod latency;
#[cfg(feature = "benchmarks")]
pub mod per_job;
#[cfg(feature = "cli")]
pub(crate) mod place;
#[cfg(feature = "cli")]
pub(crate) mod plain_sql;
#[cfg(feature = "cli")]
pub(crate) mod program;
#[cfg(feature = "cli")]
pub(crate) mod run;
#[cfg(feature = "cli")]
pub(crate) mod work;
