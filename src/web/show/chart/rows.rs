//! The numbers of a chart over time, for the table beside it.

use crate::history::{Bucket, Tally, TimeRange};
use crate::web::show::chart::axis;

/// The most rows of a table beside a chart.
const ROWS: usize = 12;

/// What several buckets added up to.
#[derive(Debug)]
pub(crate) struct ChartRow {
    /// The start of the first.
    pub(crate) from: String,
    pub(crate) tally: Tally,
}

/// Adds buckets up to at most twelve rows of equal length; the last may be shorter.
pub(crate) fn chart_rows(buckets: &[Bucket], range: TimeRange) -> Vec<ChartRow> {
    let size = buckets.len().div_ceil(ROWS).max(1);
    let rows = buckets.chunks(size).filter_map(|chunk| {
        let mut tally = Tally::default();
        for bucket in chunk {
            tally.merge(&bucket.tally);
        }
        Some(ChartRow {
            from: axis::moment(chunk.first()?.starts_at, range),
            tally,
        })
    });
    rows.collect()
}

/// Returns how long the time of one row is, in words: `5 minutes`.
pub(crate) fn row_length(buckets: usize, range: TimeRange) -> String {
    let size = buckets.div_ceil(ROWS).max(1) as u64;
    let seconds = range.bucket().as_secs() * size;
    match seconds {
        60 => "minute".to_owned(),
        0..60 | 61..3_600 => format!("{} minutes", seconds / 60),
        3_600 => "hour".to_owned(),
        3_601..86_400 => format!("{} hours", seconds / 3_600),
        _ => format!("{} days", seconds.div_ceil(86_400)),
    }
}
