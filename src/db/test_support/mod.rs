//! Database access for the tests of applications.

pub(crate) mod database;
pub(crate) mod travel;
