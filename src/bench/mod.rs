//! `windlass bench`: how fast a database is, beside plain SQL on the same one.

#[cfg(feature = "bench")]
pub(crate) mod ceilings;
#[cfg(feature = "bench")]
pub(crate) mod command;
#[cfg(feature = "bench")]
pub(crate) mod comparison;
#[cfg(feature = "bench")]
pub(crate) mod counters;
#[cfg(feature = "bench")]
pub(crate) mod drains;
#[cfg(feature = "bench")]
pub(crate) mod figures;
#[cfg(all(feature = "bench", feature = "web"))]
pub(crate) mod filled;
#[cfg(feature = "bench")]
pub(crate) mod jobs;
#[cfg(feature = "bench")]
pub(crate) mod kept;
#[cfg(feature = "bench")]
pub(crate) mod kind;
#[cfg(feature = "bench")]
pub(crate) mod kinds;
#[cfg(feature = "benchmarks")]
pub mod per_job;
#[cfg(feature = "bench")]
pub(crate) mod place;
#[cfg(feature = "bench")]
pub(crate) mod plain;
#[cfg(feature = "bench")]
pub(crate) mod program;
#[cfg(feature = "bench")]
pub(crate) mod results;
#[cfg(feature = "bench")]
pub(crate) mod run;
#[cfg(feature = "bench")]
pub(crate) mod scale;
#[cfg(feature = "bench")]
pub(crate) mod sql;
#[cfg(all(feature = "bench", feature = "web"))]
pub(crate) mod web;
#[cfg(feature = "bench")]
pub(crate) mod worker;
