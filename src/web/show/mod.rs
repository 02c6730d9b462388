//! How values are shown: plain functions, and the same as filters of the templates.
//!
//! Each returns plain text, which a template escapes, or a [`Markup`](markup::Markup), which has
//! escaped what it was made of.

pub(crate) mod chart;
pub(crate) mod filters;
pub(crate) mod json;
pub(crate) mod markup;
pub(crate) mod numbers;
pub(crate) mod times;
