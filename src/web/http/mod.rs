//! HTTP: one thread that reads requests and writes responses, and runs neither SQL nor templates.

pub(crate) mod request;
