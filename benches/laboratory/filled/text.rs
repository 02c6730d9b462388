//! Numbers that look random, of the number of a row.

/// A number between 0 and 2^32 that looks random, of the row's number.
pub(crate) const MIXED: &str = "(n.i * 2654435761 % 4294967296)";

/// The number of the class, of `m`, which is [`MIXED`].
pub(crate) const CLASS: &str = "(m % 100 * (m / 128 % 100) / 99)";
