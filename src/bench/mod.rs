//! `windlass bench`: how fast a database is, beside plain SQL on the same one.

#[cfg(feature = "bench")]
mod cached;
#[cfg(feature = "bench")]
pub(crate) mod ceilings;
pub(crate) mod command;
#[cfg(feature = "bench")]
pub(crate) mod counters;
#[cfg(feature = "bench")]
pub(crate) mod enqueues;
#[cfg(feature = "bench")]
pub(crate) mod figures;
#[cfg(feature = "bench")]
pub(crate) mod latency;
#[cfg(feature = "benchmarks")]
pub mod per_job;
#[cfg(feature = "bench")]
pub(crate) mod place;
#[cfg(feature = "bench")]
pub(crate) mod plain_sql;
#[cfg(feature = "bench")]
pub(crate) mod program;
#[cfg(feature = "bench")]
pub(crate) mod run;
#[cfg(feature = "bench")]
pub(crate) mod work;
