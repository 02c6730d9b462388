//! Commands that change how running programs work: pauses of classes, and limits.

pub(crate) mod classes;
pub(crate) mod limits;
pub(crate) mod turned;
