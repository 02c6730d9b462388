//! `windlass.toml` and the environment: reading, checking and running them.

pub(crate) mod absent;
pub(crate) mod amounts;
pub(crate) mod combinations;
#[cfg(feature = "config")]
pub(crate) mod configuration;
pub(crate) mod connections;
pub(crate) mod document;
pub(crate) mod lists;
pub(crate) mod load;
pub(crate) mod names;
pub(crate) mod poolers;
pub(crate) mod print;
pub(crate) mod queues;
pub(crate) mod reader;
pub(crate) mod recurring;
pub(crate) mod recurring_values;
pub(crate) mod settings;
pub(crate) mod source;
pub(crate) mod suggestion;
pub(crate) mod value;
