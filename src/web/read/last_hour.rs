//! What the history says of the last hour, and what is usual.

use crate::clock;
use crate::db::Conn;
use crate::db::table::recurring_tasks;
use crate::error::{Doing as _, Result};
use crate::history::curves::{QueueCurves, queue_curves};
use crate::history::{
    Bucket, Histogram, HistoryFilter, SeriesTally, TimeRange, Usual, by_class, rates, series,
    typical_run,
};
use crate::web::kept::Kept;
use std::collections::BTreeMap;
use std::time::Duration;

/// The history of the last hour, and what is usual.
#[derive(Debug, Clone)]
pub(crate) struct LastHour {
    pub(crate) buckets: Vec<Bucket>,
    pub(crate) curves: QueueCurves,
    pub(crate) usual: Option<Usual>,
}

impl LastHour {
    pub(crate) fn read(conn: &mut Conn<'_>) -> Result<Self> {
        let now = recurring_tasks::now(conn).doing("read the time")?;
        Ok(LastHour {
            buckets: series(conn, &HistoryFilter::all(), TimeRange::Hour)?,
            curves: queue_curves(conn, TimeRange::Hour)?,
            usual: usual(conn, &HistoryFilter::all(), now.and_utc())?,
        })
    }
}

/// The most classes that are shown.
const CLASSES: usize = 8;

/// Reads the classes of which most jobs have ended in the last hour.
pub(crate) fn busiest_classes(conn: &mut Conn<'_>) -> Result<Vec<SeriesTally>> {
    let mut classes = by_class(conn, None, TimeRange::Hour)?;
    classes.sort_by_key(|class| std::cmp::Reverse(class.tally.ended()));
    classes.truncate(CLASSES);
    Ok(classes)
}

/// The usual run times of classes, where the history holds a week.
pub(crate) type UsualRuns = BTreeMap<String, Histogram>;

/// How long they are used: some minutes more or less of a week make no difference.
const USUAL: Duration = Duration::from_secs(300);

/// The most classes whose usual run times are read for a page.
const MOST_READ: usize = 4;

/// Returns the usual run times of the first few of these classes, and of those that are known.
pub(crate) fn usual_runs<'c>(
    conn: &mut Conn<'_>,
    kept: &Kept<UsualRuns>,
    classes: impl Iterator<Item = &'c str>,
) -> Result<UsualRuns> {
    let begun = kept.begin(clock::instant());
    let known = kept.get(clock::instant(), USUAL);
    let mut known = known.map(|(known, _)| known).unwrap_or_default();
    let mut read: Vec<&str> = Vec::new();
    for class in classes {
        if read.len() == MOST_READ {
            break;
        }
        if known.contains_key(class) || read.contains(&class) {
            continue;
        }
        read.push(class);
        match typical_run(conn, &HistoryFilter::all().class(class))? {
            Some(run) => {
                known.insert(class.to_owned(), run);
            }
            // Without a week of history, there is none for any class.
            None if known.is_empty() => break,
            None => {}
        }
    }
    if !read.is_empty() {
        kept.set(begun, &known, USUAL);
    }
    Ok(known)
}
