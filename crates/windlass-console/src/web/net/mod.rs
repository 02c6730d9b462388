//! The thread of the server: connections, requests, answers.

pub(crate) mod engine;
pub(crate) mod forward;
pub(crate) mod intake;
pub(crate) mod stream;
