//! Database access for the tests of applications.

pub(crate) mod database;
pub(crate) mod jobs_to_run;
pub(crate) mod travel;
