//! Failed jobs, grouped by what their failures have in common.

pub(crate) mod groups;
pub(crate) mod list;
