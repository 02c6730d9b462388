//! What operators set while the processes run: limits of concurrency keys, paused classes, and settings.

pub(crate) mod class_pauses;
pub(crate) mod limits;
pub(crate) mod settings;
