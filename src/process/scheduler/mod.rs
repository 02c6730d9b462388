//! The scheduler: fires the ticks of recurring tasks.

pub(crate) mod builder;
pub(crate) mod run;
