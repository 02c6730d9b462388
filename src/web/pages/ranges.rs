//! The time ranges of charts, chosen by the address.

use crate::history::TimeRange;
use crate::web::http::request::Request;

/// A link to a page with another time range.
#[derive(Debug, Clone)]
pub(crate) struct RangeTab {
    pub(crate) label: &'static str,
    pub(crate) path: String,
    pub(crate) is_current: bool,
}

/// The ranges with their names in addresses, and the words for them.
const RANGES: [(TimeRange, &str, &str); 5] = [
    (TimeRange::Hour, "hour", "Last hour"),
    (TimeRange::Day, "day", "24 hours"),
    (TimeRange::Week, "week", "7 days"),
    (TimeRange::Month, "month", "30 days"),
    (TimeRange::Year, "year", "A year"),
];

/// Returns the range that an address names; the last hour if it names none.
pub(crate) fn chosen(request: &Request) -> TimeRange {
    let name = request.query.get("range").unwrap_or_default();
    let found = RANGES.iter().find(|(_, other, _)| *other == name);
    found.map_or(TimeRange::Hour, |(range, ..)| *range)
}

/// Returns the links to all ranges.
pub(crate) fn tabs(request: &Request) -> Vec<RangeTab> {
    let current = chosen(request);
    let tab = |(range, name, label): &(TimeRange, &str, &'static str)| RangeTab {
        label,
        path: match range {
            TimeRange::Hour => format!(
                "{}{}",
                request.path,
                request.query.without("range").to_query()
            ),
            _ => format!(
                "{}{}",
                request.path,
                request.query.with("range", name).to_query()
            ),
        },
        is_current: *range == current,
    };
    RANGES.iter().map(tab).collect()
}

/// Returns the words for a range within a sentence: `the last hour`.
pub(crate) fn in_words(range: TimeRange) -> &'static str {
    match range {
        TimeRange::Hour => "the last hour",
        TimeRange::Day => "the last 24 hours",
        TimeRange::Week => "the last 7 days",
        TimeRange::Month => "the last 30 days",
        TimeRange::Year => "the last year",
    }
}
