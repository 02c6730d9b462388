//! The parts of a page: its request, its panels, and the frame around it.

pub(crate) mod panels;
pub(crate) mod route;
pub(crate) mod shell;
