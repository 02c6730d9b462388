//! What people ask about batches, and what they do to them.

pub(crate) mod change;
pub(crate) mod details;
pub(crate) mod list;
pub(crate) mod whole;
