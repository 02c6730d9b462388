//! The threads that read and change the database, and render pages.

pub(crate) mod connections;
pub(crate) mod cx;
pub(crate) mod dispatch;
pub(crate) mod frame;
pub(crate) mod kept;
pub(crate) mod operations;
pub(crate) mod operations_wake;
pub(crate) mod outage;
pub(crate) mod page_error;
pub(crate) mod panel;
pub(crate) mod panels;
pub(crate) mod renewals;
pub(crate) mod shared;
pub(crate) mod workers;
