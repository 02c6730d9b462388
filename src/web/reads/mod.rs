//! The threads that read and change the database, and render pages.

pub(crate) mod connections;
