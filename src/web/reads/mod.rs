//! The threads that read and change the database, and render pages.

pub(crate) mod connections;
pub(crate) mod frame;
pub(crate) mod kept;
pub(crate) mod outage;
pub(crate) mod renewals;
pub(crate) mod shared;
