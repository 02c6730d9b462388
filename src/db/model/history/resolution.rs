//! The resolutions at which the history is kept.

/// One of the lengths of the buckets that are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Resolution {
    Minute,
    TenMinutes,
    Hour,
}

const HOUR: i64 = 3_600;
const DAY: i64 = 24 * HOUR;

impl Resolution {
    pub(crate) const ALL: [Resolution; 3] =
        [Resolution::Minute, Resolution::TenMinutes, Resolution::Hour];

    /// Returns the length of a bucket in seconds, which is also stored as the resolution of a row.
    pub(crate) fn seconds(self) -> i64 {
        match self {
            Resolution::Minute => 60,
            Resolution::TenMinutes => 600,
            Resolution::Hour => HOUR,
        }
    }

    /// Returns how many seconds of buckets are packed into one row.
    ///
    /// A fold writes the newest row of a series anew at each resolution, so a row is short: 30
    /// minutes, 24 times ten minutes, or 12 hours, which is about 1 KiB when it is full. Several fit
    /// into a page of either database, Postgres keeps them out of its other table for large values,
    /// and three such rows, half full on average, are all that is written for a series and minute. A
    /// row of a whole day of minutes would be 50 KiB, and would be written 1,440 times.
    pub(crate) fn span(self) -> i64 {
        match self {
            Resolution::Minute => HOUR / 2,
            Resolution::TenMinutes => 4 * HOUR,
            Resolution::Hour => 12 * HOUR,
        }
    }

    /// Returns for how many seconds the buckets are kept: 24 hours, 30 days, or 13 months of 31 days
    /// at most, which is a year and the month to compare with.
    pub(crate) fn kept(self) -> i64 {
        match self {
            Resolution::Minute => DAY,
            Resolution::TenMinutes => 30 * DAY,
            Resolution::Hour => 397 * DAY,
        }
    }

    /// Returns the row that has the bucket of this time: its start in seconds since 1970, and the
    /// number of the bucket in it.
    pub(crate) fn place(self, seconds: i64) -> (i64, u16) {
        let start = seconds.div_euclid(self.span()) * self.span();
        let bucket = (seconds - start) / self.seconds();
        (start, u16::try_from(bucket).unwrap_or(0))
    }
}
