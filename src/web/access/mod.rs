//! Who may see and change what.

pub(crate) mod gate;
pub(crate) mod viewer;
