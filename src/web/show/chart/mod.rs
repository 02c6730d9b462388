//! Charts: SVG that stretches to any width, made on the server.
//!
//! An SVG has geometry attributes and classes only, since the policy of the site allows no styles.
//! Its texts are HTML beside it, and each chart has its numbers in a table.

pub(crate) mod axis;
pub(crate) mod histogram;
pub(crate) mod rows;
pub(crate) mod slots;
pub(crate) mod spark;
pub(crate) mod svg;
pub(crate) mod throughput;
pub(crate) mod ticks;
pub(crate) mod waits;
