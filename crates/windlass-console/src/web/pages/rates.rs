//! The keys of rates in use, on the page of the limits.

use crate::web::http::{PageError, Response};
use crate::web::pages::queues::{actor, back, named};
use crate::web::request::route::Cx;
use windlass::internal::db::query::ready::CappedCount;
use windlass::limits::{self, RateStatus};
use windlass::{Conn, Result as WindlassResult};

/// A key in the table.
#[derive(Debug)]
pub(crate) struct RateLine {
    pub(crate) key: String,
    /// Empty if it is not known.
    pub(crate) rate: String,
    /// The key for which it was set, if it was.
    pub(crate) set_as: Option<String>,
    pub(crate) tokens: i64,
    pub(crate) waiting: CappedCount,
    pub(crate) waited: Option<f64>,
    pub(crate) closed: Option<f64>,
}

/// The keys of a page.
#[derive(Debug)]
pub(crate) struct RatePageLines {
    pub(crate) lines: Vec<RateLine>,
    /// The address of the next page; empty if there is none.
    pub(crate) next: String,
}

/// The keys on one page, and the most jobs of a key that are counted.
const PAGE: usize = 100;
const MOST: i64 = 1_000;

/// Reads the keys after one.
pub(crate) fn read(conn: &mut Conn<'_>, after: &str) -> WindlassResult<RatePageLines> {
    let keys = limits::rates(conn, after)?;
    let last = keys.last().filter(|_| keys.len() >= PAGE);
    let next = last.map(|last| {
        let pairs = [("rates_after", last.key.as_str())];
        crate::web::http::with_query("/limits", &pairs)
    });
    Ok(RatePageLines {
        next: next.unwrap_or_default(),
        lines: keys.into_iter().map(line).collect(),
    })
}

fn line(status: RateStatus) -> RateLine {
    RateLine {
        key: status.key,
        rate: status.rate.map(|rate| rate.to_string()).unwrap_or_default(),
        set_as: status.set_as,
        tokens: status.tokens,
        waiting: CappedCount::of(status.waiting, MOST),
        waited: status.waited_seconds,
        closed: status.closed_seconds,
    }
}

/// Opens the key that a form names.
pub(crate) fn reopen(cx: &mut Cx<'_>) -> Result<Response, PageError> {
    let key = cx.form().get("key").unwrap_or_default().to_owned();
    let actor = actor(cx);
    let name = named(&key);
    let message = match cx.write(|conn| actor.reopen_rate(conn, &key))? {
        true => format!("{name} is open: its jobs start at its rate."),
        false => format!("{name} was not closed."),
    };
    Ok(back(cx, &message))
}
