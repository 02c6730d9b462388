//! Who changed what.

pub(crate) mod list;
pub(crate) mod rows;
