//! The list of jobs, and the search box.

pub(crate) mod filters;
pub(crate) mod list;
pub(crate) mod rows;
pub(crate) mod search;
pub(crate) mod when;
