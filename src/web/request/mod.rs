//! What a page is made with: its request, its parts, and the frame around it.

pub(crate) mod panels;
pub(crate) mod route;
pub(crate) mod shell;
