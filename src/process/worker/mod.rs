//! The worker: claims jobs, performs them and saves their outcomes.

pub(crate) mod adjust;
pub mod builder;
pub(crate) mod claim;
pub(crate) mod completer;
pub(crate) mod completion;
pub(crate) mod completion_writer;
pub(crate) mod in_flight;
pub(crate) mod pool;
pub(crate) mod ranked;
pub(crate) mod release;
pub(crate) mod run;
pub mod settings;
pub(crate) mod slot_passing;
pub(crate) mod timeouts;
