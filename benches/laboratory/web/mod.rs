//! The cost of `windlass web`: a server in a process of its own, and clients of it.

pub(crate) mod addresses;
pub(crate) mod client;
pub(crate) mod first_page;
pub(crate) mod options;
pub(crate) mod server;
pub(crate) mod traffic;
pub(crate) mod viewers;
