//! What the tests of applications need of the database.

pub(crate) mod database;
pub(crate) mod travel;
