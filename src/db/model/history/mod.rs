//! What the history records: counts and histograms, and the bytes that store them.

pub(crate) mod cell;
pub(crate) mod contribution;
pub(crate) mod histogram;
pub(crate) mod packed;
pub(crate) mod resolution;
pub(crate) mod tally;
