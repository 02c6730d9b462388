//! The slots of a concurrency key, as small squares.

use crate::web::show::markup::Markup;

/// The most squares: of more slots, only the number is shown.
const MOST: u64 = 12;

/// Returns a square for each slot: full if a process runs its job, half if its job waits, empty if it
/// is free. Returns nothing if there are too many.
pub(crate) fn slots(limit: u64, running: u64, waiting: u64) -> Markup {
    let all = limit.max(running + waiting);
    if all == 0 || all > MOST {
        return Markup::default();
    }
    let squares = (0..all).map(|place| {
        let x = place * 12;
        if place < running {
            format!("<path class=\"f-run\" d=\"M{x} 1h9v10h-9z\"/>")
        } else if place < running + waiting {
            format!(
                "<path class=\"f-run\" d=\"M{x} 6h9v5h-9z\"/><path class=\"o\" d=\"M{x}.5 1.5h8v9h-8z\"/>"
            )
        } else {
            format!("<path class=\"o\" d=\"M{x}.5 1.5h8v9h-8z\"/>")
        }
    });
    let width = all * 12;
    Markup::trusted(format!(
        "<svg class=\"slots\" width=\"{width}\" height=\"12\" viewBox=\"0 0 {width} 12\" aria-hidden=\"true\">{}</svg>\
         <span class=\"vh\">{running} of {limit} run</span>",
        squares.collect::<String>()
    ))
}
