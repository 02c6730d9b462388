//! The charts of throughput and wait, of everything or of one queue.

use crate::history::{Bucket, HistoryFilter, TimeRange, series};
use crate::web::http::page_error::PageError;
use crate::web::request::cx::Cx;
use crate::web::request::panel::Panel;
use crate::web::show::chart::throughput::throughput;
use crate::web::show::chart::waits::waits;
use crate::web::show::markup::Markup;

/// The two charts.
#[derive(Debug, Clone)]
pub(crate) struct Charts {
    pub(crate) throughput: Markup,
    pub(crate) waits: Markup,
}

/// Draws the charts of everything. The buckets of the last hour have been read already.
pub(crate) fn read(
    cx: &mut Cx<'_>,
    range: TimeRange,
    hour: Option<&[Bucket]>,
) -> Result<Panel<Charts>, PageError> {
    let buckets = match (range, hour) {
        (TimeRange::Hour, Some(buckets)) => Panel::Ready(buckets.to_vec()),
        _ => cx.panel("throughput and waits", |conn| {
            series(conn, &HistoryFilter::all(), range)
        }),
    };
    Ok(match buckets {
        Panel::Missing(missing) => Panel::Missing(missing),
        Panel::Ready(buckets) => Panel::Ready(Charts {
            throughput: throughput(&buckets, range)?,
            waits: waits(&buckets, range, None, "late")?,
        }),
    })
}
