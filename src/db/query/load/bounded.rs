//! Counts that stop at a limit.

/// The limit of a count.
pub(crate) const MOST: i64 = 10_000;

/// A count that stops at a limit: exact, or the limit if there are more.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct CappedCount {
    pub(crate) count: u64,
    /// Whether there are more.
    pub(crate) is_more: bool,
}

impl CappedCount {
    /// Returns the count of up to `limit` rows and one.
    pub(crate) fn of(rows: i64, limit: i64) -> Self {
        CappedCount {
            count: u64::try_from(rows.min(limit)).unwrap_or(0),
            is_more: rows > limit,
        }
    }

    /// Returns the count of those rows of a table that have something, if not all were read.
    pub(crate) fn part(rows: i64, is_more: bool) -> Self {
        CappedCount {
            count: u64::try_from(rows).unwrap_or(0),
            is_more,
        }
    }

    pub(crate) fn is_zero(self) -> bool {
        self.count == 0
    }
}
