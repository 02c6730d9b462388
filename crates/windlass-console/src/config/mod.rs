//! `windlass.toml` and the environment: reading, checking and running them.

pub(crate) mod amounts;
pub(crate) mod combinations;
pub(crate) mod configuration;
pub(crate) mod document;
pub(crate) mod load;
pub(crate) mod queues;
pub(crate) mod reader;
pub(crate) mod recurring;
pub(crate) mod settings;
pub(crate) mod value;
