//! The worker: claims jobs, performs them and saves their outcomes.

pub(crate) mod adjust;
pub(crate) mod beat;
pub(crate) mod builder;
pub(crate) mod claim;
pub(crate) mod classes;
pub(crate) mod completer;
pub(crate) mod completion;
pub(crate) mod completion_work;
pub(crate) mod completion_writer;
pub(crate) mod counting;
pub(crate) mod in_flight;
pub(crate) mod occupancy;
pub(crate) mod pool;
pub(crate) mod prefetch;
pub(crate) mod ranked;
pub(crate) mod release;
pub(crate) mod run;
pub(crate) mod settings;
pub(crate) mod slot_passing;
pub(crate) mod timeouts;
pub(crate) mod wakeup;
