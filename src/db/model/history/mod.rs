//! The content of the history: counts and histograms, and the bytes that store them.

pub(crate) mod cell;
pub(crate) mod contribution;
pub(crate) mod tally;
