//! Changes of many jobs: how far they are, and stopping them.

pub(crate) mod list;
pub(crate) mod one;
pub(crate) mod view;
