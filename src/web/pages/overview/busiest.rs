//! The classes of which most jobs have ended.

use crate::db::Conn;
use crate::error::Result;
use crate::history::{SeriesTally, TimeRange, by_class};

/// The most classes that are shown.
const MOST: usize = 8;

/// Reads the classes of which most jobs have ended in the last hour.
pub(crate) fn read(conn: &mut Conn<'_>) -> Result<Vec<SeriesTally>> {
    let mut classes = by_class(conn, None, TimeRange::Hour)?;
    classes.sort_by_key(|class| std::cmp::Reverse(class.tally.ended()));
    classes.truncate(MOST);
    Ok(classes)
}
