//! Changes of many jobs: a preview with a frozen set, a confirmation, and an operation.

pub(crate) mod action;
pub(crate) mod preview;
pub(crate) mod selection;
pub(crate) mod spread;
pub(crate) mod start;
