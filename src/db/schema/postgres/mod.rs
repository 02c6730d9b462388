//! What only a database of Postgres has.

pub(crate) mod functions;
