//! Read-only queries: for status pages, lists, `explain` and `doctor`.

pub(crate) mod batches;
pub(crate) mod doctor;
pub(crate) mod explain;
pub(crate) mod filter;
pub(crate) mod flows;
#[cfg(feature = "web")]
pub(crate) mod frame;
pub(crate) mod history;
#[cfg_attr(
    not(feature = "web"),
    allow(dead_code, reason = "the pages use the rest")
)]
pub(crate) mod job_view;
pub(crate) mod jobs;
#[cfg_attr(
    not(feature = "web"),
    allow(dead_code, reason = "the pages use the rest")
)]
pub(crate) mod load;
#[cfg(any(feature = "cli", feature = "web"))]
#[cfg_attr(
    not(feature = "web"),
    allow(dead_code, reason = "the command only asks whether a name is known")
)]
pub(crate) mod named;
#[cfg_attr(
    not(feature = "web"),
    allow(dead_code, reason = "the lists of the pages use the rest")
)]
pub(crate) mod newest_job;
#[cfg(feature = "web")]
pub(crate) mod pages;
#[cfg(feature = "cli")]
pub(crate) mod presence;
pub(crate) mod status;
