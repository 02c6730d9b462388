//! Deletes what the history keeps no longer.

use crate::db::conn::connection::Conn;
use crate::db::model::history::cell::Resolution;
use crate::db::table::history::{deltas, series};
use crate::db::transition::clear::ClearedPage;
use diesel::QueryResult;
use std::time::Duration;

const DAY: Duration = Duration::from_secs(24 * 3600);

/// How long the row of the newest contribution of a process stays. A process that gets no answer for
/// longer may count its last heartbeat twice.
const FOLDED_FOR: Duration = Duration::from_secs(7 * 24 * 3600);

/// How long a contribution stays that no program could read.
const UNREADABLE_FOR: Duration = Duration::from_secs(30 * 24 * 3600);

/// How many series one step looks at.
const SERIES: usize = 100;

/// Deletes the buckets past their time of some series after the id `after`.
pub(crate) fn old_buckets(conn: &mut Conn<'_>, after: i64) -> QueryResult<ClearedPage> {
    let page = series::page(conn, after, SERIES)?;
    let mut cleared = 0;
    for resolution in Resolution::ALL {
        let before = page.now - resolution.kept();
        cleared += series::clear(conn, &page.ids, resolution, before)?;
    }
    let is_full = page.ids.len() >= SERIES;
    Ok(ClearedPage {
        reached: page.ids.last().copied().filter(|_| is_full),
        cleared,
        left: None,
    })
}

/// Deletes contributions that are not needed any more, and series in which nothing ended for as long
/// as buckets are kept. The totals of those go too: their counters have stood still for 13 months.
pub(crate) fn unused(conn: &mut Conn<'_>, batch: usize) -> QueryResult<ClearedPage> {
    let mut cleared = deltas::clear(conn, FOLDED_FOR, UNREADABLE_FOR, batch)?;
    cleared += conn.transaction(|conn| {
        // A fold may be adding to one of them.
        if series::lock(conn)?.is_none() {
            return Ok(0);
        }
        let kept = Resolution::Hour.kept().unsigned_abs();
        let age = Duration::from_secs(kept) + DAY;
        let unused = series::unused(conn, age, SERIES)?;
        if !unused.is_empty() {
            for resolution in Resolution::ALL {
                series::clear(conn, &unused, resolution, i64::MAX)?;
            }
            series::delete(conn, &unused)?;
        }
        QueryResult::Ok(unused.len())
    })?;
    Ok(ClearedPage {
        reached: None,
        cleared,
        left: None,
    })
}
