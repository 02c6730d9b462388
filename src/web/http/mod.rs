//! HTTP: one thread that reads requests and writes responses, and runs neither SQL nor templates.

pub(crate) mod engine;
pub(crate) mod forward;
pub(crate) mod intake;
pub(crate) mod pairs;
pub(crate) mod request;
pub(crate) mod response;
pub(crate) mod router;
pub(crate) mod seats;
pub(crate) mod stream;
